"""The monitor of a job of several processes: whose value it was."""

from __future__ import annotations

import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("who", [0, 1])
def test_the_first_anomaly_is_of_the_rank_that_computed_it(who: int) -> None:
    alarms, *others = run_job(2, "monitor_work:spoilt", 10, who)
    assert alarms[0] == (10, who, "nonfinite", "forward", "blocks.1.mlp.fc1/output0")
    # Its reduced gradients are those of both.
    assert {rank for _, rank, _, direction, _ in alarms if direction == "forward"} >= {who}
    assert others == [[]]


@pytest.mark.parametrize("who", [0, 1])
def test_a_replica_that_comes_apart_is_named_in_its_step(who: int) -> None:
    alarms, _ = run_job(2, "monitor_work:apart", 12, who)
    # Two replicas do not say which of them is right: the one that is no replica of another counts.
    assert alarms[0] == (12, 1, "replicas", "critical", "blocks.1.mlp.fc1.weight")


def test_replicas_that_agree_raise_nothing() -> None:
    assert run_job(2, "monitor_work:apart", 12, None) == [[], []]


def test_an_alarm_ends_all_ranks_at_the_same_step_with_its_sentence() -> None:
    first, second = run_job(2, "monitor_work:stopped", 12)
    assert first == second
    assert 12 < first[0] < 399
    assert "blocks.1.mlp.fc1.weight: 1 value is NaN" in first[1]


def test_a_statistic_ends_at_one_step_on_all_ranks_and_nothing_is_alarmed_of_it() -> None:
    first, second = run_job(2, "monitor_work:changed", 14)
    assert first == second == [*range(1, len(first) + 1)]
    assert 14 <= len(first) < 39
