"""What is done with one traced tensor of any flag: its piece, positions, moments and compression error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from ...protocol import Peaks
from ..coordinates import plain_tensor, to_host
from ..moments import TYPES, measure, measure_each
from ..points import Shards
from .batch import unknown_moments
from .pieces import Cut
from .probes import TensorProbe

_MEASURED_VALUES = 1 << 20


@dataclass(frozen=True, eq=False)
class Window:
    """Positions to take of every tensor of a pass, by sample.

    Attributes
    ----------
    positions : torch.Tensor
        int64 ``[B, n]``: the positions to report, in order.
    keys : torch.Tensor or None
        int64 ``[B, k]``: the keys to report of attention; all, as they are, when None.
    """

    positions: Tensor
    keys: Tensor | None = None

    def of(self, data: Tensor) -> Tensor:
        """Return ``[B, n, *]`` of ``[B, S, *]``; of attention probabilities ``[B, heads, n, k]``."""
        if data.ndim != 4:
            return data.take_along_dim(self.positions.view(*self.positions.shape, *[1] * (data.ndim - 2)), 1)
        data = data.take_along_dim(self.positions[:, None, :, None], 2)
        return data if self.keys is None else data.take_along_dim(self.keys[:, None, None, :], 3)


def local_piece(data: Tensor) -> tuple[Tensor, Shards | None]:
    """Return this rank's piece of a DTensor, and along what it is cut; any other tensor, and None."""
    placements = getattr(data, "placements", None)
    if placements is None:
        return plain_tensor(data), None
    axes = data.ndim
    local: Tensor = data.to_local()  # type: ignore[attr-defined]
    cut = [placement.dim % axes for placement in placements if placement.is_shard()]
    if not cut or cut == [0]:
        return local, "none"
    if cut[-1] == axes - 1:
        return local, "features"
    return local, "heads" if axes == 4 else "sequence"


def in_rows(tensor: Tensor, rows: tuple[int, int] | None, parts: tuple[str, ...] = ()) -> Tensor:
    """Return a tensor with the axes ``rows`` (batch, sequence) first, where its other axes hold as many.

    Of keys and values that latent attention makes of all it has cached, ``[B, 1, keys, *]``, those that are
    new.
    """
    if rows is not None and parts == ("k", "v") and tensor.ndim == 4:
        tensor = tensor[:, :, -rows[1] :]
    if rows is None or tensor.ndim == 3 or math.prod(tensor.shape[:-1]) != math.prod(rows):
        return tensor
    return tensor.reshape(*rows, tensor.shape[-1])


def shape_of(view: Tensor, axes: int) -> tuple[int, ...]:
    """Return the shape that a part has with so many axes, the groups of the last one together."""
    return (*view.shape[: axes - 1], math.prod(view.shape[axes - 1 :]))


def errors_of(
    probe: TensorProbe, parts: Sequence[Tensor], outputs: Sequence[Tensor], cuts: Sequence[Cut]
) -> list[Tensor]:
    """Return how much the compressor loses of each part; of a piece what adds up over the pieces."""
    return [
        _error_of(probe, *_head(part, output), cut)
        for part, output, cut in zip(parts, outputs, cuts, strict=True)
    ]


def _error_of(probe: TensorProbe, part: Tensor, output: Tensor, cut: Cut) -> Tensor:
    if cut.join is None:
        return probe.flag.error(part, output, probe.layer)
    if cut.error is None:
        return probe.flag.error.squares(part, None)
    return cut.error.squares(part, output, probe.layer)


def _head(part: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the head of a large tensor and of its stored values: measuring all would take seconds."""
    if part.numel() <= _MEASURED_VALUES or part.ndim < 3:
        return part, output
    count = max(1, _MEASURED_VALUES // part[0, 0].numel())
    part, output = part[:1, :count], output[:1, :count]
    if part.numel() <= _MEASURED_VALUES or part.ndim != 4:
        return part, output
    # Of one head some queries: complete blocks of them, where they are cut into blocks.
    side = Peaks(output.shape[2]).side(part.shape[2])
    blocks = max(1, _MEASURED_VALUES // (part.shape[3] * side))
    return part[:, :, : blocks * side], output[:, :, :blocks]


def moments_of_each(data: Tensor) -> np.ndarray:
    """Return :func:`moments_of` of ``data[0]``, ``data[1]`` and so on, on the CPU, in the calling thread."""
    if not data.is_floating_point():
        return unknown_moments(len(data))
    return measure_each(data if data.dtype in TYPES else data.float()).numpy()


def moments_of(parts: Sequence[Tensor]) -> np.ndarray:
    """Measure the parts of a tensor; float64 ``[parts, 11]`` as ``Row.moments``, perhaps still copying."""
    if not parts[0].is_floating_point():
        return unknown_moments(len(parts))
    rows = measure([part if part.dtype in TYPES else part.float() for part in parts])
    return (to_host(rows) if rows.is_cuda else rows).numpy()
