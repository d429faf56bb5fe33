"""A tensor that is cut over tensor-parallel ranks: what each rank sends of its piece, and how they are
joined.

Every rank compresses before anything is sent wherever the arithmetic allows it, so that what crosses the
interconnect shrinks with the payload: tiles that lie within one rank's features, projections as partial
sums, everything that is cut along another axis than the compressor works on. Only tiles that cross the
border between two ranks need the values themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ...protocol import Compressor, Empty, Histogram, Peaks, Projection, Tile
from ..points import Shards
from .compression_error import CompressionError
from .compressors import Kernel, Stage, copy_values, make_kernel, projection_kernel

_SEQUENCE_AXIS = 1
_HEAD_AXIS = 1


@dataclass(frozen=True, eq=False)
class PieceJoin:
    """How the pieces of one row become one.

    Attributes
    ----------
    how : {'concatenate', 'add'}
        One after another along ``axis``, or added up.
    axis : int
        Of the piece's array.
    kernel : Kernel, optional
        Applied to the joined values, where the pieces are uncompressed.
    error : CompressionError, optional
        Of the compressor on the complete tensor.
    """

    how: Literal["concatenate", "add"]
    axis: int = -1
    kernel: Kernel | None = None
    error: CompressionError | None = None

    def error_of(
        self, squares: Sequence[np.ndarray], joined: np.ndarray, stored: np.ndarray, layer: int
    ) -> float:
        """Return the compression error of the complete tensor.

        Parameters
        ----------
        squares : sequence of numpy.ndarray
            Of each piece: lost, total, positions; see :meth:`CompressionError.squares`.
        joined : numpy.ndarray
            The pieces' values, joined and not yet compressed where ``kernel`` is still to be applied.
        stored : numpy.ndarray
            What is stored of the complete tensor.
        """
        if self.error is None:
            return math.nan
        lost, size, _ = np.sum(squares, 0)
        if self.kernel is not None:
            # A rank that holds nothing of it has looked at nothing.
            few = max(1, int(max(of_piece[2] for of_piece in squares)))
            data = torch.from_numpy(joined).reshape(-1, joined.shape[-1])[:few]
            return float(
                self.error(data, torch.from_numpy(stored).reshape(-1, stored.shape[-1])[:few], layer)
            )
        if self.how == "add":
            few = int(squares[0][2])
            products = torch.from_numpy(joined).reshape(-1, joined.shape[-1])[:few]
            # Not Python's max, which makes 0 of NaN.
            lost = np.maximum(0.0, size - self.error.fitted(products, layer))
        return math.sqrt(lost / size) if size > 0 else math.sqrt(lost)


@dataclass(frozen=True, eq=False)
class Cut:
    """What one rank does with its piece of one part of a tensor.

    Attributes
    ----------
    kernel : Kernel
        What is applied to the piece.
    join : PieceJoin or None
        How the leader puts the pieces together; None where every rank has the complete tensor.
    axis : int or None
        Axis of ``[B, S, *]`` that is cut.
    ranks : int
        Into how many pieces.
    error : CompressionError, optional
        Of what is done with the piece alone; where there is none, only its size is measured.
    features : int, optional
        Size of the complete tensor's last axis, where the pieces' sizes are no equal parts of it.
    """

    kernel: Kernel
    join: PieceJoin | None = None
    axis: int | None = None
    ranks: int = field(default=1)
    error: CompressionError | None = None
    features: int | None = None

    def full_shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of the complete tensor from that of this rank's piece."""
        if self.axis is None:
            return tuple(shape)
        if self.features is not None:
            return (*shape[:-1], self.features)
        axis = self.axis % len(shape)
        return (*shape[:axis], shape[axis] * self.ranks, *shape[axis + 1 :])


def cut_of(
    shards: Shards,
    shape: Sequence[int],
    all_features: int | None,
    compressor: Compressor,
    kernel: Kernel,
    vectors: Tensor | None,
    tp: int,
    ranks: int,
    error: CompressionError | None = None,
) -> Cut:
    """Return what is done with one part.

    Parameters
    ----------
    shape : sequence of int
        Shape of this rank's piece ``[B, S, *]``.
    all_features : int or None
        Size of the last axis over all ranks, where known.
    kernel : Kernel
        The compressor for a complete tensor.
    vectors : torch.Tensor, optional
        Unit vectors ``[layers, vectors, features]`` of a projection.
    tp, ranks : int
        Which piece this is, out of how many.
    error : CompressionError, optional
        Of the compressor on a complete tensor.
    """
    if shards == "none" or ranks == 1:
        return Cut(kernel)
    if isinstance(compressor, Histogram) and shards not in ("features", "uneven"):
        return Cut(kernel, PieceJoin("add", error=error), _SEQUENCE_AXIS, ranks)
    if shards not in ("features", "uneven"):
        axis = _SEQUENCE_AXIS if shards == "sequence" else _HEAD_AXIS
        return Cut(kernel, PieceJoin("concatenate", axis, error=error), axis, ranks, error)
    features, last = shape[-1], len(shape) - 1
    if shards == "uneven":
        return Cut(
            copy_values, PieceJoin("concatenate", -1, kernel, error), last, ranks, features=all_features
        )
    if all_features == features:
        # The module gathers its output itself.
        return Cut(kernel)
    if isinstance(compressor, Projection):
        assert vectors is not None
        partial = projection_kernel(vectors[..., tp * features : (tp + 1) * features])
        return Cut(partial, PieceJoin("add", error=error), last, ranks)
    if isinstance(compressor, Tile) and features:
        width = -(-features * ranks // compressor.tiles)
        if features % width:
            return Cut(copy_values, PieceJoin("concatenate", -1, kernel, error), last, ranks)
        tiles = Tile(features // width, compressor.reduction)
        return Cut(
            make_kernel(tiles),
            PieceJoin("concatenate", -1, error=error),
            last,
            ranks,
            error and CompressionError(tiles),
        )
    if isinstance(compressor, Histogram) and compressor.tiles == 1:
        return Cut(kernel, PieceJoin("add", error=error), last, ranks)
    if isinstance(compressor, (Histogram, Peaks)):
        return Cut(copy_values, PieceJoin("concatenate", -1, kernel, error), last, ranks)
    if not isinstance(compressor, Empty):
        kernel = copy_values
    return Cut(kernel, PieceJoin("concatenate", -1, error=error), last, ranks, error)


def join_pieces(join: PieceJoin, layer: int, pieces: Sequence[Any], stage: Stage) -> np.ndarray:
    """Return the array that one process would have had, in memory of a stage.

    The pieces are float32, in the order of the ranks. Raises ``ValueError`` or ``IndexError`` when their
    shapes do not fit together.
    """
    first = np.shape(pieces[0])
    if join.how == "add":
        made = stage.allocate(math.prod(first))[0].reshape(first)
        made[...] = pieces[0]
        for piece in pieces[1:]:
            np.add(made, piece, out=made)
        return made
    if join.kernel is not None:
        values = torch.from_numpy(np.concatenate(pieces, join.axis))
        return stage.copy(np.asarray(join.kernel(values, layer).numpy()))
    shape = list(first)
    shape[join.axis] = sum(piece.shape[join.axis] for piece in pieces)
    made = stage.allocate(math.prod(shape))[0].reshape(shape)
    np.concatenate(pieces, join.axis, out=made)
    return made
