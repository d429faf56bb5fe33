"""The arithmetic of the compressors: from a traced tensor ``[samples, ..., features]`` to what is kept of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ....protocol import Compressor, Empty, Peaks, Projection, Tile
from ..staging import Stage
from .reductions import Reduction, parse_reduction

__all__ = ["Kernel", "NarrowMean", "copy_values", "make_kernel", "partial_projection"]

Kernel = Callable[[Tensor, int], Tensor]
"""Takes a detached tensor ``[samples, ..., features]`` and its layer; gives a new float32 tensor that shares no memory with it."""

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
    if isinstance(compressor, Peaks):
        return _peaks(compressor)
    return _empty if isinstance(compressor, Empty) else copy_values


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

    Torch's mean over a last axis of 2 to 8 takes 3 to 8 times as long, most of it per output. This way also needs nothing of torch, so that
    it can run in another thread than the training without waking torch's own threads there.

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
        if self.tiles_of(data, None) is None:
            return self._otherwise(data, layer)
        fresh = Stage(0)
        return torch.from_numpy(self.tiles(data.numpy(), 1, fresh, fresh)[0])

    def tiles_of(self, data: Tensor, cuts: tuple[int, ...] | None) -> int | None:
        """Return into how many tiles :meth:`tiles` cuts each part of ``data``; None where this way does not serve.

        Parameters
        ----------
        data : torch.Tensor
            ``[samples, ..., features]``.
        cuts : tuple of int, optional
            Sizes of consecutive parts of the last axis; one part when absent.
        """
        features = data.shape[-1]
        part = features if cuts is None else cuts[0]
        width = -(-part // self._tiles)
        if not 2 <= width <= _NARROW or data.dtype is not torch.float32 or data.device.type != "cpu":
            return None
        if cuts is not None and (part % width or any(cut != part for cut in cuts) or sum(cuts) != features):
            return None
        return -(-part // width)

    def tiles(self, array: np.ndarray, parts: int, stage: Stage, scratch: Stage) -> np.ndarray:
        """Return the tiles of all parts of ``array``, where :meth:`tiles_of` said that this way serves.

        Parameters
        ----------
        array : numpy.ndarray
            float32 ``[samples, ..., features]``.
        parts : int
            How many parts of one size the last axis has.
        stage : Stage
            Gives the memory for the tiles.
        scratch : Stage
            Gives memory that is free again once this returns.

        Returns
        -------
        numpy.ndarray
            float32 ``[parts, samples, ..., tiles]``.
        """
        *lead, features = array.shape
        width = -(-features // parts // self._tiles)
        full, rest = divmod(features // parts, width)
        tiles = full + (rest > 0)
        # Overflow and NaN are data here, nothing to warn about.
        with np.errstate(all="ignore"):
            slim = width
            # Pairs lie side by side over the whole array, which is one long loop; what is left has short ones.
            while slim % 2 == 0 and array.shape[-1] % 2 == 0 and (slim > 2 or parts > 1):
                half = scratch.room((*array.shape[:-1], array.shape[-1] // 2))
                array, slim = np.add(array[..., 0::2], array[..., 1::2], out=half), slim // 2
            out = stage.room((parts, *lead, tiles))
            apart = np.moveaxis(array.reshape(*lead, parts, array.shape[-1] // parts), -2, 0)
            _sums(apart[..., : full * slim], slim, out[..., :full])
            if rest:
                tail = apart[..., full * slim :]
                _sums(tail, tail.shape[-1], out[..., full:])
                out[..., full:] *= np.float32(width / rest)
            np.multiply(out, np.float32(1 / width), out=out)
        return out


def _sums(array: np.ndarray, width: int, out: np.ndarray) -> None:
    if width == 1:
        out[...] = array
        return
    np.add(array[..., 0::width], array[..., 1::width], out=out)
    for at in range(2, width):
        np.add(out, array[..., at::width], out=out)


def _project(vectors: Tensor) -> Kernel:
    on_device: dict[torch.device, Tensor] = {}

    def kernel(data: Tensor, layer: int) -> Tensor:
        here = on_device.get(data.device)
        if here is None:
            here = on_device[data.device] = vectors.to(data.device)
        # Under autocast the product would be computed in half precision.
        with torch.autocast(data.device.type, enabled=False):
            return data.float() @ here[layer].T

    return kernel


def partial_projection(vectors: Tensor, first: int, features: int) -> Kernel:
    """Return the projection of the features from ``first`` on, which is one term of the whole projection."""
    return _project(vectors[..., first : first + features])


def _peaks(peaks: Peaks) -> Kernel:
    def kernel(data: Tensor, layer: int) -> Tensor:
        down, across = (peaks.side(size) for size in data.shape[-2:])
        if down == across == 1:
            return copy_values(data, layer)
        # Rows lie behind one another in memory, so that their maxima come first.
        return _maxima(_maxima(data, -2, down), -1, across).to(torch.float32)

    return kernel


def _maxima(data: Tensor, axis: int, side: int) -> Tensor:
    if side == 1:
        return data
    full, rest = divmod(data.shape[axis], side)
    blocks = torch.unflatten(data.narrow(axis, 0, full * side), axis, (full, side)).amax(axis)
    if rest == 0:
        return blocks
    return torch.cat((blocks, data.narrow(axis, full * side, rest).amax(axis, keepdim=True)), axis)


def copy_values(data: Tensor, layer: int) -> Tensor:
    """Keep every value."""
    return data.to(torch.float32, copy=True, memory_format=torch.contiguous_format)


def _empty(data: Tensor, layer: int) -> Tensor:
    return torch.empty((*data.shape[:-1], 0), dtype=torch.float32)
