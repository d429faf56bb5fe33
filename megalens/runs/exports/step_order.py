"""The rows of a stream by step, with at most one piece of them in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..answers.selection import StreamRows
from ..query import Query

_PIECE_BYTES = 16 * 2**20


@dataclass(frozen=True)
class OrderedRows:
    """The rows of one stream; ``ordered`` where stored by step, which late ranks prevent."""

    rows: StreamRows
    stream: str
    count: int
    ordered: bool

    @property
    def schema(self) -> pa.Schema:
        return self.rows.streams.named(self.stream).schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield them by step, those of one step in the order in which they came."""
        if self.ordered:
            yield from self.rows.batches(self.stream)
            return
        for first, last in self._pieces():
            batches = self.rows.batches(self.stream, Query(first=first, last=last))
            table = pa.Table.from_batches(batches, self.schema)
            yield from table.take(np.argsort(table["step"].to_numpy(), kind="stable")).to_batches()

    def several(self, column: str) -> bool:
        found: set[object] = set()
        for batch in self.rows.batches(self.stream, None, [column]):
            found.update(batch[column].unique().to_pylist())
            if len(found) > 1:
                return True
        return False

    def _pieces(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of steps whose rows fit into a piece, as far as complete steps do."""
        sizes: Counter[int] = Counter()
        for batch in self.rows.batches(self.stream):
            steps, counts = np.unique(batch["step"].to_numpy(), return_counts=True)
            for step, count in zip(steps.tolist(), counts.tolist(), strict=True):
                sizes[step] += count * batch.nbytes // batch.num_rows
        first, size = None, 0
        last = 0
        for step in sorted(sizes):
            if first is not None and size + sizes[step] > _PIECE_BYTES:
                yield first, last
                first, size = None, 0
            first, last = step if first is None else first, step
            size += sizes[step]
        if first is not None:
            yield first, last


def look_over(rows: StreamRows, stream: str) -> OrderedRows:
    """Count the rows of a stream, and find whether they are stored by step."""
    count, newest, ordered = 0, -1, True
    for batch in rows.batches(stream, None, ["step"]):
        steps = batch["step"].to_numpy()
        count += len(steps)
        ordered = ordered and bool(steps[0] >= newest and (steps[1:] >= steps[:-1]).all())
        newest = int(steps[-1])
    return OrderedRows(rows, stream, count, ordered)
