"""Tensors that lie alike, step after step: all that is done with them but their address is prepared.

A hook runs after milliseconds of arithmetic, when nothing of the interpreter is in a processor's cache any more: each line of Python costs several times
what it costs in a loop. So the first tensor of a probe goes the long way, which leaves such a reading behind, and the next ones go this one.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .batch import Row, RowMeta
from .compressing.compressors import TilePlan
from .staging import Stage

__all__ = ["TensorReading", "reading_of"]


class TensorReading:
    """Makes the rows of a tensor that lies as an earlier one.

    Parameters
    ----------
    seen : Tensor
        The earlier one.
    plan : TilePlan
        How its tiles are made.
    items : sequence of tuple
        What is measured of it, as ``NativeKernel.describe`` gives it.
    metas : sequence of RowMeta
        What its rows are of.
    """

    __slots__ = ("_address", "_items", "_metas", "_plan", "dtype", "shape", "strides")

    def __init__(
        self, seen: Tensor, plan: TilePlan, items: Sequence[tuple[int, ...]], metas: Sequence[RowMeta]
    ) -> None:
        self.shape, self.strides, self.dtype = seen.shape, seen.stride(), seen.dtype
        self._address = seen.data_ptr()
        self._plan, self._items, self._metas = plan, items, metas

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
        apart = seen.data_ptr() - self._address
        tiles = self._plan.tiles(stage, apart)
        items = [(at + apart, *lie) for at, *lie in self._items]
        whole = self._plan.library.measure(items).numpy()  # type: ignore[arg-type]
        return list(map(Row, self._metas, tiles, whole))


def reading_of(
    seen: object, plan: TilePlan | None, measured: Sequence[Tensor], metas: Sequence[RowMeta]
) -> TensorReading | None:
    """Return what serves the next tensors of a probe, where ``measured`` are views of the plain tensor that it saw; else None."""
    if plan is None or type(seen) is not Tensor:
        return None
    memory = seen.untyped_storage().data_ptr()
    items = [plan.library.describe(part) for part in measured]
    views = all(part.untyped_storage().data_ptr() == memory for part in measured)
    known = [item for item in items if item is not None]
    return TensorReading(seen, plan, known, metas) if views and len(known) == len(items) else None
