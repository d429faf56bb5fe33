"""Megatron-Core's training, perturbed."""

from __future__ import annotations

from megatron_job import MegatronJob
from perturbing import Perturbing
from shape import STEPS, Shape
from torch import Tensor

from megalens.adapters import MegatronAdapter

__all__ = ["train"]


def train(rank: int, shape: Shape, *all_sites: dict) -> list[list[float | None]]:
    """Train once with each of ``all_sites`` perturbed, every micro-batch alike; the losses of this rank."""
    return [_train(shape, sites) for sites in all_sites]


def _train(shape: Shape, sites: dict) -> list[float | None]:
    job = MegatronJob(shape)
    losses: list[float | None] = []
    for step in range(1, STEPS + 1):
        with Perturbing(job.chunks[0], sites, points=MegatronAdapter().points(job.chunks)) as on:
            before = _parameters(job)
            losses.append(job.train(step))
            assert all((a != b).any() for a, b in zip(before, _parameters(job), strict=True))
            assert on.installed.errors == 0
            # A stage may hold none of the layers, and an expert may see no token.
            assert shape.experts or on.installed.unfired() == []
            assert bool(on.installed.calls) == bool(sites)
    job.close()
    return losses


def _parameters(job: MegatronJob) -> list[Tensor]:
    """Copies of the weights that are perturbed; all of them learn. (Experts do where they see tokens.)"""
    names = ("linear_qkv.weight", "linear_proj.weight", "linear_fc1.weight", "linear_fc2.weight")
    return [
        parameter.detach().clone()
        for chunk in job.chunks
        for name, parameter in chunk.named_parameters()
        if name.endswith(names) and "experts" not in name
    ]
