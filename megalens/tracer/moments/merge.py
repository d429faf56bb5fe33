"""Merging measured rows, on their device or on the host."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..errors import TracerError
from .native import library
from .part import COLUMNS


def merge_rows(rows: Tensor) -> Tensor:
    """Merge passes over the same tensors, exactly as if all their values had been measured at once.

    The twin of :func:`megalens.protocol.merge_moments` (Pébay 2008, SAND2008-6212, equations 3.1 for many
    sets at once), without a transfer to the host. Raises ``TracerError`` for another shape or type.

    Parameters
    ----------
    rows : Tensor
        float64, ``[k, n, 11]``: k passes (micro-batches) over n tensors, as :func:`measure` gives them.

    Returns
    -------
    Tensor
        float64, ``[n, 11]``, on the same device. Where all k rows have count 0: count 0, moments 0, NaN for
        mean, min and max.
    """
    if rows.dim() != 3 or rows.shape[-1] != COLUMNS or rows.dtype != torch.float64:
        raise TracerError(
            f"Expected rows as measure() gives them, float64 of shape [k, n, {COLUMNS}]; got {rows.dtype} "
            f"of shape {list(rows.shape)}. "
            "Stack the measured passes with torch.stack."
        )
    with torch.no_grad():
        n, mean, m2, m3, m4, low, high, *counts = rows.detach().unbind(-1)
        there = n > 0
        # What a row without data says of its values is nothing, whatever stands in it.
        n, mean, m2, m3, m4 = (torch.where(there, column, 0.0) for column in (n, mean, m2, m3, m4))
        count = n.sum(0)
        # Means are summed as distances from the first of them: equal values have no spread, not even by the
        # rounding of their mean.
        near = mean.gather(0, there.int().argmax(0, keepdim=True)).squeeze(0) if len(mean) else count
        near = torch.where(near.isfinite(), near, 0.0)
        middle = near + (n * (mean - near)).sum(0) / count
        none = count == 0
        low = _or_nan(torch.where(there, low, torch.inf), none, largest=False)
        high = _or_nan(torch.where(there, high, -torch.inf), none, largest=True)
        # A row that is its group's only one lies at no distance, also where the mean is not finite.
        d = torch.where(there & (mean != middle), mean - middle, 0.0)
        d2 = d * d
        merged = (
            count,
            middle,
            (m2 + n * d2).sum(0),
            (m3 + 3 * d * m2 + n * d2 * d).sum(0),
            (m4 + 4 * d * m3 + 6 * d2 * m2 + n * d2 * d2).sum(0),
            low,
            high,
            *(each.sum(0) for each in counts),
        )
        return torch.stack(merged, -1)


def merge_pieces(rows: np.ndarray) -> np.ndarray:
    """Merge what was found of pieces of tensors, on the host; as exact as :func:`merge_rows`, and faster.

    Parameters
    ----------
    rows : numpy.ndarray
        float64 ``[pieces, n, 11]``, contiguous. No value is in two pieces.

    Returns
    -------
    numpy.ndarray
        float64 ``[n, 11]``. Where a piece is unknown (its count is NaN), the first one's row.
    """
    native = library.load()
    if not isinstance(native, str):
        return native.merge(rows)
    merged = merge_rows(torch.from_numpy(rows)).numpy()
    return np.where(np.isnan(rows[:, :, :1]).any(0), rows[0], merged)


def _or_nan(values: Tensor, none: Tensor, *, largest: bool) -> Tensor:
    if not len(values):
        return torch.full_like(none, torch.nan, dtype=torch.float64)
    # amin and amax pass NaN on: what is not known of one row is not known of the group.
    found = values.amax(0) if largest else values.amin(0)
    return torch.where(none, torch.nan, found)
