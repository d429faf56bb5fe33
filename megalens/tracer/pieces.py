"""A tensor that is cut over tensor-parallel ranks: what each rank keeps of its piece, and how the pieces become one again.

Every rank compresses before anything is sent wherever the arithmetic allows it, so that what crosses the interconnect shrinks with the
payload: tiles that lie within one rank's features, projections as partial sums, everything that is cut along another axis than the compressor
works on. Only tiles that cross the border between two ranks need the values themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..protocol import Compressor, Empty, Projection, Tile
from .compressors import Kernel, copy_values, make_kernel, partial_projection
from .points import Shards

__all__ = ["Cut", "Join", "cut_of", "join_pieces"]

_SEQUENCE_AXIS = 1
_HEAD_AXIS = 1


@dataclass(frozen=True, eq=False)
class Join:
    """How the pieces of one row become one.

    Attributes
    ----------
    how : {'concatenate', 'add'}
        One after another along ``axis``, or added up.
    axis : int
        Of the piece's array.
    kernel : Kernel, optional
        Applied to the joined values, where the pieces are uncompressed.
    """

    how: Literal["concatenate", "add"]
    axis: int = -1
    kernel: Kernel | None = None


@dataclass(frozen=True, eq=False)
class Cut:
    """What one rank does with its piece of one part of a tensor.

    Attributes
    ----------
    kernel : Kernel
        What is applied to the piece.
    join : Join or None
        How the leader puts the pieces together; None where every rank holds the whole.
    axis : int or None
        Axis of ``[B, S, *]`` that is cut.
    ranks : int
        Into how many pieces.
    """

    kernel: Kernel
    join: Join | None = None
    axis: int | None = None
    ranks: int = field(default=1)

    def whole(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the whole tensor from that of this rank's piece."""
        if self.axis is None:
            return tuple(shape)
        axis = self.axis % len(shape)
        return (*shape[:axis], shape[axis] * self.ranks, *shape[axis + 1 :])


def cut_of(
    shards: Shards,
    shape: Sequence[int],
    whole_features: int | None,
    compressor: Compressor,
    kernel: Kernel,
    vectors: Tensor | None,
    tp: int,
    ranks: int,
) -> Cut:
    """Return what is done with one part.

    Parameters
    ----------
    shards : Shards
        Along what the part is cut.
    shape : sequence of int
        Shape of this rank's piece ``[B, S, *]``.
    whole_features : int or None
        Size of the last axis over all ranks, where known.
    compressor : Compressor
        The parameters.
    kernel : Kernel
        The compressor for a whole tensor.
    vectors : torch.Tensor, optional
        Unit vectors ``[layers, vectors, features]`` of a projection.
    tp, ranks : int
        Which piece this is, out of how many.
    """
    if shards == "none" or ranks == 1:
        return Cut(kernel)
    if shards != "features":
        axis = _SEQUENCE_AXIS if shards == "sequence" else _HEAD_AXIS
        return Cut(kernel, Join("concatenate", axis), axis, ranks)
    features = shape[-1]
    if whole_features == features:
        # The module gathers its output itself.
        return Cut(kernel)
    if isinstance(compressor, Projection):
        assert vectors is not None
        return Cut(partial_projection(vectors, tp * features, features), Join("add"), len(shape) - 1, ranks)
    if isinstance(compressor, Tile) and features:
        width = -(-features * ranks // compressor.tiles)
        if features % width:
            return Cut(copy_values, Join("concatenate", -1, kernel), len(shape) - 1, ranks)
        kernel = make_kernel(Tile(features // width, compressor.reduction))
    elif not isinstance(compressor, Empty):
        kernel = copy_values
    return Cut(kernel, Join("concatenate", -1), len(shape) - 1, ranks)


def join_pieces(join: Join, layer: int, pieces: Sequence[Any]) -> np.ndarray:
    """Return the array that one process would have had.

    Parameters
    ----------
    join : Join
        How.
    layer : int
        Which layer it is, for a kernel that is still to be applied.
    pieces : sequence of numpy.ndarray
        float32, in the order of the ranks.

    Raises
    ------
    ValueError
        When the shapes do not fit together.
    """
    if join.how == "add":
        total = np.array(pieces[0], np.float32)
        for piece in pieces[1:]:
            np.add(total, piece, out=total)
        return total
    whole = np.asarray(np.concatenate(pieces, join.axis))
    if join.kernel is None:
        return whole
    return np.asarray(join.kernel(torch.from_numpy(whole), layer).numpy())
