"""The arithmetic of the compressors: from a traced tensor ``[samples, ..., features]`` to what is kept of it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..protocol import Compressor, Empty, Projection, Tile
from .reductions import Reduction, parse_reduction

__all__ = ["Kernel", "make_kernel"]

Kernel = Callable[[Tensor, int], Tensor]
"""Takes a detached tensor ``[samples, ..., features]`` and its layer; gives a new float32 tensor that shares no memory with it."""


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
        return _tile(compressor.tiles, parse_reduction(compressor.reduction, f"{field}.params.reduction"))
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
