"""One sample (and head) of a traced tensor as a picture sees it: the twin of ``src/views/matrix.ts``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .describe import last_axis

__all__ = ["Axes", "axes_of", "slice_of"]


@dataclass(frozen=True)
class Axes:
    """How the axes of a row lie in the picture.

    Attributes
    ----------
    x, y : str
        Names of the horizontal and the vertical axis; ``y`` is empty where there is none.
    heads, samples : int
        How many there are to choose from.
    transposed : bool
        Whether the tensor's last axis runs down the picture instead of across.
    """

    x: str
    y: str
    heads: int
    samples: int
    transposed: bool


def axes_of(row: Mapping[str, Any], names: Sequence[str]) -> Axes:
    """Say how a row is laid out: positions run to the right; attention has queries downwards and keys to the right.

    Parameters
    ----------
    row : mapping
        One row of the stream ``tensors``.
    names : sequence of str
        Axis names of one sample from ``hello``, such as ``["position", "feature"]``.
    """
    sizes = list(row["shape"])[1:]
    last = last_axis(row["compressor"], names[-1] if names else "feature")
    kept = [*names[:-1], last][-max(1, len(sizes)) :]
    heads = int(np.prod(sizes[:-2], dtype=np.int64))
    samples = int(row["shape"][0]) if len(row["shape"]) else 1
    if len(sizes) < 2:
        return Axes(names[0] if names else last, "", heads, samples, False)
    first = kept[-2] if len(kept) > 1 else ""
    if first == "query":
        return Axes(last, first, heads, samples, False)
    return Axes(first, last, heads, samples, True)


def slice_of(row: Mapping[str, Any], axes: Axes, sample: int, head: int) -> npt.NDArray[np.float32]:
    """Cut one sample and head out of a row: ``[rows, columns]`` float32, row 0 at the top."""
    sizes = list(row["shape"])[1:]
    down, across = (1, sizes[0] if sizes else 1) if len(sizes) < 2 else (sizes[-2], sizes[-1])
    values = np.asarray(row["values"], dtype=np.float32)
    start = (min(sample, axes.samples - 1) * axes.heads + min(head, axes.heads - 1)) * down * across
    cut = values[start : start + down * across].reshape(down, across)
    return np.ascontiguousarray(cut.T if axes.transposed else cut)
