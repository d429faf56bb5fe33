"""How much of a tensor its compressor loses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import torch
from torch import Tensor

from ...protocol import Compressor, Empty, Histogram, NoOp, Peaks, Projection, Tile
from .compressors import native_squares

_CHUNK = 1 << 22
_MOST_WORK = 1 << 33
"""Of the bases of a projection, in multiplications: some seconds."""
_CENTRES = re.compile(
    r"(mean|median|sum)(\((data)?(,?(dim=)?-1)?\))?|data\.(mean|median|sum)\(((dim=)?-1)?\)"
)

_Rebuild = Callable[[Tensor, Tensor], Tensor]


class CompressionError:
    """Relative root-mean-square error of a compressor: ``‖x − x̂‖ / ‖x‖``, over all values of one tensor.

    ``x̂`` is what the stored values say of ``x``:

    - ``NoOp``: themselves. The error is the rounding to float32: 0 for half precision, about 3e-8 for
    float64. - ``Tile`` by ``mean``, ``median`` or ``sum``: each tile's centre (a sum is divided by the tile's
    width),
      repeated over its features. The mean is the best that one number for a tile can do, because it minimises
      the sum of squares.
    - ``Tile`` by anything else: NaN. A maximum, a deviation or a root mean square describes a tile; no tensor
      is rebuilt from it.
    - ``Peaks``: each block's largest value, at all of its queries and keys. It is what a picture of blocks
      shows, an upper bound everywhere: 0 where the blocks are single positions, and above 1 where few of many
      values are large.
    - ``Projection``: the orthogonal projection on what the vectors span. With an orthonormal basis ``Q`` of
      the span it is ``x Qᵀ Q``, and the error is the part of ``x`` outside (Golub and Van Loan, *Matrix
      Computations*, 4th ed. 2013, section 2.5.1). NaN for more vectors than their bases can be made of in
      some seconds.
    - ``Histogram``: NaN. Which value was where is not kept.
    - ``Empty``: zeros; the error is 1.

    Only positions count where both ``x`` and ``x̂`` are finite: a NaN takes its tile along, which is seen as
    NaN there, and a projected position as a whole. The error of zeros is 0, also of no values at all; where
    no position is finite it is NaN.

    The arithmetic is float64 (float32 on a device that has no float64), scaled by the largest value so that
    squares neither overflow nor vanish, over at most 4 Mi values at a time. Nothing waits for the device.

    A :class:`Projection` needs its ``vectors`` ``[layers, vectors, features]``; their bases are made here,
    once.
    """

    def __init__(self, compressor: Compressor, vectors: Tensor | None = None) -> None:
        self._compressor = compressor
        self._bases: dict[torch.device, list[Tensor]] = {}
        self._factors: list[Tensor] = []
        if isinstance(compressor, Projection):
            if vectors is None:
                raise ValueError("The error of a projection needs its vectors.")
            if vectors.numel() * min(vectors.shape[1:]) > _MOST_WORK:
                return
            both = [_basis(layer.double().cpu()) for layer in vectors]
            self._bases[torch.device("cpu")] = [basis for basis, _ in both]
            self._factors = [factor for _, factor in both]

    @torch.no_grad()
    def squares(self, data: Tensor, stored: Tensor | None, layer: int = 0) -> Tensor:
        """Return what adds up over the pieces of a tensor, ``[3]`` of the type of an error.

        These are ``‖x − x̂‖²``, ``‖x‖²`` and the number of positions.

        Parameters
        ----------
        data : torch.Tensor
            A piece ``[..., features]``.
        stored : torch.Tensor or None
            What the compressor made of this piece alone; None where only ``‖x‖²`` can be known.
        layer : int
            Counted from 0.
        """
        wide = torch.float32 if data.device.type == "mps" else torch.float64
        with torch.autocast(data.device.type, enabled=False):
            if data.numel() == 0:
                return torch.zeros(3, dtype=wide, device=data.device)
            stored = stored if stored is None else self._by_row(data, stored.detach())
            data = data.detach().reshape(-1, data.shape[-1])
            rebuild: _Rebuild | None = (
                (lambda x, _: x) if stored is None else self._rebuild(data, layer, wide)
            )
            if rebuild is None:
                return torch.full((3,), torch.nan, dtype=wide, device=data.device)
            small = data if stored is None else stored.reshape(len(data), -1)
            lost, total, counted, scale = _sums(data, small, rebuild, wide)
            nothing = torch.full_like(lost, torch.nan)
            positions = torch.full_like(lost, float(len(data)))
            return torch.stack(
                (torch.where(counted > 0, lost * scale**2, nothing), total * scale**2, positions)
            )

    def fitted(self, stored: Tensor, layer: int = 0) -> float:
        """Return ``‖x̂‖²`` from the stored products ``[..., vectors]`` of a :class:`Projection` alone."""
        if not self._factors:
            return math.nan
        here = self._factors[layer]
        return float((stored.reshape(-1, stored.shape[-1]).double() @ here).square().sum())

    @torch.no_grad()
    def __call__(self, data: Tensor, stored: Tensor, layer: int = 0) -> Tensor:
        """Return the error, 0-d float64 (float32 where the device has no float64) on the device of ``data``.

        Parameters
        ----------
        data : torch.Tensor
            ``[..., features]`` of any type, as it was given to the compressor.
        stored : torch.Tensor
            What the compressor made of it.
        layer : int
            Counted from 0; chooses the vectors of a projection.
        """
        wide = torch.float32 if data.device.type == "mps" else torch.float64
        with torch.autocast(data.device.type, enabled=False):
            if data.numel() == 0:
                return torch.zeros((), dtype=wide, device=data.device)
            data, stored = data.detach(), self._by_row(data, stored.detach())
            data = data.reshape(1, 1) if data.ndim == 0 else data.reshape(-1, data.shape[-1])
            rebuild = self._rebuild(data, layer, wide)
            if rebuild is None:
                return torch.full((), torch.nan, dtype=wide, device=data.device)
            return _relative(data, stored.reshape(len(data), -1), rebuild, wide)

    def _by_row(self, data: Tensor, stored: Tensor) -> Tensor:
        """Return what is stored with a row for each row of ``data``: blocks have several."""
        if not isinstance(self._compressor, Peaks):
            return stored
        # Of a part of the rows, too: the stored values show how they were cut.
        side = Peaks(stored.shape[-2]).side(data.shape[-2])
        return stored.repeat_interleave(side, -2)[..., : data.shape[-2], :]

    def _rebuild(self, data: Tensor, layer: int, wide: torch.dtype) -> _Rebuild | None:
        compressor, features = self._compressor, data.shape[-1]
        if isinstance(compressor, NoOp):
            return lambda x, stored: stored
        if isinstance(compressor, Empty):
            return lambda x, stored: torch.zeros_like(x)
        if isinstance(compressor, Projection):
            if not self._bases:
                return None
            basis = self._on(data.device, layer, wide)
            return lambda x, stored: (x @ basis.T) @ basis
        if isinstance(compressor, Peaks):
            side = compressor.side(features)
            return lambda x, stored: stored.repeat_interleave(side, -1)[:, :features]
        if isinstance(compressor, Histogram):
            return None
        assert isinstance(compressor, Tile)
        width = -(-features // compressor.tiles)
        if width == 1 and native_squares(compressor):
            return lambda x, stored: stored
        found = _CENTRES.fullmatch(compressor.reduction.replace(" ", ""))
        if found is None:
            return None
        widths: Tensor | None = None
        if "sum" in found.groups():
            widths = torch.full((-(-features // width),), width, dtype=wide)
            widths[-1] = features - width * (len(widths) - 1)
            widths = widths.to(data.device, non_blocking=True)

        def repeated(x: Tensor, stored: Tensor) -> Tensor:
            centres = stored if widths is None else stored / widths
            return centres.repeat_interleave(width, -1)[:, :features]

        return repeated

    def _on(self, device: torch.device, layer: int, wide: torch.dtype) -> Tensor:
        bases = self._bases.get(device)
        if bases is None:
            here = self._bases[torch.device("cpu")]
            bases = self._bases[device] = [basis.to(wide).to(device) for basis in here]
        return bases[layer]


def _relative(data: Tensor, stored: Tensor, rebuild: _Rebuild, wide: torch.dtype) -> Tensor:
    lost, total, counted, _ = _sums(data, stored, rebuild, wide)
    error = torch.where(total > 0, (lost / total).sqrt(), lost.sqrt())
    return torch.where(counted > 0, error, torch.full_like(error, torch.nan))


def _sums(
    data: Tensor, stored: Tensor, rebuild: _Rebuild, wide: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return ``‖x − x̂‖²`` and ``‖x‖²`` over ``scale²``, the number of finite positions, and ``scale``."""
    rows = max(1, _CHUNK // max(1, data.shape[-1]))
    pairs = list(zip(torch.split(data, rows), torch.split(stored, rows), strict=True))
    zero = torch.zeros((), dtype=wide, device=data.device)
    largest = zero
    for piece, _ in pairs:
        x = piece.to(wide)
        largest = torch.maximum(largest, torch.where(x.isfinite(), x, zero).abs().amax())
    scale = torch.where(largest > 0, largest, torch.ones_like(largest))
    lost, total, counted = zero, zero, zero
    for piece, few in pairs:
        x, small = piece.to(wide) / scale, few.to(wide) / scale
        rebuilt = rebuild(x, small)
        both = x.isfinite() & rebuilt.isfinite()
        lost = lost + torch.where(both, x - rebuilt, zero).square().sum()
        total = total + torch.where(both, x, zero).square().sum()
        counted = counted + both.any()
    return lost, total, counted, scale


def _basis(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return orthonormal rows that span the rows of ``vectors``, and the matrix from products to coordinates.

    There are none where all vectors are zero.
    """
    columns, sizes, rows = torch.linalg.svd(vectors, full_matrices=False)
    # The usual tolerance of a numerical rank; vectors came as float32.
    tolerance = max(vectors.shape) * torch.finfo(torch.float32).eps * sizes.max()
    enough = sizes > tolerance
    return rows[enough], columns[:, enough] / sizes[enough]
