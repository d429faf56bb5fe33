"""TrainerMon's operations over a tensor, from its moments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

__all__ = ["together", "values_of"]


def values_of(row: Mapping[str, float], ops: Sequence[str], *, scalar: bool) -> dict[str, float]:
    """Return the operations of one tensor.

    Parameters
    ----------
    row : mapping
        Its moments, by the columns of the stream ``moments``. TrainerMon's operations are over all values: one that is not finite is in them.
    ops : sequence of str
        Which ones, in their order.
    scalar : bool
        Whether it has no dimensions: only then is there an ``id``.
    """
    count, nan, inf, negative = (
        row[name] for name in ("count", "nan_count", "inf_count", "negative_inf_count")
    )
    size = count + nan + inf
    mean, low, high = row["mean"], row["min"], row["max"]
    norm = math.sqrt(row["m2"] + count * mean * mean) if count else 0.0
    if inf:
        norm = math.inf
        mean = math.inf if not negative else -math.inf if negative == inf else math.nan
        low = -math.inf if negative else low if count else math.inf
        high = math.inf if negative < inf else high if count else -math.inf
    if nan or not size:
        norm, mean, low, high = (math.nan if nan else norm), math.nan, math.nan, math.nan
    found = {
        "norm": norm,
        "min": low,
        "max": high,
        "mean": mean,
        "zeros": row["near_zero_count"] / size if size else math.nan,
        "nans": int(nan),
        "id": mean if scalar else math.nan,
    }
    return {op: found[op] for op in ops}


_TOGETHER: Mapping[str, Callable[[Sequence[float]], np.generic]] = {
    "norm": np.sum,
    "min": np.min,
    "max": np.max,
    "zeros": np.mean,
    "nans": np.sum,
    "mean": np.mean,
}


def together(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the operations of a communication operation's calls in one step together: sums of ``norm`` and ``nans``, means of ``zeros`` and ``mean``, and no ``id``."""
    return {
        op: _TOGETHER[op]([each[op] for each in several]).item() if op in _TOGETHER else math.nan
        for op in several[0]
    }
