"""Verdicts, prices and what-ifs of simulated jobs, against what was put into them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from span_rows import table

from bench.timeline.__main__ import judged
from megalens.instruments.timeline.analysis import analyse
from megalens.instruments.timeline.megascan_files import TimelineError
from tests.kit.simulated_jobs import Fault, Job, simulate

EIGHT = Job(2, 2, 2, seed=11)
ALONE = Job(1, 4, 1, seed=12)


def found(verdict):
    return [(each.kind, each.ranks, each.first, each.last) for each in verdict.culprits]


@pytest.mark.parametrize(
    "job",
    [
        EIGHT,
        ALONE,
        Job(1, 1, 2, seed=13),
        Job(8, 1, 1, seed=14),
        Job(1, 4, 4, norm=False),
    ],
)
def test_a_healthy_job_is_called_healthy(job):
    verdict = analyse(simulate(job)[0]).verdict()
    assert verdict.culprits == ()
    assert verdict.healthy
    assert "Healthy" in str(verdict)


def test_what_is_missing_to_call_a_job_healthy_is_said_instead():
    rows = simulate(replace(EIGHT, faults=(Fault("device", (5,), 1.3, 1, 30),)))[0]
    frame = rows.to_pandas()

    def judged_part(part):
        return analyse(pa.Table.from_pandas(part, preserve_index=False)).verdict()

    alone = judged_part(frame[frame["rank"] == 0])
    assert not alone.healthy
    assert alone.culprits == ()
    assert "Healthy" not in str(alone)
    assert any("Only rank 0" in each for each in alone.lacking)
    assert any("have no spans" in each for each in alone.lacking)
    # Slow ranks are still named where nothing connects them; what they cost is not.
    apart = judged_part(frame.assign(group="", peer=-1))
    assert [each.ranks for each in apart.culprits] == [(5,)]
    assert all(each.price_ns != each.price_ns for each in apart.culprits)
    assert any("connects all of the ranks" in each for each in apart.lacking)
    waits = frame.assign(blocked=0)
    assert any("No rank waited" in each for each in judged_part(waits).lacking)
    few = judged_part(frame[frame["step"] < 4])
    assert not few.healthy
    assert any("Steps: 3." in each for each in few.lacking)
    assert few.to_message()["lacking"] == list(few.lacking)


@pytest.mark.parametrize(
    ("job", "faults"),
    [
        (EIGHT, [Fault("device", (5,), 1.06, 1, 30)]),
        (EIGHT, [Fault("device", (5,), 1.3, 10, 22), Fault("host", (0,), 1.08, 1, 30)]),
        (EIGHT, [Fault("data", (1,), 1.1, 4, 30), Fault("link", (2, 3), 1.6, 1, 30)]),
        (EIGHT, [Fault("step", tuple(range(8)), 2.5, 9, 9)]),
        (Job(1, 1, 2, seed=16), [Fault("device", (1,), 1.2, 1, 30)]),
        (Job(1, 1, 4, seed=17), [Fault("data", (0, 1, 2, 3), 1.2, 1, 30)]),
        (Job(1, 4, 2, seed=18), [Fault("stage", (2, 3), 1.3, 1, 30)]),
        (Job(2, 4, 1, seed=19, norm=False), [Fault("link", (2, 4), 2.0, 8, 20)]),
        (ALONE, [Fault("device", (2,), 1.15, 12, 25)]),
        (replace(ALONE, granularity="layers"), [Fault("device", (2,), 1.15, 1, 30)]),
    ],
)
def test_each_fault_is_named_with_its_ranks_its_size_and_its_steps(job, faults):
    job = replace(job, faults=tuple(faults))
    verdict = analyse(simulate(job)[0]).verdict()
    assert sorted(found(verdict)) == sorted((each.kind, each.ranks, each.first, each.last) for each in faults)
    for fault in faults:
        culprit = next(each for each in verdict.culprits if each.kind == fault.kind)
        if fault.kind != "step":
            assert culprit.slower == pytest.approx(fault.factor - 1, abs=0.03 + 0.05 * fault.factor)
            assert culprit.confidence > 0.999


def test_a_stage_of_one_rank_says_what_it_cannot_be_compared_with():
    verdict = analyse(simulate(ALONE)[0]).verdict()
    assert "timeline='layers'" in verdict.problems[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [Fault("device", (5,), 1.3, 1, 30), Fault("data", (1,), 1.2, 1, 30), Fault("link", (2, 3), 4.0, 1, 30)],
)
def test_the_price_is_what_the_same_job_takes_less_without_the_fault(fault):
    rows, truth = simulate(replace(EIGHT, faults=(fault,)))
    _, clean = simulate(EIGHT)
    (culprit,) = analyse(rows).verdict().culprits
    saved = np.median(truth.step_ns) - np.median(clean.step_ns)
    assert culprit.price_ns == pytest.approx(saved, abs=0.01 * np.median(clean.step_ns))


def test_a_step_that_is_replayed_unchanged_takes_as_long_as_it_took_and_changes_by_hand_take_effect():
    rows, truth = simulate(replace(EIGHT, faults=(Fault("device", (5,), 1.3, 1, 30),)))
    analysis = analyse(rows)
    nothing = analysis.what_if()
    assert nothing.saved_ns == 0
    assert nothing.before_ns == pytest.approx(np.median(truth.step_ns), rel=0.01)
    faster = analysis.what_if({(5, "compute"): 1 / 1.3})
    assert 0.1 < faster.saved_ns / faster.before_ns < 0.25
    assert "→" in str(faster)
    slower = analysis.what_if(links={(0, 1): 10.0}, steps=[7])
    assert slower.saved_ns < 0


def test_what_if_says_what_it_takes():
    analysis = analyse(simulate(EIGHT)[0])
    for wrong, message in (
        ({"work": {(9, "compute"): 1.0}}, "rank must be one of the recording's, 0 to 7, got 9"),
        ({"work": {(0, "sleep"): 1.0}}, "kind must be one of compute, data, checkpoint, host, got 'sleep'"),
        ({"work": {(0, "host"): -1}}, "factor must be a number from 0, got -1"),
        ({"links": {(0, 1): float("nan")}}, "factor must be a number from 0, got nan"),
        ({"steps": [99]}, "None of these steps can be replayed"),
    ):
        with pytest.raises(TimelineError, match=message.replace("(", r"\(")):
            analysis.what_if(**wrong)


def test_steps_can_be_chosen_and_a_cut_recording_of_fewer_steps_and_ranks_is_judged():
    rows, _ = simulate(replace(EIGHT, faults=(Fault("device", (5,), 1.3, 10, 30),)))
    assert analyse(rows).verdict(last=9).healthy
    frame = rows.to_pandas()
    # Rank 3 never came, rank 6 ends early.
    cut = frame[(frame["rank"] != 3) & ~((frame["rank"] == 6) & (frame["step"] > 21))]
    verdict = analyse(pa.Table.from_pandas(cut, preserve_index=False)).verdict()
    assert found(verdict) == [("device", (5,), 10, 30)]
    assert any("rank 3" in each for each in verdict.problems)


def test_sums_of_steps_name_a_slow_rank_without_a_price():
    rows = [
        {"step": step, "rank": rank, "kind": kind, "name": "", "group": "", "count": count, "end": ns, "blocked": blocked}
        for step in range(1, 31)
        for rank in range(4)
        for slow in [1.2 if rank == 2 and step > 9 else 1.0]
        for jitter in [1 + 0.01 * ((7 * step + 3 * rank) % 5 - 2)]
        for kind, count, ns, blocked in (
            ("forward", 4, int(40e6 * slow * jitter), 0),
            ("backward", 4, int(80e6 * slow * jitter), 0),
            ("collective", 3, int(30e6 - 24e6 * (slow > 1)), int(30e6 - 24e6 * (slow > 1))),
            ("step", 1, int(151e6), 0),
        )
    ]  # fmt: skip
    verdict = analyse(table(*rows)).verdict()
    (culprit,) = verdict.culprits
    assert (culprit.kind, culprit.ranks, culprit.first) == ("device", (2,), 10)
    assert culprit.to_message()["price_ns"] is None
    assert "rank 2 computes" in culprit.to_message()["sentence"]


def test_no_spans_are_said():
    with pytest.raises(TimelineError, match="The run has no spans"):
        analyse(table({})[:0])
    verdict = analyse(table({"kind": "forward"})).verdict()
    assert not verdict.healthy
    assert "no whole step" in str(verdict)


@pytest.mark.slow
def test_random_jobs_are_judged_as_in_the_bench():
    results = [judged(seed, 8) for seed in range(1, 13)]
    assert sum(each.faults for each in results) > 10
    assert [each.wrong for each in results if each.wrong] == []
