"""Verdicts, prices and what-ifs of simulated jobs, against what was put into them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from span_rows import table

from bench.timeline import judged
from megalens.instruments.timeline.analysis import Analysis, analyse
from megalens.instruments.timeline.long_steps import stalls
from megalens.instruments.timeline.megascan_files import TimelineError
from megalens.instruments.timeline.spans import COMPUTING, Spans, Work
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


@pytest.mark.parametrize(
    ("job", "slow", "said"),
    [
        (Job(1, 1, 8, seed=21), range(5), "5 of 8 ranks (ranks 0, 1, 2, 3 and 1 more) compute"),
        (Job(1, 1, 12, node=4, seed=22), range(4, 12), "8 of 12 ranks (node 1, node 2) compute"),
        (Job(1, 1, 3, seed=23), (0, 2), "longer than rank 1. If they were as fast, a step is"),
        (Job(2, 2, 4, seed=24), [*range(6), *range(8, 14)], "12 of 16 ranks"),
    ],
)
def test_where_most_ranks_are_slow_the_others_show_what_is_possible(job, slow, said):
    job = replace(job, faults=(Fault("device", tuple(slow), 1.12, 5, 30),))
    rows, truth = simulate(job)
    (culprit,) = (verdict := analyse(rows).verdict()).culprits
    assert (culprit.kind, culprit.ranks, culprit.first, culprit.last) == ("device", tuple(slow), 5, 30)
    assert {*culprit.ranks, *culprit.others} == {*range(job.ranks)}
    assert said in str(verdict)
    clean = simulate(replace(job, faults=()))[1]
    added = np.median(truth.step_ns[4:]) - np.median(clean.step_ns[4:])
    assert culprit.price_ns == pytest.approx(added, rel=0.2)


def test_ranks_that_differ_without_two_clear_groups_are_not_told_apart():
    levels = [Fault("device", (rank,), 1 + 0.02 * rank, 1, 30) for rank in range(1, 8)]
    verdict = analyse(simulate(Job(1, 1, 8, seed=25, faults=tuple(levels)))[0]).verdict()
    assert not any(each.others for each in (*verdict.culprits, *verdict.hidden))


@pytest.mark.parametrize("kind", ["host", "forward", "backward"])
def test_what_makes_a_few_steps_longer_and_no_span_explains_is_said_without_blame(kind):
    size = {"host": 1.15, "forward": 1.6, "backward": 1.3}[kind]
    faults = tuple(Fault(kind, (3,), size, step, step) for step in (9, 17))
    verdict = analyse(simulate(Job(1, 1, 8, seed=26, faults=faults))[0]).verdict()
    assert verdict.healthy
    (stall,) = verdict.stalls
    assert (stall.ranks, stall.steps, stall.longer[0][0]) == ((3,), (9, 17), kind)
    whole = {"host": 96e6, "forward": 32e6, "backward": 64e6}[kind] * (size - 1)
    assert stall.longer[0][1] == pytest.approx(whole, rel=0.2)
    assert "Steps 9, 17: rank 3" in str(verdict)
    assert "nothing recorded explains" in str(verdict)
    assert verdict.to_message()["stalls"][0]["longer"] == [list(stall.longer[0])]


def test_a_span_of_the_scripts_own_explains_a_stall():
    faults = tuple(Fault("forward", (3,), 1.6, step, step) for step in (9, 17))
    frame = simulate(Job(1, 1, 8, seed=26, faults=faults))[0].to_pandas()
    inside = frame[(frame["rank"] == 3) & frame["step"].isin([9, 17]) & (frame["kind"] == "forward")]
    first = inside.drop_duplicates("step").assign(kind="user", name="garbage collection")
    first["start"], first["end"] = first["start"] + 10**6, first["start"] + 16 * 10**6
    rows = pd.concat([frame, first.assign(blocked=15 * 10**6)], ignore_index=True)
    verdict = analyse(pa.Table.from_pandas(rows, preserve_index=False)).verdict()
    assert verdict.healthy
    assert "Steps 9, 17: rank 3 takes 15 ms (median) longer in “garbage collection”." in str(verdict)


def test_a_pause_before_a_step_begins_is_a_stall_too_and_a_long_transfer_is_nobodys():
    faults = tuple(Fault("host", (3,), 1.15, step, step) for step in (9, 17))
    frame = simulate(Job(1, 1, 8, seed=26, faults=faults))[0].to_pandas()
    step = (frame["kind"] == "step") & frame["step"].isin([9, 17])
    frame.loc[step & (frame["rank"] == 3), "start"] += int(0.15 * 96e6)
    (stall,) = analyse(pa.Table.from_pandas(frame, preserve_index=False)).verdict().stalls
    assert (stall.ranks, stall.steps, stall.longer[0][0]) == ((3,), (9, 17), "host")
    frame = simulate(Job(1, 1, 8, seed=26))[0].to_pandas()
    after = (frame["step"] > 9) | ((frame["step"] == 9) & frame["kind"].isin(["optimizer"]))
    reduced = (frame["step"] == 9) & (frame["kind"] == "collective") & (frame["name"] == "all_reduce")
    frame.loc[after, "start"] += 10**8
    frame.loc[after | reduced | ((frame["step"] == 9) & (frame["kind"] == "step")), "end"] += 10**8
    frame.loc[reduced | ((frame["step"] == 9) & (frame["kind"] == "step")), "blocked"] += 10**8
    verdict = analyse(pa.Table.from_pandas(frame, preserve_index=False)).verdict()
    assert verdict.healthy
    assert [(each.ranks, each.steps) for each in verdict.stalls] == [((), (9,))]
    assert "ms longer in communication, and no rank works longer than usual" in str(verdict)


@pytest.mark.parametrize("noise", [0.005, 0.015, 0.03])
def test_noise_is_no_stall_and_makes_no_two_groups(noise):
    verdict = analyse(simulate(Job(2, 1, 8, seed=27, noise=noise))[0]).verdict()
    assert verdict.healthy
    assert (verdict.stalls, verdict.hidden) == ((), ())


def test_a_stall_beside_a_rank_whose_steps_always_differ_more_is_found():
    """As in a job of real processes on a busy machine."""
    steps = 30
    flat = np.full((2, steps), 1e7)
    host, step = flat.copy(), np.full((2, steps), 1e8)
    host[1, ::2] += 4e7
    host[0, 15] += 2e7
    host[1, 15] += 9e7
    step[0, 15] += 2e7
    nothing = np.zeros((2, steps))
    done = Work(
        ranks=np.arange(2), steps=np.arange(1, steps + 1), stage=np.full(2, -1), step=step, compute=3 * flat,
        parts=np.stack([flat] * len(COMPUTING)), data=nothing, checkpoint=nothing, host=host, paused=nothing,
        between=nothing, user=nothing, user_name=np.zeros((2, steps), np.int64), names=[""], unit=None,
    )  # fmt: skip
    (found,) = stalls(done, np.ones(steps, bool))
    assert (found.ranks, found.steps, found.longer[0]) == ((0,), (16,), ("host", 2e7))


def test_long_steps_for_one_reason_are_one_and_say_it():
    faults = [Fault("host", (3,), 2.0, step, step) for step in (9, 17)]
    faults += [Fault("step", tuple(range(8)), 2.0, 23, 23)]
    verdict = analyse(simulate(Job(1, 1, 8, seed=28, faults=tuple(faults)))[0]).verdict()
    assert {(each.kind, each.ranks, each.steps) for each in verdict.culprits} == {
        ("step", (3,), (9, 17)),
        ("step", tuple(range(8)), (23,)),
    }
    assert "Steps 9, 17: the step takes" in str(verdict)
    assert "rank 3 stalls for" in str(verdict)
    assert "more save for" in str(verdict)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (None, "No step takes unusually long."),
        (Fault("backward", (0,), 1.7, 20, 30), "Steps 20 to 30: computing takes 44.3 ms longer than in other steps"),
        (Fault("backward", (0,), 1.7, 20, 30), "44.3 ms in the backward pass."),
        (Fault("data", (0,), 1.3, 20, 30), "waiting for data takes 28.9 ms a step"),
        (Fault("host", (0,), 1.3, 20, 30), "what no span explains takes 28.8 ms longer than in other steps"),
        (Fault("checkpoint", (0,), 12, 20, 20), "Step 20: it takes"),
        (Fault("checkpoint", (0,), 12, 20, 20), "longer than the steps around it: 1.06 s in saving."),
        (Fault("host", (0,), 1.1, 20, 20), "Step 20: it takes 9.58 ms longer"),
    ],
)  # fmt: skip
def test_of_one_process_the_part_that_took_longer_is_named_without_blame(fault, said):
    job = Job(1, 1, 1, seed=5, steps=40, faults=(fault,) if fault else ())
    frame = simulate(job)[0].to_pandas()
    verdict = Analysis(Spans.of(pa.Table.from_pandas(frame, preserve_index=False)), world=1).verdict()
    assert said in str(verdict)
    assert not any(word in str(verdict) for word in ("like", "makes it so", "rank", "±  0"))
    unknown = Analysis(Spans.of(pa.Table.from_pandas(frame, preserve_index=False))).verdict()
    assert any("Only rank 0 is there" in each for each in unknown.lacking)


def test_several_steps_of_one_process_take_longer_in_the_plural():
    faults = (Fault("checkpoint", (0,), 12, 20, 20), Fault("checkpoint", (0,), 12, 30, 30))
    frame = simulate(Job(1, 1, 1, seed=5, steps=40, faults=faults))[0].to_pandas()
    verdict = Analysis(Spans.of(pa.Table.from_pandas(frame, preserve_index=False)), world=1).verdict()
    assert "Steps 20, 30: they take" in str(verdict)


def test_what_costs_little_is_not_said_to_cost_nothing():
    rows, _ = simulate(replace(EIGHT, faults=(Fault("host", (0,), 1.05, 1, 30),)))
    verdict = analyse(rows).verdict()
    each = (*verdict.culprits, *verdict.hidden)[0]
    sizes = {0.0: "Nobody waits for it", 0.004: "It costs less than 1 % of a step", 0.003: "within the noise"}
    for share, said in sizes.items():
        price = share * verdict.step_ns
        low = price / 2 if share == 0.004 else -price
        little = replace(each, price_ns=price, price_low=low, price_high=2 * price - low)
        message = replace(verdict, culprits=(), hidden=(little,)).to_message()["hidden"][0]
        assert said in message["sentence"]
        assert ("shorter" in message["sentence"]) == (share > 0)


def test_evaluation_is_no_part_of_a_step_and_one_rank_that_evaluates_alone_is_named():
    frame = simulate(Job(1, 1, 4, seed=29))[0].to_pandas()

    def evaluated(ranks):
        rows = frame.copy()
        for rank in range(4):
            late = (rows["rank"] == rank) & (rows["step"] >= 12)
            first = (rows["rank"] == rank) & (rows["step"] == 12)
            begin = rows[first & (rows["kind"] == "step")]["start"].iloc[0]
            # All wait in the collective at the end of the step, or evaluate.
            inside = (rows["step"] > 12) | (rows["kind"] == "optimizer") | (rows["kind"] == "collective")
            starts = late & (inside if rank not in ranks else (rows["kind"] != "step") | (rows["step"] > 12))
            starts &= ~(first & (rows["kind"] == "collective") & (rank not in ranks))
            rows.loc[starts, "start"] += 10**9
            rows.loc[late & (inside | (rows["kind"] == "step") | (rank in ranks)), "end"] += 10**9
            held = first & (rows["kind"].isin(["collective", "step"])) & (rank not in ranks)
            rows.loc[held | (first & (rows["kind"] == "step")), "blocked"] += 10**9
            if rank in ranks:
                own = rows[first].iloc[0].to_dict()
                own |= {"kind": "user", "name": "evaluation", "start": begin, "end": begin + 10**9}
                rows = pd.concat([rows, pd.DataFrame([own | {"blocked": 10**9}])], ignore_index=True)
        return analyse(pa.Table.from_pandas(rows, preserve_index=False)).verdict()

    assert evaluated({0, 1, 2, 3}).healthy
    (culprit,) = evaluated({2}).culprits
    assert (culprit.kind, culprit.ranks, culprit.steps) == ("step", (2,), (12,))
    assert "rank 2 evaluates or writes text for 1 s." in str(culprit)


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
