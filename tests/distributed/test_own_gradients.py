"""The gradients of each process before their reduction, beside plain torch, and the rules that judge them live."""

from __future__ import annotations

import pytest
from processes import run_job

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("ranks", "wrong", "who", "found"),
    [(2, "skipped", 1, {1}), (3, "halved", 2, {2}), (2, "summed", -1, {0, 1})],
)
def test_a_wrong_reduction_is_named_in_its_step_with_its_rank(
    ranks: int, wrong: str, who: int, found: set[int]
) -> None:
    (_, alarms), *_ = run_job(ranks, "own_gradients_work:reduced", 12, wrong, who)
    assert {rank for step, rank, rule, *_ in alarms if rule == "reduction" and step == 12} == found
    assert {step for step, *_ in alarms} <= {12, 13, 14}


def test_a_gradient_that_is_not_finite_is_named_with_the_rank_that_computed_it() -> None:
    (_, alarms), _ = run_job(2, "own_gradients_work:reduced", 12, "NaN", 1)
    # After the reduction every rank has it; before, one.
    assert alarms[0] == (12, 1, "nonfinite", "reduction", "blocks.1.mlp.fc1.weight")


def test_losses_are_the_same_with_and_without_the_gradients_before_the_reduction() -> None:
    watched = run_job(2, "own_gradients_work:reduced", 12, "", 0)
    plain = run_job(2, "own_gradients_work:reduced", 0, "", 0)
    assert [losses for losses, _ in watched] == [losses[:28] for losses, _ in plain]
    assert watched[0][1] == []


@pytest.mark.parametrize("in_buckets", [False, True])
def test_each_process_gives_the_gradients_that_it_computed_itself(in_buckets: bool) -> None:
    for rank, (given, expected, said) in enumerate(
        run_job(2, "own_gradients_work:own_gradients", in_buckets)
    ):
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


def test_collectives_are_measured_by_operation_while_a_step_is_and_are_torchs_own_after_it() -> None:
    for given, plain, restored in run_job(2, "own_gradients_work:communicated"):
        assert restored
        assert given.keys() == plain.keys()
        for name, row in given.items():
            assert row == pytest.approx(plain[name], rel=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
def test_a_sharded_models_own_gradients_are_whole(parts: int) -> None:
    for given, expected, said in run_job(2, "own_gradients_work:sharded", parts, False):
        assert not said
        assert given.keys() == expected.keys()
        for name, row in given.items():
            assert row == pytest.approx(expected[name], rel=1e-5, abs=1e-9)


def test_gradients_that_are_reduced_after_each_micro_batch_are_left_out_in_words() -> None:
    for given, _, said in run_job(2, "own_gradients_work:sharded", 2, True):
        assert given == {}
        assert "set_requires_gradient_sync(False)" in said


def test_a_wrong_scale_of_sharded_gradients_is_named_in_its_step_and_nothing_else() -> None:
    (losses, alarms), _ = run_job(2, "own_gradients_work:sharded_alarms", 12)
    assert (12, "reduction") in {(step, rule) for step, rule, _ in alarms}
    assert {step for step, *_ in alarms} <= {12, 13, 14}
    (sentence,) = {text for step, rule, text in alarms if (step, rule) == (12, "reduction")}
    assert sentence.startswith(
        "The reduced gradients are 0.5 times the mean of what the ranks gave, and should be 1 times"
    )
    plain = run_job(2, "own_gradients_work:sharded_alarms", 0)
    assert losses[:12] == plain[0][0][:12]


def test_megatrons_own_gradients_are_what_is_reduced() -> None:
    ranks = run_job(2, "own_gradients_work:sharded_by_megatron")
    for step in (0, 1):
        first, second = (rank[step] for rank in ranks)
        own = [first["grad_unreduced"], second["grad_unreduced"]]
        assert own[0].keys() == own[1].keys()
        pieces = [first.get("grad", {}), second.get("grad", {})]
        for name, row in own[0].items():
            count = row[0]
            parts = [piece[name] for piece in pieces if name in piece]
            assert sum(part[0] for part in parts) == count
            total = sum(part[0] * part[1] for part in parts)
            expected = (row[1] + own[1][name][1]) / 2 * count
            # Values of about one size are added up, and cancel.
            size = (row[2] / count + row[1] ** 2) ** 0.5
            assert total == pytest.approx(expected, abs=1e-5 * size * count), name
