"""The moments of one run: an index, rows, and merged groups; the twin of the browser's ``IMomentSource``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypedDict

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_STATS
from ..errors import ClientError, no_memory
from ..recorded_parquet import DAMAGE
from .grouping.answer import MomentGroups, answer_groups, until_stopped
from .grouping.name_filter import NameFilter, NameTable, Where
from .grouping.query import MomentQuery, check_stat
from .rows.moment_rows import (
    ROWS_SCHEMA,
    STAGE,
    STAGES,
    Chunk,
    Progress,
    StatIndex,
    Wanted,
    read_ahead,
)
from .rows.pieces import MomentRows

_COLUMNS = tuple(name for name in ROWS_SCHEMA.names if name not in ("step", "name_id", "stat"))


class StatEntry(TypedDict):
    """What there is of one stat; ``steps`` is their number."""

    stat: str
    rows: int
    first: int
    last: int
    steps: int


class MomentIndex(TypedDict):
    """The answer of the endpoint ``moments``."""

    version: str
    stats: list[StatEntry]
    names: list[str]
    samples: bool
    warnings: list[str]


class MomentSource:
    """What can be asked of a run's moments. Any thread may ask; one question at a time is answered."""

    def __init__(self, rows: MomentRows) -> None:
        self._rows = rows
        self._names = NameTable()
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._closed = False

    @property
    def version(self) -> str:
        return self._rows.version

    @property
    def warnings(self) -> list[str]:
        return self._rows.warnings

    def refresh(self, progress: Progress | None = None) -> bool:
        """Read what was appended since, and return whether there was any.

        ``progress`` is called with (done, total, what is being done) and may raise to cancel.
        """
        with self._lock:
            return self._rows.refresh(progress)

    def index(self) -> MomentIndex:
        with self._lock:
            stats = self._stats()
            return {
                "version": self.version,
                "stats": [
                    {
                        "stat": one.stat,
                        "rows": one.rows,
                        "first": one.first,
                        "last": one.last,
                        "steps": one.steps,
                    }
                    for one in stats.values()
                ],
                "names": list(self._names.names),
                "samples": self._rows.samples,
                "warnings": list(self._rows.warnings),
            }

    def names(self, stat: str) -> list[str]:
        """Return the names of the tensors that have a stat."""
        with self._lock:
            found = self._stats().get(stat)
            return [] if found is None else list(found.names)

    def rows(
        self,
        stats: Sequence[str],
        where: Where = None,
        steps: Sequence[int | None] | None = None,
        limit: int | None = None,
    ) -> pa.Table:
        """Return rows, ordered by step, in the columns of :data:`ROWS_SCHEMA`; ``name_id`` is an index into
        ``names``.

        Raises ``ClientError`` (``too-large``) where more than ``limit`` rows match, saying how many.
        """
        found, stats = NameFilter(where), [check_stat(stat) for stat in stats]
        first, last = steps or (None, None)
        with self._lock, self._answering():
            known = self._stats()
            if found.all_names and not found.rows and steps is None:
                # Whoever opens a large run asks for everything first: it is known how much that is.
                _check_count(sum(known[stat].rows for stat in stats if stat in known), limit)
            names: dict[str, list[str]] = {}
            for stat in (stat for stat in stats if stat in known):
                of = known[stat].names
                names[stat] = [name for name, keep in zip(of, found.keep(of), strict=True) if keep]
            wanted = Wanted(names, _COLUMNS, found.rows, first, last)
            chunks, count = list[Chunk](), 0
            for chunk in until_stopped(read_ahead(self._rows.chunks(wanted)), self._stop):
                count += len(chunk["step"])
                if limit is None or count <= limit:
                    chunks.append(chunk)
                else:
                    chunks.clear()
            _check_count(count, limit)
            return self._table(chunks, names)

    def _table(self, chunks: Sequence[Chunk], names: Mapping[str, Sequence[str]]) -> pa.Table:
        ids = np.array([self._names.id(name) for of in names.values() for name in of], np.int32)
        stat = np.repeat(np.arange(len(names), dtype=np.int32), [len(of) for of in names.values()])
        texts = {"stat": list(names), STAGE: list(STAGES)}
        columns = []
        for field in ROWS_SCHEMA:
            pieces = [
                ids[chunk["name_index"]]
                if field.name == "name_id"
                else stat[chunk["name_index"]]
                if field.name == "stat"
                else chunk[field.name].astype(np.int32)
                if field.name == STAGE
                else chunk[field.name]
                for chunk in chunks
            ]
            arrays = [pa.array(piece) for piece in pieces]
            if field.name in texts:
                known = pa.array(texts[field.name], pa.utf8())
                arrays = [pa.DictionaryArray.from_arrays(array, known) for array in arrays]
            columns.append(pa.chunked_array(arrays, field.type))
        return pa.Table.from_arrays(columns, schema=ROWS_SCHEMA)

    def groups(self, query: MomentQuery) -> MomentGroups:
        """Return merged groups; raises ``mixed`` when inputs and outputs of modules would be in one."""
        with self._lock, self._answering():
            return answer_groups(self._rows, self._stats(), query, self._stop)

    def interrupt(self) -> None:
        """End the question that is being answered, if any: it raises ``cancelled``. Does not wait."""
        self._stop.set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._rows.close()

    def _stats(self) -> dict[str, StatIndex]:
        found = {one.stat: one for one in self._rows.stats()}
        ordered = {stat: found[stat] for stat in MOMENT_STATS if stat in found}
        for one in ordered.values():
            self._names.add(one.names)
        return ordered

    @contextmanager
    def _answering(self) -> Iterator[None]:
        if self._closed:
            raise ClientError("This run was closed. Open it again.", code="closed")
        self._stop.clear()
        try:
            yield
        except MemoryError as error:
            raise no_memory("What you ask of these statistics") from error
        except DAMAGE as error:
            raise _changed() from error


def _changed() -> ClientError:
    return ClientError(
        "The files of these statistics could not be read: they changed or went while they were read. Ask "
        "again.",
        code="unreadable",
    )


def _check_count(count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise ClientError(
            f"{count} rows match, and at most {limit} were asked for. Ask for groups, fewer tensors or "
            "fewer steps.",
            code="too-large",
            field="limit_rows",
        )


def load_libraries() -> None:
    """Import what the first question would: a quarter of a second in advance."""
    # pyarrow imports pandas at the first conversion of values.
    import pandas  # noqa: F401
    import pyarrow.parquet  # noqa: F401
