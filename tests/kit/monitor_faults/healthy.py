"""Healthy trainings, in which a monitor is to stay silent."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .models import Classifying, Dropping, Experts, Half, Tied
from .training import Training

__all__ = ["HEALTHY"]

HEALTHY: tuple[Callable[..., Training], ...] = (
    partial(Training, seed=1),
    partial(Training, seed=2, schedule="restart", rate=2e-3),
    partial(Training, seed=3, schedule="steps"),
    partial(Training, seed=4, schedule="constant", rate=5e-4),
    partial(Training, seed=5, sgd=True, rate=0.05),
    partial(Training, seed=6, layers=2, hidden=48),
    partial(Training, seed=7, betas=(0.9, 0.999), warmup=100),
    partial(Training, seed=8, batch=8),
    partial(Training, seed=9, clip=0.0, rate=5e-4),
    partial(Training, seed=10, hidden=24, clip=0.3),
    partial(Training, seed=11, parts=2),
    partial(Classifying, seed=12),
    partial(Classifying, seed=13, sgd=True, rate=0.05),
    partial(Experts, seed=14),
    partial(Half, seed=15),
    partial(Tied, seed=16),
    partial(Dropping, seed=17),
    partial(Training, seed=18, resumed=True),
)
