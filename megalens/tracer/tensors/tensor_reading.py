"""Tensors that lie alike, step after step: all that is done with them but their address is prepared.

A hook runs after milliseconds of arithmetic, when nothing of the interpreter is in a processor's cache any more: each line of Python costs several times
what it costs in a loop. So the first tensor of a probe goes the long way, which leaves such a reading behind, and the next ones go this one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..moments.columns import COLUMNS
from ..moments.native.library import Item, NativeKernel
from .batch import Row, RowMeta
from .compressing.compressors import TilePlan
from .staging import Stage, places_of

__all__ = ["TensorReading", "reading_of"]


class TensorReading:
    """Makes the rows of a tensor that lies as an earlier one.

    Parameters
    ----------
    seen : Tensor
        The earlier one.
    plan : TilePlan, optional
        How its tiles are made; where it is absent, such tensors have no rows here.
    items : sequence of tuple
        What is measured of it, as ``NativeKernel.describe`` gives it.
    metas : sequence of RowMeta
        What its rows are of.
    nbytes : int
        What its rows take.
    """

    __slots__ = (
        "_count",
        "_library",
        "_metas",
        "_places",
        "_reading",
        "_room",
        "dtype",
        "nbytes",
        "shape",
        "strides",
    )

    def __init__(
        self,
        seen: Tensor,
        plan: TilePlan | None = None,
        items: Sequence[Item] = (),
        metas: Sequence[RowMeta] = (),
        nbytes: int = 0,
    ) -> None:
        self.shape, self.strides, self.dtype = seen.shape, seen.stride(), seen.dtype
        self._metas, self.nbytes = metas, nbytes
        self._library: NativeKernel | None = None
        if plan is not None:
            self._library, self._places = plan.library, places_of(plan.shapes)
            self._room, self._count = self._places[-1].stop, len(items)
            # What is traced of it may begin later.
            self._reading = plan.reading(seen.data_ptr(), items)

    def fits(self, seen: object) -> bool:
        """Return whether a tensor lies as the one that this is of."""
        return (
            type(seen) is Tensor
            and seen.shape == self.shape
            and seen.dtype is self.dtype
            and seen.is_cpu
            and seen.stride() == self.strides
            and not seen.is_neg()
        )

    def rows(self, seen: Tensor, stage: Stage) -> list[Row]:
        """Return the rows of a tensor that fits, their values in memory of ``stage``."""
        if self._library is None:
            return []
        tiles, where = stage.room(self._room)
        # Not of the stage: pieces that wait for other ranks keep theirs.
        moments = torch.empty((self._count, COLUMNS), dtype=torch.float64)
        self._library.read(self._reading, seen.data_ptr(), where, moments.data_ptr())
        return list(map(Row, self._metas, map(tiles.__getitem__, self._places), moments.numpy()))


def reading_of(
    seen: object, plan: TilePlan | None, measured: Sequence[Tensor], metas: Sequence[RowMeta], nbytes: int
) -> TensorReading | None:
    """Return what serves the next tensors of a probe, where ``measured`` are views of the plain tensor that it saw; else None."""
    if plan is None or type(seen) is not Tensor:
        return None
    memory = seen.untyped_storage().data_ptr()
    items = [plan.library.describe(part) for part in measured]
    views = all(part.untyped_storage().data_ptr() == memory for part in measured)
    known = [item for item in items if item is not None]
    return TensorReading(seen, plan, known, metas, nbytes) if views and len(known) == len(items) else None
