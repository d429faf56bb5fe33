"""The arithmetic of the compressors: from a traced tensor ``[samples, ..., features]`` to what is kept of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..protocol import Compressor, Empty, Projection, Tile
from .reductions import Reduction, parse_reduction

__all__ = ["Kernel", "NarrowMean", "Room", "make_kernel"]

Kernel = Callable[[Tensor, int], Tensor]
"""Takes a detached tensor ``[samples, ..., features]`` and its layer; gives a new float32 tensor that shares no memory with it."""

Room = Callable[[tuple[int, ...], int], np.ndarray]
"""Takes a shape and its number of elements; gives uninitialised float32 memory of that shape."""

_NARROW = 8
_MEANS = ("mean", "mean()", "mean(data)", "data.mean()", "data.mean(-1)", "data.mean(dim=-1)")


def make_kernel(compressor: Compressor, vectors: Tensor | None = None, field: str = "compressor") -> Kernel:
    """Return the arithmetic of one compressor.

    Parameters
    ----------
    compressor : Compressor
        The parameters.
    vectors : torch.Tensor, optional
        Unit vectors ``[layers, vectors, features]`` of a :class:`Projection`.
    field : str
        Dotted path that an error names.

    Raises
    ------
    ProtocolError
        ``bad-reduction`` when a tile's reduction cannot be read.
    """
    if isinstance(compressor, Tile):
        kernel = _tile(compressor.tiles, parse_reduction(compressor.reduction, f"{field}.params.reduction"))
        plain = compressor.reduction.replace(" ", "") in _MEANS
        return NarrowMean(compressor.tiles, kernel) if plain else kernel
    if isinstance(compressor, Projection):
        assert vectors is not None
        return _project(vectors)
    return _empty if isinstance(compressor, Empty) else _copy


def _tile(tiles: int, reduction: Reduction) -> Kernel:
    def kernel(data: Tensor, layer: int) -> Tensor:
        data = data.float()
        features = data.shape[-1]
        width = -(-features // tiles)
        if features == 0:
            return data.clone()
        full, rest = divmod(features, width)
        if rest == 0:
            return reduction(torch.unflatten(data, -1, (full, width)))
        # The last tile is shorter: it is reduced by itself, so that no padding enters.
        head = reduction(torch.unflatten(data.narrow(-1, 0, full * width), -1, (full, width)))
        tail = reduction(data.narrow(-1, full * width, rest).unsqueeze(-2))
        return torch.cat((head, tail), -1)

    return kernel


class NarrowMean:
    """Averages tiles of few features on the CPU by adding strided slices, and everything else as any kernel does.

    Torch's mean over a last axis of 2 to 8 takes 3 to 8 times as long, most of it per output.

    Parameters
    ----------
    tiles : int
        At most this many tiles.
    otherwise : Kernel
        The same arithmetic for what is wide, in half precision or on a device.
    """

    def __init__(self, tiles: int, otherwise: Kernel) -> None:
        self._tiles = tiles
        self._otherwise = otherwise

    def __call__(self, data: Tensor, layer: int) -> Tensor:
        """Return the tiles of ``data``."""
        found = self.fast(data, None, _fresh)
        return self._otherwise(data, layer) if found is None else torch.from_numpy(found[0][0])

    def fast(self, data: Tensor, cuts: tuple[int, ...] | None, room: Room) -> tuple[np.ndarray, bool] | None:
        """Return the tiles of all parts of ``data`` and whether all are finite; None where this way does not serve.

        Parameters
        ----------
        data : torch.Tensor
            ``[samples, ..., features]``.
        cuts : tuple of int, optional
            Sizes of consecutive parts of the last axis; one part when absent. Parts of one size are averaged in one go.
        room : callable
            Gives the memory for the tiles.

        Returns
        -------
        tiles : numpy.ndarray
            float32 ``[parts, samples, ..., tiles]``.
        finite : bool
            Whether every value that went in is finite.
        """
        features = data.shape[-1]
        part = features if cuts is None else cuts[0]
        width = -(-part // self._tiles)
        if not 2 <= width <= _NARROW or data.dtype is not torch.float32 or data.device.type != "cpu":
            return None
        full, rest = divmod(part, width)
        if cuts is not None and (rest or any(cut != part for cut in cuts) or sum(cuts) != features):
            return None
        array = data.numpy()
        many = features // part
        lead = array.shape[:-1]
        tiles = full + (rest > 0)
        out = room((many, *lead, tiles), many * tiles * math.prod(lead))
        # Overflow and NaN are data here, nothing to warn about.
        with np.errstate(all="ignore"):
            if rest:
                _strided_mean(array[None, ..., : full * width], width, out[..., :full])
                _strided_mean(array[None, ..., full * width :], rest, out[..., full:])
            else:
                parts = np.moveaxis(array.reshape(*lead, many, part), -2, 0)
                _strided_mean(parts, width, out)
            finite = math.isfinite(np.add.reduce(out, axis=None))
        return out, finite


def _fresh(shape: tuple[int, ...], count: int) -> np.ndarray:
    return np.empty(shape, np.float32)


def _strided_mean(array: np.ndarray, width: int, out: np.ndarray) -> None:
    if width == 1:
        out[...] = array
        return
    np.add(array[..., 0::width], array[..., 1::width], out=out)
    for at in range(2, width):
        np.add(out, array[..., at::width], out=out)
    np.divide(out, np.float32(width), out=out)


def _project(vectors: Tensor) -> Kernel:
    on_device: dict[torch.device, Tensor] = {}

    def kernel(data: Tensor, layer: int) -> Tensor:
        here = on_device.get(data.device)
        if here is None:
            here = on_device[data.device] = vectors.to(data.device)
        # Under autocast the product would be computed in half precision.
        with torch.autocast(data.device.type, enabled=False):
            return data.float() @ here[layer - 1].T

    return kernel


def _copy(data: Tensor, layer: int) -> Tensor:
    return data.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _empty(data: Tensor, layer: int) -> Tensor:
    return torch.empty((*data.shape[:-1], 0), dtype=torch.float32)
