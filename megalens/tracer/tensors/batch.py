"""What the training thread hands to the producer thread, how it becomes Arrow rows, and prepared readings."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...protocol import MOMENT_COLUMNS, Empty, layers_words, stream_schema
from ...protocol.arrow_columns import arrow_column
from ..moments.native.library import Item, NativeKernel
from ..moments.part import COLUMNS
from ..points import FLAGS
from .compressors import Stage, TilePlan, slices_of
from .pieces import PieceJoin

ROW_BYTES = 256
"""What a row takes besides its values."""
_LARGE_BYTES = 4 << 20
_EMPTY = str(Empty())

NO_ERROR = math.nan
"""The compression error of a row for which it was not measured; this very object."""


# Tensors that lie alike, step after step: all that is done with them but their address is prepared.
#
# A hook runs after milliseconds of arithmetic, when nothing of the interpreter is in a processor's cache any
# more: each line of Python costs several times what it costs in a loop. So the first tensor of a probe goes
# the long way, which leaves such a reading behind, and the next ones go this one.
class TensorReading:
    """Makes the rows of a tensor with the layout of an earlier one, ``seen``.

    Without a ``plan``, which says how tiles are made, such tensors have no rows here. ``items`` is what is
    measured, of :meth:`NativeKernel.describe`; ``nbytes`` is what the rows take.
    """

    __slots__ = (
        "_count",
        "_library",
        "_metas",
        "_reading",
        "_size",
        "_slices",
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
            self._library, self._slices = plan.library, slices_of(plan.shapes)
            self._size, self._count = self._slices[-1].stop, len(items)
            # What is traced of it may begin later.
            self._reading = plan.reading(seen.data_ptr(), items)

    def fits(self, seen: object) -> bool:
        """Return whether a tensor has the layout that was prepared for."""
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
        tiles, where = stage.allocate(self._size)
        # Not of the stage: pieces that wait for other ranks keep theirs.
        moments = torch.empty((self._count, COLUMNS), dtype=torch.float64)
        self._library.read(self._reading, seen.data_ptr(), where, moments.data_ptr())
        return list(map(Row, self._metas, map(tiles.__getitem__, self._slices), moments.numpy()))


def reading_of(
    seen: object, plan: TilePlan | None, measured: Sequence[Tensor], metas: Sequence[RowMeta], nbytes: int
) -> TensorReading | None:
    """Return the reading for the next tensors of a probe; None unless ``measured`` are views of ``seen``."""
    if plan is None or type(seen) is not Tensor:
        return None
    memory = seen.untyped_storage().data_ptr()
    items = [plan.library.describe(part) for part in measured]
    views = all(part.untyped_storage().data_ptr() == memory for part in measured)
    known = [item for item in items if item is not None]
    return TensorReading(seen, plan, known, metas, nbytes) if views and len(known) == len(items) else None


KNOWN = MOMENT_COLUMNS.index("nan_count")
"""How many columns of moments stand before the counts of what is not finite."""
NON_FINITE = slice(KNOWN, KNOWN + 2)
"""The columns of moments that count NaN and infinite values; the moments and extremes stand before them."""


class RowMeta(NamedTuple):
    """What a row is of; the same object step after step."""

    micro_batch: int
    phase: str
    layer: int
    flag: str
    part: str
    compressor: str
    source_shape: tuple[int, ...]
    """Of the complete tensor, over all ranks."""
    shape: tuple[int, ...]
    """Of the values here: of this rank's piece, where there is a join."""
    side: str = "forward"
    join: PieceJoin | None = None
    call: int = 0


class Row(NamedTuple):
    """One compressed tensor, on the host or on its way there."""

    meta: RowMeta
    values: Tensor | np.ndarray
    """In the shape that ``meta`` says, or all in one row."""
    moments: np.ndarray
    """Of the complete tensor before selection and compression, float64 ``[11]`` as ``MOMENT_COLUMNS``;
    of this rank's piece, where there is a join.
    """
    error: Tensor | float = NO_ERROR
    """Compression error, where it was measured; where there is a join, what adds up over the pieces
    (``CompressionError.squares``).
    """


class StepRows(NamedTuple):
    """Rows of one step that are ready to be sent."""

    step: int
    rows: Sequence[Row]
    stage: Stage | None = None
    """Memory that values of theirs lie in, to be given back once they are sent. Where it holds just these
    rows, they are viewed and not copied.
    """


