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


@pytest.mark.parametrize(
    ("ranks", "wrong", "who", "found"),
    [(2, "skipped", 1, {1}), (3, "halved", 2, {2}), (4, "skipped", 2, {2}), (2, "summed", -1, {0, 1})],
)
def test_a_wrong_reduction_is_named_in_its_step_with_its_rank(
    ranks: int, wrong: str, who: int, found: set[int]
) -> None:
    (_, alarms), *_ = run_job(ranks, "monitor_work:reduced", 12, wrong, who)
    assert {rank for step, rank, rule, *_ in alarms if rule == "reduction" and step == 12} == found
    assert {step for step, *_ in alarms} <= {12, 13, 14}


def test_a_gradient_that_is_not_finite_is_named_with_the_rank_that_computed_it() -> None:
    (_, alarms), _ = run_job(2, "monitor_work:reduced", 12, "NaN", 1)
    # After the reduction every rank has it; before, one.
    assert alarms[0] == (12, 1, "nonfinite", "reduction", "blocks.1.mlp.fc1.weight")


def test_losses_are_the_same_with_and_without_the_gradients_before_the_reduction() -> None:
    watched = run_job(2, "monitor_work:reduced", 12, "", 0)
    plain = run_job(2, "monitor_work:reduced", 0, "", 0)
    assert [losses for losses, _ in watched] == [losses[:28] for losses, _ in plain]
    assert watched[0][1] == []


def test_each_process_gives_the_gradients_that_it_computed_itself() -> None:
    for rank, (given, expected, said) in enumerate(run_job(2, "monitor_work:own_gradients", False)):
        assert not said
        assert [each[:4] for each in given] == [
            ("grad_accumulated", 0, rank, False),
            ("grad_accumulated", 1, rank, False),
            ("grad_unreduced", -1, rank, False),
        ]
        for (*_, rows), plain in zip(given, [*expected, expected[-1]], strict=True):
            assert rows.keys() == plain.keys()
            for name, row in rows.items():
                assert row == pytest.approx(plain[name], rel=1e-6, abs=1e-12)


def test_gradients_that_lie_in_the_buckets_of_their_reduction_are_left_out_in_words() -> None:
    for given, _, said in run_job(2, "monitor_work:own_gradients", True):
        # A pass that reduces nothing is measured.
        assert [each[:2] for each in given] == [("grad_accumulated", 0)]
        assert "gradient_as_bucket_view=False" in said


def test_a_statistic_ends_at_one_step_on_all_ranks_and_nothing_is_alarmed_of_it() -> None:
    first, second = run_job(2, "monitor_work:changed", 14)
    assert first == second == [*range(1, len(first) + 1)]
    assert 14 <= len(first) < 39
