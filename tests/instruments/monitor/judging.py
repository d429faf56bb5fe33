"""Rows of statistics for tests of rules, made of values that are given."""

from __future__ import annotations

import numpy as np

from megalens.instruments.monitor.watch import Watch
from megalens.protocol import MOMENT_COLUMNS, Readings, StepReadings

NAMES = tuple(f"layers.{layer}.{what}.weight" for layer in range(4) for what in ("qkv", "fc1"))


def row(values) -> list[float]:
    """Return the moments of values, found by numpy."""
    values = np.asarray(values, np.float64).ravel()
    finite = values[np.isfinite(values)]
    mean = finite.mean() if len(finite) else np.nan
    moments = [((finite - mean) ** power).sum() for power in (2, 3, 4)]
    ends = (finite.min(), finite.max()) if len(finite) else (np.nan, np.nan)
    counts = {"nan_count": np.isnan(values).sum(), "inf_count": np.isinf(values).sum()}
    given = dict(zip(MOMENT_COLUMNS, (len(finite), mean, *moments, *ends), strict=False)) | counts
    return [float(given.get(name, np.nan)) for name in MOMENT_COLUMNS]


def tensors(rng, scale=1.0, names=NAMES, size=64):
    """Return a tensor for each name."""
    return {name: scale * rng.standard_normal(size) for name in names}


def readings(stat, of, rank=0, **more) -> Readings:
    """Return what a process measured of tensors by name."""
    return Readings(stat, rank, tuple(of), np.array([row(values) for values in of.values()]), **more)


def step(number, *given, **scalars) -> StepReadings:
    """Return a step."""
    return StepReadings(number, -1, given, scalars)


def judged(steps, settings=None, **more):
    """Return the serious alarms of steps, and what follows from them."""
    watch = Watch(settings, **more)
    found = [alarm for each in steps for alarm in watch.judge(each)]
    return [alarm for alarm in found if alarm.severity != "note" or alarm.follows]


def found(alarms):
    """Return what is compared: step, rule, stat, name and rank."""
    return [(alarm.step, alarm.rule, alarm.stat, alarm.name, alarm.rank) for alarm in alarms]
