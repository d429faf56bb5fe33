"""What each process of a Megatron-Core test does."""

from __future__ import annotations

from megatron_job import MegatronJob
from shape import STEPS, Shape

__all__ = ["train"]


def train(rank: int, shape: Shape) -> list[float | None]:
    """Train without Megalens; the losses of this rank's micro-batches, step by step."""
    job = MegatronJob(shape)
    return [job.train(step) for step in range(1, STEPS + 1)]
