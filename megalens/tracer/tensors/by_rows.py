"""Attention probabilities that are computed some queries at a time when they are read: the whole would take
more memory than the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...protocol import Compressor, Histogram, Peaks
from ..coordinates import to_host
from ..moments import TYPES, measure, merge_pieces, merge_rows
from .compressors import Kernel, block_maxima
from .probes import Window

PIECE_BYTES = 8 << 20


class TensorByRows:
    """``[B, heads, queries, keys]``, of which ``compute(heads, queries)`` returns some heads and queries, in
    memory that its next call may take again.

    A layer of 32,768 positions and 32 heads would be 137 GB in float32.
    """

    ndim = 4

    def __init__(
        self,
        shape: tuple[int, int, int, int],
        dtype: torch.dtype,
        device: torch.device,
        compute: Callable[[slice, slice], Tensor],
    ) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self._compute = compute

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def like(self) -> Tensor:
        """Return a tensor of the same shape without memory."""
        return torch.empty(self.shape, dtype=self.dtype, device="meta")

    def whole(self) -> Tensor:
        return self._compute(slice(0, self.shape[1]), slice(0, self.shape[2])).clone()

    def rows_of(self, window: Window | None) -> tuple[Tensor, Window | None]:
        """Return the queries among which those of a window are, and where they are there."""
        if window is None:
            return self.whole(), None
        first, last = int(window.positions.min()), int(window.positions.max())
        rows = self._compute(slice(0, self.shape[1]), slice(first, last + 1)).clone()
        return rows, Window(window.positions - first, window.keys)

    def pieces(self, side: int) -> Iterator[Iterator[Tensor]]:
        """Give groups of heads, and of each blocks of ``side`` queries, in their order; the last has what is
        left.
        """
        batch, heads, queries, keys = self.shape
        row = batch * keys * self.dtype.itemsize
        together = max(1, min(heads, PIECE_BYTES // (row * side)))
        rows = side * max(1, PIECE_BYTES // (row * side * together))
        for head in range(0, heads, together):
            group = slice(head, min(heads, head + together))
            yield (
                self._compute(group, slice(first, min(queries, first + rows)))
                for first in range(0, queries, rows)
            )


def read_by_rows(
    data: TensorByRows, compressor: Compressor, kernel: Kernel, layer: int, samples: int | None
) -> tuple[Tensor, np.ndarray, tuple[Tensor, Tensor]]:
    """Compress a tensor and measure it; return what is stored, its moments, float64 ``[1, 11]``, and its
    first piece with what is stored of that.

    ``samples`` are compressed, all are measured.
    """
    down = across = 1
    if isinstance(compressor, Peaks):
        down, across = (compressor.side(size) for size in data.shape[-2:])
    stored: list[Tensor] = []
    moments: list[Tensor] = []
    first: Any = None
    for group in data.pieces(down):
        made: list[Tensor] = []
        for piece in group:
            chosen = piece if samples is None else piece[:samples]
            made.append(kernel(chosen, layer) if down == across == 1 else block_maxima(chosen, down, across))
            moments.append(measure([piece if piece.dtype in TYPES else piece.float()]))
            # The next piece may take its memory.
            first = first or (chosen.clone(), made[0])
        stored.append(_joined(made, compressor, -2))
    rows = torch.stack(moments)
    merged = to_host(merge_rows(rows)).numpy() if rows.is_cuda else merge_pieces(rows.numpy())
    return _joined(stored, compressor, 1), merged, first


def _joined(parts: list[Tensor], compressor: Compressor, axis: int) -> Tensor:
    if isinstance(compressor, Histogram):
        return torch.stack(parts).sum(0)
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)
