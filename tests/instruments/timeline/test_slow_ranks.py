"""Which rank is slower than those that do the same, said while the training runs."""

from __future__ import annotations

import numpy as np
import pytest

from megalens.instruments.timeline.noted_span import Span
from megalens.instruments.timeline.rows import SlowRanks, computed_ns, medians_of_others

MS = 1_000_000


def run(steps, ranks=4, stages=None, factor=lambda rank, step: 1.0, noise=0.01, missing=(), seed=0):
    """Alarms of a job, each step in which every rank works 100 ms but for its factor."""
    random = np.random.default_rng(seed)
    slow = SlowRanks(ranks)
    found = []
    for step in range(1, steps + 1):
        for rank in range(ranks):
            if (rank, step) not in missing:
                ns = 100 * MS * factor(rank, step) * float(np.exp(random.normal(0, noise)))
                found += slow.take(rank, -1 if stages is None else stages[rank], step, ns)
    return found


def test_a_rank_that_becomes_slow_is_said_once_with_how_much_and_since_when():
    def slow(rank, step):
        # A few of its steps are as short as before.
        return 1.34 if rank == 2 and step >= 120 and step % 9 else 1.0

    (alarm,) = run(200, factor=slow, noise=0.002)
    assert (alarm["rule"], alarm["rank"]) == ("slow_rank", 2)
    assert 135 <= alarm["step"] <= 150
    assert alarm["sentence"] == "Rank 2 is 34 % slower than the other ranks since step 120."
    assert alarm["value"] == pytest.approx(134, rel=0.02)
    assert alarm["expected"] == pytest.approx(100, rel=0.02)


def test_a_rank_that_gets_worse_or_is_slow_again_is_said_again():
    def worse(rank, step):
        return (1.1 if step < 100 else 1.3) if rank == 1 else 1.0

    assert [alarm["rank"] for alarm in run(200, factor=worse)] == [1, 1]

    def again(rank, step):
        return 1.2 if rank == 1 and (step < 60 or step > 160) else 1.0

    assert len(run(260, factor=again)) == 2


def test_a_rank_is_compared_with_the_median_of_the_others_of_its_stage():
    random = np.random.default_rng(3)
    for ranks in (2, 3, 4, 9, 16):
        stages = random.integers(0, 3, ranks).astype(float)
        # Some work equally long.
        work = random.integers(1, 6, ranks).astype(float)
        others = [np.delete(work, rank)[np.delete(stages, rank) == stages[rank]] for rank in range(ranks)]
        wanted = [np.median(each) if len(each) else np.nan for each in others]
        np.testing.assert_array_equal(medians_of_others(stages, work), wanted)


def test_each_stage_is_compared_with_itself():
    stages = [0, 0, 1, 1]
    # The second stage has more to do, which is no rank's fault.
    assert run(100, stages=stages, factor=lambda rank, step: 1.5 if rank > 1 else 1.0) == []
    (alarm,) = run(100, stages=stages, factor=lambda rank, step: {2: 1.5, 3: 1.8}.get(rank, 1.0))
    assert (alarm["rank"], alarm["stage"]) == (3, 1)
    assert "of its stage" in alarm["sentence"]


def test_a_stage_without_work_or_with_one_rank_leaves_the_others_judged():
    stages = [0, 0, 1, 1, 2]
    (alarm,) = run(
        100, ranks=5, stages=stages, factor=lambda rank, step: {0: 1.5, 2: 0.0, 3: 0.0}.get(rank, 1.0)
    )
    assert (alarm["rank"], alarm["stage"]) == (0, 0)


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.3])
def test_healthy_jobs_raise_nothing(noise):
    assert [run(500, ranks=8, noise=noise, seed=seed) for seed in range(4)] == [[]] * 4


def test_few_long_steps_and_one_rank_alone_raise_nothing():
    assert run(200, factor=lambda rank, step: 4.0 if rank == 0 and step % 10 == 0 else 1.0) == []
    assert run(200, ranks=1, factor=lambda rank, step: 1 + step) == []


def test_steps_that_a_rank_never_tells_are_passed_over_and_do_not_pile_up():
    slow = SlowRanks(2)
    for step in range(30_000):
        slow.take(0, -1, step, 100.0)
    assert len(slow._steps) <= 10_000
    missing = {(1, step) for step in range(20, 60)}
    (alarm,) = run(120, ranks=2, missing=missing, factor=lambda rank, step: 1.0 + 0.5 * (rank == 1))
    assert alarm["rank"] == 1


def test_work_is_passes_and_optimizer_without_the_waiting_in_them():
    step = [
        Span("forward", 0, 100, blocked=100),
        Span("forward", 10, 50, "layers.0", blocked=40),  # a layer of the pass is in it already
        Span("collective", 60, 80, "all_reduce", blocked=15),  # in the pass
        Span("backward", 100, 300, blocked=200),
        Span("collective", 310, 350, "all_reduce", blocked=40),  # between two passes
        Span("optimizer", 400, 450, blocked=50),
    ]
    assert computed_ns(step) == 100 - 15 + 200 + 50
    assert computed_ns(step[2:3]) == 0
