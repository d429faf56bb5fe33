"""The arithmetic of the compressors, on a traced tensor ``[samples, ..., features]``.

Host memory for the rows of a step, reused step after step.
"""

from __future__ import annotations

import math
import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from ...protocol import Compressor, Empty, Histogram, NoOp, Peaks, Projection, Tile
from ...protocol.settings import LOG_LEAST, LOG_OCTAVES
from ..moments.native.library import MOST_PARTS, Item, NativeKernel, Plane, load
from ..points import FLAGS, FlagPoints
from .reductions import Reduction, parse_reduction

_KEPT = 3
_KEPT_BYTES = 32 << 20
"""More of the small stages stay in the pool: several steps may be sent together."""


def slices_of(shapes: Sequence[tuple[int, ...]]) -> list[slice]:
    """Return the slices of arrays of some shapes that lie one after another."""
    ends = list(accumulate(map(math.prod, shapes)))
    return [slice(begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


class Stage:
    """Float32 memory that the rows of one batch lie in, one after another.

    Fresh memory in every step would cost a page fault each 4 kB, and would change how the allocator lays out
    the training's own tensors.
    """

    __slots__ = ("_address", "_array", "_pool", "_used", "wanted")

    def __init__(self, size: int, pool: StagePool | None = None) -> None:
        self._pool = pool
        self._array = np.empty(size, np.float32)
        self._address: int = self._array.ctypes.data
        self._used = 0
        self.wanted = 0
        """How many numbers were asked for since the last :meth:`clear`."""

    @property
    def size(self) -> int:
        return len(self._array)

    def allocate(self, count: int) -> tuple[np.ndarray, int]:
        """Return an uninitialised float32 array and its address; outside of this stage where that is full."""
        begin, end = self._used, self._used + count
        self.wanted += count
        if end > len(self._array):
            own = np.empty(count, np.float32)
            return own, own.ctypes.data
        self._used = end
        return self._array[begin:end], self._address + 4 * begin

    def copy(self, values: np.ndarray) -> np.ndarray:
        copied = self.allocate(values.size)[0].reshape(values.shape)
        copied[...] = values
        return copied

    def filled(self) -> np.ndarray | None:
        """Return everything that was allocated as one flat array; None where some of it did not fit."""
        return self._array[: self._used] if self._used == self.wanted else None

    def clear(self) -> None:
        self._used = self.wanted = 0

    def give_back(self) -> None:
        """Return it to its pool; nothing may look at its memory any more."""
        if self._pool is not None:
            self._pool.give(self)


class StagePool:
    """Stages that the training thread takes and the producer thread gives back."""

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Stage] = queue.SimpleQueue()
        # Written by the thread that gives back, read by the other; an older figure only costs a larger or
        # smaller stage.
        self._wanted = 0

    def take(self) -> Stage:
        """Return an unused stage, as large as the last batches asked for."""
        wanted = self._wanted
        while True:
            try:
                stage = self._free.get_nowait()
            except queue.Empty:
                return Stage(wanted, self)
            if wanted <= stage.size <= 2 * wanted:
                return stage

    def give(self, stage: Stage) -> None:
        if stage.wanted:
            self._wanted = stage.wanted
        stage.clear()
        if self._free.qsize() < max(_KEPT, _KEPT_BYTES // max(1, 4 * stage.size)):
            self._free.put(stage)


Kernel = Callable[[Tensor, int], Tensor]
"""Takes a detached tensor ``[samples, ..., features]`` and its layer; gives a new float32 tensor that shares
no memory with it.
"""

_MOST_TILES = 96
_FEWEST_TILES = 24


def suited_compressor(flag: str, here: FlagPoints | None) -> Compressor:
    """Return what a flag is traced with where nobody chose a compressor.

    Attention probabilities keep their peaks: what one looks for in them is where something attends, and a
    mean over keys hides it. Tiles are as many as divide the width of every part, so that all are of one size:
    64 of 128, 512 or 4096 features, 96 of 768. Where no number from 24 to 96 does, or the width is not known,
    they are at most 96. Of values of both signs each tile gives the root mean square: their mean is near 0
    whatever they are. An unknown flag is a tensor like most.
    """
    kind = FLAGS.get(flag)
    if kind is not None and kind.exact:
        return NoOp()
    if kind is not None and kind.attends:
        return Peaks()
    widths = here.widths if here is not None else None
    common = math.gcd(*widths) if widths else 0
    dividing = [tiles for tiles in range(_FEWEST_TILES, _MOST_TILES + 1) if common and common % tiles == 0]
    tiles = max(dividing, default=_MOST_TILES)
    return Tile(tiles, "rms" if kind is None or kind.signed else "mean")


_SQUARES = {
    form.format(name): name == "rms"
    for name in ("mean", "rms")
    for form in ("{}", "{}()", "{}(data)", "data.{}()", "data.{}(-1)", "data.{}(dim=-1)")
}
"""Reductions that the native library computes, without spaces, and whether they are of squares."""


def make_kernel(compressor: Compressor, vectors: Tensor | None = None, field: str = "compressor") -> Kernel:
    """Return the arithmetic of one compressor.

    A :class:`Projection` needs unit ``vectors`` ``[layers, vectors, features]``; ``field`` is the dotted path
    that an error names. Raises ``ProtocolError`` (``bad-reduction``) when a tile's reduction cannot be read.
    """
    if isinstance(compressor, Tile):
        reduction = parse_reduction(compressor.reduction, f"{field}.params.reduction")
        squares = native_squares(compressor)
        kernel = _tile(compressor.tiles, reduction, bool(squares))
        return kernel if squares is None else NativeTiles(compressor.tiles, squares, kernel)
    if isinstance(compressor, Projection):
        assert vectors is not None
        return projection_kernel(vectors)
    if isinstance(compressor, Peaks):
        return _peaks(compressor)
    if isinstance(compressor, Histogram):
        return _histogram(compressor)
    return _empty if isinstance(compressor, Empty) else copy_values


def native_squares(compressor: Tile) -> bool | None:
    """Return whether tiles are root mean squares; None where they are neither those nor means."""
    return _SQUARES.get(compressor.reduction.replace(" ", ""))


def _tile(tiles: int, reduction: Reduction, squares: bool) -> Kernel:
    def kernel(data: Tensor, layer: int) -> Tensor:
        features = data.shape[-1]
        width = -(-features // tiles)
        # The root of a single square is the value without its sign, which one would take for the value.
        if features == 0 or (squares and width == 1):
            return copy_values(data, layer)
        data = data.float()
        full, rest = divmod(features, width)
        if rest == 0:
            return reduction(torch.unflatten(data, -1, (full, width)))
        # The last tile is shorter: it is reduced by itself, so that no padding enters.
        head = reduction(torch.unflatten(data.narrow(-1, 0, full * width), -1, (full, width)))
        tail = reduction(data.narrow(-1, full * width, rest).unsqueeze(-2))
        return torch.cat((head, tail), -1)

    return kernel


class NativeTiles:
    """Means, or root mean squares, of tiles by the native library, for all parts of a tensor in one call.

    Several times as fast as torch on the CPU. ``otherwise`` is the same arithmetic for what the library
    cannot read.
    """

    def __init__(self, tiles: int, squares: bool, otherwise: Kernel) -> None:
        self.tiles, self.squares = tiles, squares
        self._otherwise = otherwise

    def __call__(self, data: Tensor, layer: int) -> Tensor:
        plan = plan_of([self], [data], data.ndim)
        if plan is None:
            return self._otherwise(data, layer)
        return torch.from_numpy(plan.tiles(Stage(0))[0].reshape(plan.shapes[0]))


@dataclass(frozen=True, slots=True)
class TilePlan:
    """How the tiles of a tensor are made, and of others of the same layout.

    Attributes
    ----------
    squares : bool
        Whether a tile is the root of its mean square instead of its mean.
    planes : list of tuple
        Memory of the parts, and the widths of their tiles.
    shapes : list of tuple
        Of the tiles of each part: ``[samples, ..., tiles]``.
    """

    library: NativeKernel
    dtype: torch.dtype
    squares: bool
    planes: list[Plane]
    shapes: list[tuple[int, ...]]

    def tiles(self, stage: Stage) -> list[np.ndarray]:
        """Return the tiles of each part, float32 in one row, in memory of ``stage``."""
        slices = slices_of(self.shapes)
        made, where = stage.allocate(slices[-1].stop)
        origin = self.planes[0][0]
        self.library.read(self.reading(origin), origin, where, 0)
        return [made[part] for part in slices]

    def reading(self, origin: int, items: Sequence[Item] = ()) -> bytes:
        """Return how a tensor of this layout that begins at ``origin`` is read, and ``items`` measured."""
        return self.library.reading(origin, self.dtype, self.planes, self.squares, items)


def plan_of(kernels: Sequence[Kernel], parts: Sequence[Tensor], axes: int) -> TilePlan | None:
    """Return how the tiles of all parts of a tensor are made in one call; None where the library cannot.

    The parts are ``[samples, ..., features]``, or ``[samples, ..., groups, features of a group]``; the tensor
    itself has ``axes`` axes.
    """
    library = load()
    native = [kernel for kernel in kernels if isinstance(kernel, NativeTiles)]
    alike = len({kernel.squares for kernel in native}) == 1
    if isinstance(library, str) or not alike or len(native) < len(kernels) or len(parts) > MOST_PARTS:
        return None
    planes: list[Plane] = []
    shapes: list[tuple[int, ...]] = []
    single = 0
    for kernel, part in zip(native, parts, strict=True):
        features = math.prod(part.shape[axes - 1 :])
        width = -(-features // kernel.tiles)
        single += width == 1
        before = sum(map(math.prod, shapes))
        plane = library.plane(part, width, before, in_groups=part.ndim > axes) if features else None
        if plane is None:
            return None
        planes.append(plane)
        shapes.append((*part.shape[: axes - 1], -(-features // width)))
    squares = native[0].squares
    if squares and 0 < single < len(parts):
        return None
    # The mean of one feature is its value, with its sign.
    return TilePlan(library, parts[0].dtype, squares and not single, planes, shapes)


def projection_kernel(vectors: Tensor) -> Kernel:
    on_device: dict[torch.device, Tensor] = {}

    def kernel(data: Tensor, layer: int) -> Tensor:
        here = on_device.get(data.device)
        if here is None:
            here = on_device[data.device] = vectors.to(data.device)
        # Under autocast the product would be computed in half precision.
        with torch.autocast(data.device.type, enabled=False):
            return data.float() @ here[layer].T

    return kernel


def _peaks(peaks: Peaks) -> Kernel:
    def kernel(data: Tensor, layer: int) -> Tensor:
        down, across = (peaks.side(size) for size in data.shape[-2:])
        if down == across == 1:
            return copy_values(data, layer)
        return block_maxima(data, down, across)

    return kernel


def block_maxima(data: Tensor, down: int, across: int) -> Tensor:
    """Return the largest value of each block of so many queries and keys, float32."""
    # Rows lie behind one another in memory, so that their maxima come first.
    return _maxima(_maxima(data, -2, down), -1, across).to(torch.float32)


def _maxima(data: Tensor, axis: int, side: int) -> Tensor:
    if side == 1:
        return data
    full, rest = divmod(data.shape[axis], side)
    blocks = torch.unflatten(data.narrow(axis, 0, full * side), axis, (full, side)).amax(axis)
    if rest == 0:
        return blocks
    return torch.cat((blocks, data.narrow(axis, full * side, rest).amax(axis, keepdim=True)), axis)


_LOG_BASE, _LOG_SPAN = (127 + LOG_LEAST) << 23, LOG_OCTAVES << 23
_INFINITE = 0x7F800000


def _histogram(histogram: Histogram) -> Kernel:
    """Return counts ``[samples, tiles, 2 bins + 1]``; the same whoever counts.

    The bits of a float32 are its size on a scale that is logarithmic from octave to octave and linear within
    one, so that whole numbers alone decide about a logarithmic bin.
    """
    bins = histogram.bins
    # As the library multiplies: in float32.
    scale = None if histogram.log else float(np.float32(bins / histogram.limit))

    def kernel(data: Tensor, layer: int) -> Tensor:
        features, samples = data.shape[-1], data.shape[0]
        width = max(1, -(-features // histogram.tiles))
        library = load()
        if data.is_cpu and not isinstance(library, str):
            found = library.count(data, width, bins, scale)
            if found is not None:
                return torch.from_numpy(found.astype(np.float32))
        values = data.float()
        bits = values.contiguous().view(torch.int32)
        size = bits & 0x7FFFFFFF
        if scale is None:
            within = (size - _LOG_BASE).clamp(max=_LOG_SPAN - 1)
            at = torch.where(size < _LOG_BASE, 0, ((within >> 9) * bins >> 20) + 1)
        else:
            scaled = (values.abs() * scale).nan_to_num(0.0).clamp(max=bins - 1)
            at = torch.where(size == 0, 0, scaled.to(torch.int32) + 1)
        tiles = -(-features // width)
        apart = 2 * bins + 2
        at = torch.where(size >= _INFINITE, 2 * bins + 1, torch.where(bits < 0, bins - at, bins + at))
        tile = torch.arange(features, device=data.device) // width
        sample = torch.arange(samples, device=data.device).view(-1, *[1] * (data.ndim - 1))
        places = ((sample * tiles + tile) * apart + at).reshape(-1)
        # Unlike bincount it asks the device for nothing.
        counts = torch.zeros(samples * tiles * apart, dtype=torch.int32, device=data.device)
        counts.scatter_add_(0, places, torch.ones_like(counts[:1]).expand(len(places)))
        return counts.view(samples, tiles, apart)[..., :-1].float()

    return kernel


def copy_values(data: Tensor, layer: int) -> Tensor:
    return data.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _empty(data: Tensor, layer: int) -> Tensor:
    return torch.empty((*data.shape[:-1], 0), dtype=torch.float32)
