"""The stream ``moments`` of one run: an index, rows, and merged groups. The browser's ``IMomentSource``, on the side of the data."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import MOMENT_STATS, StatIndex
from ..errors import ClientError
from ..recorded_parquet import DAMAGE
from .grouping.answer import MomentGroups, answer_groups, given_up
from .grouping.name_filter import NameFilter, NameTable, Where
from .grouping.query import MomentQuery, check_stat
from .rows.duck import LateCursor, duck_errors, rows_sql
from .rows.moment_rows import ROWS_SCHEMA, MomentRows, Progress
from .rows.recorded_rows import RecordedRows

__all__ = ["MomentSource"]


class MomentSource:
    """What can be asked of a run's moments. Any thread may ask; one at a time is answered.

    Parameters
    ----------
    rows : MomentRows
        Where they lie.
    """

    def __init__(self, rows: MomentRows) -> None:
        self._rows = rows
        self._names = NameTable()
        self._lock = threading.RLock()
        self._asking: LateCursor | None = None
        self._stop = threading.Event()
        self._closed = False

    @property
    def version(self) -> str:
        """Changes whenever a refresh found more."""
        return self._rows.version

    @property
    def warnings(self) -> list[str]:
        """Sentences about what is superseded, left out or unreadable."""
        return self._rows.warnings

    def refresh(self, progress: Progress | None = None) -> bool:
        """Read what was appended since, and say whether there was any.

        Parameters
        ----------
        progress : callable, optional
            Called with (done, total, what is being done); raise from it to cancel.
        """
        with self._lock:
            return self._rows.refresh(progress)

    def index(self) -> dict[str, Any]:
        """Return what there is: the answer of the endpoint ``moments``."""
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
        """Return the names of the tensors of which there is a stat."""
        with self._lock:
            found = self._stats().get(stat)
            return [] if found is None else list(found.names)

    def rows(
        self,
        stats: Sequence[str],
        where: Where = None,
        steps: tuple[int | None, int | None] = (None, None),
        limit: int | None = None,
    ) -> pa.Table:
        """Return rows, ordered by step, in the columns of :data:`ROWS_SCHEMA`; ``name_id`` is a place in the index's ``names``.

        Raises
        ------
        ClientError
            ``too-large`` where more than ``limit`` rows match, saying how many.
        """
        chosen = [check_stat(stat) for stat in stats]
        found = NameFilter(where)
        with self._lock, self._connection() as connect:
            known = self._stats()
            if found.all_names and not found.rows and steps == (None, None):
                # Whoever opens a large run asks for everything first: it is known how much that is.
                _check_count(sum(known[stat].rows for stat in chosen if stat in known), limit)
            names = sorted(
                {name for stat in chosen if stat in known for name in known[stat].names}, key=self._names.id
            )
            kept = [name for name, keep in zip(names, found.keep(names), strict=True) if keep]
            ids = np.array(list(map(self._names.id, kept)), np.int32)
            if isinstance(self._rows, RecordedRows):
                selection = self._rows.select(
                    chosen, pa.array(kept, pa.utf8()), ids, found.rows, *steps, limit
                )
                if selection is not None:
                    _check_count(selection[1], limit)
                    return selection[0]
            connection = connect()
            connection.register(
                "chosen",
                pa.table(
                    {
                        "name": pa.array(kept, pa.utf8()),
                        "name_id": pa.array(ids),
                    }
                ),
            )
            selected = rows_sql(self._rows.relation(connection), "chosen", chosen, found.rows, *steps)
            if limit is not None:
                _check_count(connection.execute(f"SELECT count(*) FROM ({selected})").fetchall()[0][0], limit)
            columns = ", ".join(f'"{name}"' for name in ROWS_SCHEMA.names)
            table = connection.sql(f"SELECT {columns} FROM ({selected}) ORDER BY step").to_arrow_table()
        return table.cast(ROWS_SCHEMA)

    def groups(self, query: MomentQuery) -> MomentGroups:
        """Return merged groups: see :class:`MomentGroups`.

        Raises
        ------
        ClientError
            ``mixed`` when a group would hold both inputs and outputs of modules.
        """
        with self._lock, self._connection() as connect:
            stats = self._stats()
            return answer_groups(connect, self._rows, stats, query, self._stop)

    def interrupt(self) -> None:
        """End the question that is being answered, if there is one: who asked is told ``cancelled``. Does not wait."""
        asking = self._asking
        if asking is not None:
            self._stop.set()
            asking.interrupt()

    def close(self) -> None:
        """Let go of everything. Safe twice."""
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
    def _connection(self) -> Iterator[LateCursor]:
        if self._closed:
            raise ClientError("This run was closed. Open it again.", code="closed")
        self._stop.clear()
        # What a query registers goes with its cursor.
        cursor = self._asking = LateCursor()
        try:
            yield cursor
        except DAMAGE as error:
            raise _changed() from error
        except duck_errors() as error:
            raise (given_up() if self._stop.is_set() else _changed()) from error
        finally:
            self._asking = None
            cursor.close()


def _changed() -> ClientError:
    return ClientError(
        "The files of these statistics could not be read: they changed or went while they were read. Ask again.",
        code="unreadable",
    )


def _check_count(count: int, limit: int | None) -> None:
    if limit is not None and count > limit:
        raise ClientError(
            f"{count} rows match, and at most {limit} were asked for. Ask for groups, fewer tensors or fewer steps.",
            code="too-large",
            field="limit_rows",
        )