class FiredProbes(NamedTuple):
    """How many probes fired in a step of those expected; by name why others did not, at most 50."""

    fired: int
    expected: int
    missing: dict[str, str]


@dataclass(slots=True)
class Batch:
    """All that one step, or one phase outside of steps, gave."""

    step: int
    rows: list[Row] = field(default_factory=list)
    nbytes: int = 0
    probes: FiredProbes | None = None
    """How many fired; None when nothing was to be traced."""
    told: frozenset[str] = frozenset()
    """Names of probes that did not fire, of which a sentence was said when they were reached."""
    without_gradients: Sequence[str] = ()
    """Titles of flags of which no gradient came, and some were asked for."""
    ready: Any = None
    """A device event after which the copies are there; None on the CPU."""
    stage: Stage | None = None
    """Memory that values of the rows lie in, to be given back once they are sent."""
    version: int = 0
    order: int = 0
    """How many batches the step gave before; with version and step the same on every rank that holds pieces
    of the same tensors.
    """


def identity_of(meta: RowMeta) -> tuple[Any, ...]:
    """Return what tells a tensor from others of its batch, equal on every rank that holds a piece."""
    return (meta.micro_batch, meta.phase, meta.side, meta.layer, meta.flag, meta.part, meta.call)


def unknown_moments(rows: int) -> np.ndarray:
    """Return the moments of tensors that are not floating point, float64 ``[rows, 11]``: all finite."""
    unknown = np.full((rows, len(MOMENT_COLUMNS)), math.nan)
    unknown[:, NON_FINITE] = 0
    return unknown


def without_values(row: Row) -> Row:
    """Return a row with its statistics alone, as the compressor ``Empty`` makes it."""
    meta = row.meta._replace(compressor=_EMPTY, shape=(*row.meta.shape[:-1], 0))
    return Row(meta, np.empty(0, np.float32), row.moments)


def fitting_rows(rows: Sequence[Row], small: int, large: int) -> tuple[list[Row], list[Row]]:
    """Return rows of which the largest are without values, and those whose values are given up.

    Parameters
    ----------
    small, large : int
        Bytes for all rows, and for all with one above 4 MiB.
    """
    used = ROW_BYTES * len(rows)
    fits: set[int] = set()
    for at in sorted(range(len(rows)), key=lambda at: rows[at].values.nbytes):
        nbytes = rows[at].values.nbytes
        if used + nbytes > (large if nbytes > _LARGE_BYTES else small):
            break
        used += nbytes
        fits.add(at)
    made = [row if at in fits else without_values(row) for at, row in enumerate(rows)]
    return made, [row for at, row in enumerate(rows) if at not in fits]


