"""Megatron-Core's GPT really trains in several processes, and what is traced is what one process has."""

from __future__ import annotations

import functools

import pytest
from processes import run_job
from shape import LAYOUTS, Shape

pytestmark = pytest.mark.slow


@functools.cache
def alone(shape: Shape) -> tuple[dict, list[float]]:
    """What one process has, and its losses."""
    return run_job(1, "megatron_reference:reference", shape.alone())[0]


def same_losses(losses: list[list[float | None]], shape: Shape) -> None:
    """The mean over the replicas is the loss of one process, to four digits, and it falls."""
    last = [of_rank for of_rank in losses if of_rank[0] is not None]
    assert len(last) == shape.tp * shape.dp
    means = [sum(of_step) / len(last) for of_step in zip(*last, strict=True)]
    assert means == pytest.approx(alone(shape.alone())[1], rel=1e-4)
    assert means[-1] < means[0]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_trains_as_one_process_does(layout: str) -> None:
    shape = LAYOUTS[layout]
    same_losses(run_job(shape.processes, "megatron_work:train", shape), shape)
