"""Megatron-Core's GPT trains perturbed in several processes as it does in one."""

import functools

import pytest
from perturbing import site
from processes import run_job
from shape import LAYOUTS, Shape

pytestmark = pytest.mark.slow

WEIGHT = {"weight": site("offset", coefficient=0.1)}
NOISE = {
    **WEIGHT,
    "calculation": site("noise1", coefficient=0.2),
    "system": site("noise2", "1-3", coefficient=0.2),
}
# The same in every piece, where the processes see pieces of a sequence, or different samples.
OFFSETS = {
    **WEIGHT,
    "calculation": site("offset", coefficient=0.2),
    "system": site("offset", "1-3", coefficient=0.2),
}
CASES = {
    "tensor and pipeline parallel": NOISE,
    "pipeline, interleaved": NOISE,
    "full recompute, four processes": OFFSETS,
    "experts on two ranks": OFFSETS,
}


@functools.cache
def alone(shape: Shape) -> list[list[float]]:
    """Losses of one process without perturbation, with noise, with offsets."""
    return run_job(1, "perturb_megatron:train", shape, {}, NOISE, OFFSETS)[0]


@pytest.mark.parametrize("layout", CASES)
def test_a_layout_is_perturbed_as_one_process_is(layout: str) -> None:
    shape, sites = LAYOUTS[layout], CASES[layout]
    ranks = [losses for (losses,) in run_job(shape.processes, "perturb_megatron:train", shape, sites)]
    last = [losses for losses in ranks if losses[0] is not None]
    assert len(last) == shape.tp * shape.dp
    means = [sum(of_step) / len(last) for of_step in zip(*last, strict=True)]
    clean, noisy, moved = alone(shape.alone())
    # The second loss is that of weights which the first step's gradients have changed.
    assert means == pytest.approx(noisy if sites is NOISE else moved, rel=1e-4)
    assert all(abs(a - b) > 1e-2 for a, b in zip(means, clean, strict=True))
