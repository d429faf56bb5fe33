"""Rules over ranks, against what data-parallel training does: a mean over ranks, copies that are the same to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from judging import NAMES, found, judged, readings, step, tensors

from megalens.protocol import RANK_SCALAR

N = NAMES[3]


def reduced(rng, ranks=4, scale=1.0, skipped=None):
    """Return what ranks have before and after the mean is taken."""
    before = [tensors(rng) for _ in range(ranks)]
    mean = {name: scale * np.mean([each[name] for each in before], axis=0) for name in NAMES}
    for rank, each in enumerate(before):
        yield readings("grad_unreduced", each, rank)
        yield readings("grad", each if rank == skipped else mean, rank, counted=rank == 0)


def test_ranks_that_reduce_their_gradients_are_healthy():
    rng = np.random.default_rng(0)
    assert judged(step(at, *reduced(rng)) for at in range(1, 60)) == []


def test_a_rank_that_left_out_the_reduction_is_named():
    rng = np.random.default_rng(0)
    steps = [step(at, *reduced(rng, skipped=2 if at == 10 else None)) for at in range(1, 11)]
    alarms = [alarm for alarm in judged(steps) if alarm.rule == "reduction"]
    assert {(alarm.step, alarm.rank) for alarm in alarms} == {(10, 2)}
    assert [alarm.severity for alarm in alarms] == ["critical"] + ["note"] * (len(alarms) - 1)
    assert {alarm.name for alarm in alarms} >= {*NAMES}


def test_a_reduction_by_another_scale_than_before_is_found():
    rng = np.random.default_rng(0)
    steps = [step(at, *reduced(rng, scale=1.0 if at < 10 else 4.0)) for at in range(1, 11)]
    alarms = [alarm for alarm in judged(steps) if alarm.rule == "reduction"]
    assert {alarm.step for alarm in alarms} == {10}
    assert {round(alarm.value, 6) for alarm in alarms} == {4.0}
    # A sum that is a sum from the start is how that program does it.
    summed = [step(at, *reduced(rng, scale=4.0)) for at in range(1, 10)]
    assert judged(summed) == []


def test_a_copy_that_differs_in_one_bit_is_found_on_its_rank():
    rng = np.random.default_rng(0)

    def replicas(odd):
        values = tensors(rng)
        for rank in range(4):
            here = {name: value.copy() for name, value in values.items()}
            if rank == odd:
                here[N][0] = np.nextafter(here[N][0], np.inf) + 1e-9
            yield readings("param", here, rank, counted=rank == 0)

    assert judged([step(1, *replicas(None)), step(2, *replicas(None))]) == []
    for odd in (0, 3):
        assert found(judged([step(1, *replicas(odd))])) == [(1, "replicas", "param", N, odd)]


def test_of_two_copies_the_one_that_is_not_counted_is_named():
    values = tensors(np.random.default_rng(0))
    other = {**values, N: values[N] + 1}
    given = (readings("param", values, 0), readings("param", other, 1, counted=False))
    assert found(judged([step(1, *given)])) == [(1, "replicas", "param", N, 1)]


@pytest.mark.parametrize(
    ("stat", "times", "named"),
    [("activation", 50, True), ("grad_unreduced", 3000, False), ("grad_unreduced", 1e5, True)],
)
def test_the_rank_that_is_off_from_the_others_is_named(stat, times, named):
    rng = np.random.default_rng(0)
    steps = []
    for at in range(1, 6):
        of = [tensors(rng) for _ in range(4)]
        if at == 5:
            of[2][N] = of[2][N] * times
        steps.append(step(at, *(readings(stat, each, rank) for rank, each in enumerate(of))))
    assert found(judged(steps)) == ([(5, "odd_rank", stat, N, 2)] if named else [])


def test_fewer_values_than_ever_are_a_missing_part_and_batches_of_all_sizes_are_not():
    rng = np.random.default_rng(0)
    sizes = [64] * 30 + [48]
    steps = [step(at, readings("activation", tensors(rng, size=size))) for at, size in enumerate(sizes, 1)]
    (alarm,) = judged(steps)
    assert (alarm.step, alarm.rule, alarm.value, alarm.expected) == (31, "missing", 48.0, 64.0)
    sizes = [int(size) for size in rng.integers(40, 65, 60)]
    steps = [step(at, readings("activation", tensors(rng, size=size))) for at, size in enumerate(sizes, 1)]
    assert judged(steps) == []


@pytest.mark.parametrize("lost", [np.nan, np.inf])
def test_values_that_are_not_finite_are_not_missing(lost):
    rng = np.random.default_rng(0)
    steps = [step(at, readings("activation", tensors(rng))) for at in range(1, 31)]
    spoilt = tensors(rng)
    spoilt[NAMES[2]][:48] = lost
    alarms = judged([*steps, step(31, readings("activation", spoilt))])
    assert {(alarm.rule, alarm.name) for alarm in alarms} == {("nonfinite", NAMES[2])}


def with_losses(rng, at, ranks, odd=None, times=1.0, harder=1.0):
    """Return a step with what each rank logged as its loss; rank 1's data may always be harder."""
    noise = 1 + 0.04 * rng.standard_normal(ranks)
    losses = (2 + 2 * 0.97**at) * noise * np.where(np.arange(ranks) == 1, harder, 1.0)
    losses[[] if odd is None else odd] *= times
    return step(at, *(readings(RANK_SCALAR, {"loss": [x]}, r, counted=False) for r, x in enumerate(losses)))


def test_a_rank_whose_loss_leaves_the_others_for_good_is_named():
    rng = np.random.default_rng(0)
    for odd, times in ((2, 1.4), (0, 0.7)):
        steps = [with_losses(rng, at, 4, odd if at >= 40 else None, times) for at in range(1, 50)]
        (alarm,) = judged(steps)
        assert (alarm.rule, alarm.rank, alarm.stat, alarm.name, alarm.direction) == ("odd_rank", odd, "scalar", "loss", "loss")  # fmt: skip
        assert 44 <= alarm.step <= 47
        assert alarm.value == pytest.approx(times * alarm.expected, rel=0.2)
        assert alarm.sentence.startswith(f"It is {alarm.value:.3g} on this rank and about {alarm.expected:.3g} on the others")  # fmt: skip


@pytest.mark.slow
def test_ranks_whose_losses_are_as_far_apart_as_ever_are_healthy():
    rng = np.random.default_rng(0)
    # Noise alone, over 256 ranks; and a rank whose data are harder than the others' from the start.
    assert judged(with_losses(rng, at, 256, harder=1.5) for at in range(1, 120)) == []
    # Of two nobody can say which one is odd.
    assert judged(with_losses(rng, at, 2, 1 if at > 40 else None, 2.0) for at in range(1, 60)) == []