def by_flag(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Return rows by the title of their flag."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(FLAGS[row.meta.flag].title, []).append(row)
    return found


def named_rows(rows: Iterable[Row]) -> str:
    """Return what rows are of, such as ``MLP1 output, layers 0-3``."""
    return "; ".join(
        f"{title}{layers_words({row.meta.layer for row in of})}" for title, of in by_flag(rows).items()
    )


def split_rows(rows: Sequence[Row], limit: int) -> Iterator[Sequence[Row]]:
    """Give ``rows`` in runs of at most ``limit`` bytes of values each, one row at least."""
    start, size = 0, 0
    for index, row in enumerate(rows):
        nbytes = row.values.nbytes
        if size and size + nbytes > limit:
            yield rows[start:index]
            start, size = index, 0
        size += nbytes
    if start < len(rows):
        yield rows[start:]


def tensors_table(
    steps: Sequence[StepRows], rank: int, labels: Callable[[Row], list[str]] | None = None
) -> tuple[pa.RecordBatch, np.ndarray]:
    """Return the ``tensors`` rows of steps that are complete on the host, and their non-finite counts.

    The counts are int64 ``[rows, 2]``, NaN and infinity. ``labels`` gives the texts of a row's values.
    """
    rows = [row for each in steps for row in each.rows]
    moments = np.array([row.moments for row in rows]).reshape(len(rows), len(MOMENT_COLUMNS))
    counts = moments[:, NON_FINITE].astype(np.int64)
    errors: np.ndarray | None = None
    for index, row in enumerate(rows):
        if row.error is not NO_ERROR:
            errors = np.full(len(rows), math.nan) if errors is None else errors
            errors[index] = float(row.error)
    metas = [tuple([row.meta for row in each.rows]) for each in steps]
    alike = metas.count(metas[0]) == len(metas)
    same = _same_columns(metas[0] if alike else tuple(chain.from_iterable(metas)), rank).times(
        len(metas) if alike else 1
    )
    flat = [values for each in steps for values in _flat(each)]
    values = arrow_column(flat[0] if len(flat) == 1 else np.concatenate(flat))
    texts = None if labels is None else [labels(row) for row in rows]
    columns = [
        arrow_column(np.repeat([each.step for each in steps], [len(each.rows) for each in steps])),
        *same.before,
        pa.ListArray.from_arrays(same.offsets, values),
        same.no_labels if texts is None else arrow_column(texts, pa.list_(pa.utf8())),
        arrow_column(counts[:, 0].copy()),
        arrow_column(counts[:, 1].copy()),
        same.no_errors if errors is None else arrow_column(errors),
        *[arrow_column(np.ascontiguousarray(column)) for column in moments.T[:KNOWN]],
        same.calls,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stream_schema("tensors")), counts


def _flat(step: StepRows) -> list[np.ndarray]:
    """Return the values of a step's rows one after another, as the frame has them.

    Arrow wants one buffer for all values of the column. Where every row was made in the stage, that buffer
    exists already, and viewing it saves the largest copy of a step.
    """
    arrays = [row.values.numpy() if isinstance(row.values, Tensor) else row.values for row in step.rows]
    staged = all(isinstance(row.values, np.ndarray) for row in step.rows)
    filled = None if step.stage is None or not staged else step.stage.filled()
    # Room is given out in the order of the rows, so equal sizes mean the same memory.
    if filled is not None and filled.size == sum([array.size for array in arrays]):
        return [filled]
    return [array.reshape(-1) for array in arrays]


@dataclass(frozen=True)
class _SameColumns:
    """The columns that do not change from step to step."""

    before: list[pa.Array]
    lengths: list[int]
    offsets: pa.Array
    no_labels: pa.Array
    no_errors: pa.Array
    calls: pa.Array

    def times(self, steps: int) -> _SameColumns:
        """Return the columns of that many steps like this one."""
        if steps == 1:
            return self
        return _SameColumns(
            [pa.concat_arrays([column] * steps) for column in self.before],
            self.lengths * steps,
            _offsets(self.lengths * steps),
            pa.concat_arrays([self.no_labels] * steps),
            pa.concat_arrays([self.no_errors] * steps),
            pa.concat_arrays([self.calls] * steps),
        )


@functools.lru_cache(8)
def _same_columns(metas: tuple[RowMeta, ...], rank: int) -> _SameColumns:
    n = len(metas)
    before = [
        arrow_column(np.fromiter((meta.micro_batch for meta in metas), np.int32, n)),
        arrow_column([meta.phase for meta in metas], pa.utf8()),
        arrow_column([meta.side for meta in metas], pa.utf8()),
        arrow_column(np.full(n, rank, np.int32)),
        arrow_column(np.fromiter((meta.layer for meta in metas), np.int32, n)),
        arrow_column([meta.flag for meta in metas], pa.utf8()),
        arrow_column([meta.part for meta in metas], pa.utf8()),
        arrow_column([meta.compressor for meta in metas], pa.utf8()),
        _shapes([meta.source_shape for meta in metas]),
        _shapes([meta.shape for meta in metas]),
    ]
    lengths = [math.prod(meta.shape) for meta in metas]
    return _SameColumns(
        before,
        lengths,
        _offsets(lengths),
        arrow_column([[]] * n, pa.list_(pa.utf8())),
        arrow_column(np.full(n, math.nan)),
        arrow_column(np.fromiter((meta.call for meta in metas), np.int32, n)),
    )


def _offsets(lengths: Sequence[int]) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return arrow_column(offsets)


def _shapes(shapes: Sequence[Sequence[int]]) -> pa.Array:
    flat = np.fromiter((size for shape in shapes for size in shape), np.int32)
    return pa.ListArray.from_arrays(_offsets([len(shape) for shape in shapes]), arrow_column(flat))
