"""Vectors as points of a plane, as an inference hub draws them."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["plane"]

_Values = np.ndarray[Any, np.dtype[np.float32]]


def plane(vectors: _Values) -> _Values:
    """Return standardised vectors on their two principal axes.

    Parameters
    ----------
    vectors : numpy.ndarray
        float32 ``[n, features]``, one or more.

    Returns
    -------
    numpy.ndarray
        float32 ``[n, 2]``, 0 on an axis that they do not have. The largest weight of each axis is positive. NaN where a value is not finite.
    """
    points = np.zeros((len(vectors), 2), np.float32)
    if not np.isfinite(vectors).all():
        return np.full_like(points, np.nan)
    centred = vectors.astype(np.float64) - vectors.mean(axis=0, dtype=np.float64)
    deviation = centred.std(axis=0)
    # Of what is the same in all of them, rounding is all that deviates.
    constant = deviation <= 10 * np.finfo(np.float32).eps * np.abs(vectors).max(axis=0)
    centred[:, constant] = 0
    centred /= np.where(constant, 1, deviation)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=1)[:, None], axis=1)
    points[:, : len(axes)] = centred @ (axes * np.where(largest < 0, -1, 1)).T
    return points
