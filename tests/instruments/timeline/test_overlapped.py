"""Ranks that are slow under communication that goes on while they work, one or several, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bench.timeline import JUDGED, outcome
from megalens.instruments.timeline.analysis import Analysis, analyse
from megalens.instruments.timeline.culprits import Culprit, duration_text
from megalens.instruments.timeline.prices import WhatIf
from megalens.instruments.timeline.spans import Spans
from tests.kit.simulated_jobs import Fault, Job, simulate

BUCKETS = Job(1, 1, 8, micro_batches=1, layers=6, steps=24, seed=21, overlap="buckets")
SHARDS = replace(BUCKETS, overlap="shards")


def added(job: Job) -> float:
    """What the faults of a job add to a step, ns."""
    return float(
        np.subtract(*(np.median(simulate(each)[1].step_ns) for each in (job, replace(job, faults=()))))
    )


@pytest.mark.parametrize("job", [BUCKETS, SHARDS, replace(BUCKETS, tensor=2, data=4)])
def test_a_job_that_communicates_while_it_works_is_healthy_where_nobody_is_slow(job):
    verdict = analyse(simulate(job)[0]).verdict()
    assert verdict.healthy
    assert verdict.hidden == ()


@pytest.mark.parametrize("job", [BUCKETS, SHARDS])
@pytest.mark.parametrize("ranks", [(2,), (2, 5)])
@pytest.mark.parametrize("kind", ["device", "data"])
def test_slow_ranks_cost_what_they_add_also_together(job, ranks, kind):
    job = replace(job, faults=tuple(Fault(kind, (rank,), 1.12, 1, 24) for rank in ranks))
    (culprit,) = analyse(simulate(job)[0]).verdict().culprits
    assert (culprit.kind, culprit.ranks) == (kind, ranks)
    assert culprit.price_ns == pytest.approx(added(job), rel=0.1)
    assert culprit.price_low < culprit.price_ns < culprit.price_high
    # Without one of two that are as slow the other remains.
    assert all(part.price_ns < 0.1 * culprit.price_ns for part in culprit.parts)


def test_a_node_that_is_slow_is_one_culprit():
    job = Job(1, 1, 64, micro_batches=1, steps=20, overlap="buckets", node=8, seed=22)
    job = replace(job, faults=(Fault("device", tuple(range(24, 32)), 1.1, 1, 20),))
    verdict = analyse(simulate(job)[0]).verdict()
    (culprit,) = verdict.culprits
    assert (culprit.where, culprit.ranks) == ("node 3", tuple(range(24, 32)))
    assert culprit.price_ns == pytest.approx(added(job), rel=0.1)
    assert "node 3 (ranks 24, 25, 26, 27 and 4 more) computes" in str(verdict)
    assert "alone by at most" in str(verdict)
    message = verdict.to_message()["culprits"][0]
    assert [each["ranks"] for each in message["parts"]] == [[rank] for rank in range(24, 32)]


@pytest.mark.parametrize("size", [1.1, 1.6])
def test_a_rank_that_saves_now_and_then_while_others_wait_is_one_culprit(size):
    saves = tuple(Fault("checkpoint", (0,), size, step, step) for step in range(5, 41, 5))
    job = replace(BUCKETS, steps=40, faults=saves)
    rows, truth = simulate(job)
    (culprit,) = analyse(rows).verdict().culprits
    assert (culprit.kind, culprit.ranks, culprit.first, culprit.last) == ("checkpoint", (0,), 5, 40)
    saving = np.median(truth.step_ns[4::5]) - np.median(np.delete(truth.step_ns, slice(4, None, 5)))
    assert culprit.price_ns == pytest.approx(saving, rel=0.1)
    together = tuple(replace(each, ranks=tuple(range(8)), factor=1.1) for each in saves)
    assert analyse(simulate(replace(job, faults=together))[0]).verdict().healthy


@pytest.mark.parametrize("kind", ["forward", "backward"])
@pytest.mark.parametrize("transfer_ms", [0.3, 6.0])
def test_one_slow_pass_costs_what_the_network_leaves_of_it(kind, transfer_ms):
    job = replace(SHARDS, transfer_ms=transfer_ms, faults=(Fault(kind, (2,), 1.2, 1, 24),))
    more = added(job)
    (culprit,) = [*(verdict := analyse(simulate(job)[0]).verdict()).culprits, *verdict.hidden]
    assert culprit.ranks == (2,)
    price = culprit.price_ns if culprit in verdict.culprits else 0.0
    assert price == pytest.approx(more, rel=0.1, abs=0.01 * verdict.step_ns)


def test_what_costs_time_in_several_ways_has_a_price_for_all_of_it():
    faults = (Fault("device", (2,), 1.2, 1, 24), Fault("data", (5,), 1.1, 1, 24))
    job = replace(BUCKETS, faults=faults)
    verdict = analyse(simulate(job)[0]).verdict()
    assert {(each.kind, each.ranks) for each in verdict.culprits} == {("device", (2,)), ("data", (5,))}
    assert verdict.price_ns == pytest.approx(added(job), rel=0.1)
    assert "Without all of these a step is" in str(verdict)


@pytest.mark.parametrize(
    ("job", "fault"),
    [
        (Job(2, 4, 2, norm=False, seed=5), Fault("device", (5,), 1.2, 1, 30)),
        (Job(1, 4, 1, micro_batches=6, norm=False, seed=5), Fault("device", (2,), 1.2, 10, 20)),
        (Job(2, 4, 2, norm=False, seed=5), None),
    ],
)
def test_micro_batches_say_who_waits_for_whom_where_messages_were_not_recorded(job, fault):
    rows, _ = simulate(replace(job, faults=(fault,) if fault else ()))
    frame = rows.to_pandas()
    passes = frame[~frame["kind"].isin(["send", "receive"])]
    verdict = analyse(pa.Table.from_pandas(passes, preserve_index=False)).verdict()
    whole = analyse(rows).verdict()
    assert [each.ranks for each in verdict.culprits] == [each.ranks for each in whole.culprits]
    assert [each.price_ns for each in verdict.culprits] == [
        pytest.approx(each.price_ns, rel=0.05) for each in whole.culprits
    ]
    assert not verdict.healthy
    assert any("taken from the micro-batches" in each for each in verdict.lacking)


def test_ranks_of_which_no_file_is_there_leave_no_price():
    rows, _ = simulate(replace(BUCKETS, faults=(Fault("device", (2,), 1.2, 1, 24),)))
    frame = rows.to_pandas().assign(group="0-3")
    part = pa.Table.from_pandas(frame[frame["rank"] < 4], preserve_index=False)
    known, unknown = (Analysis(Spans.of(part), world=world).verdict() for world in (128, 0))
    assert known.lacking == (
        "The job has 128 ranks, of which 124 have no spans: ranks 4, 5, 6, 7 and 120 more.",
    )
    assert not known.healthy
    assert [each.price_ns == each.price_ns for each in known.culprits] == [False]
    assert unknown.culprits[0].price_ns > 0


def test_one_observation_has_no_interval_and_numbers_have_no_exponent():
    once = Culprit("step", (0,), 9, 9, 1.5, float("nan"), float("nan"), 1.0, 1.04e9)
    assert (
        str(once)
        == "Step 9: the step takes 150 % longer; rank 0 makes it so. Without that a step is 1.04 s shorter."
    )
    assert "±" not in str(WhatIf(2e9, 1e9, 1e9, float("nan"), float("nan")))
    analysis = analyse(simulate(BUCKETS)[0])
    assert np.isnan(analysis.what_if({(0, "compute"): 0.5}, steps=[3]).saved_low)
    assert [duration_text(ns) for ns in (0, 45, 228e3, 999.6e6, 65e9)] == [
        "0 µs",
        "0.045 µs",
        "228 µs",
        "1 s",
        "65 s",
    ]


@pytest.mark.slow
def test_random_jobs_that_communicate_while_they_work_are_judged_as_in_the_bench():
    results = [outcome(seed) for seed in range(JUDGED, JUDGED + 9)]
    assert {each.kind for each in results} >= {"none", "forward", "backward", "two", "node", "data"}
    assert [each for each in results if not each.found or each.false or not each.priced] == []
