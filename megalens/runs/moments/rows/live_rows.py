"""Rows that a live run sent, together with those that its hub recorded on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import LAST_STEP, StatIndex, empty_table
from ...run_folder import RunFolder
from .duck import duck_cursor, sql_chunks, stats_of
from .moment_rows import Chunk, Progress, Wanted
from .recorded_rows import RecordedRows

__all__ = ["LiveRows", "recorded_rows"]

# Rows that arrived and may not be recorded yet.
_MOST_BEHIND = 200_000


# The stream ``moments`` of a run whose training went back to a checkpoint: of each step as it was trained
# last.
def recorded_rows(folder: Path) -> RecordedRows | AttemptRows:
    """Return the rows of a run folder, those of earlier attempts among them."""
    earlier = RunFolder(folder).earlier if (folder / "attempts").is_dir() else []
    return (
        AttemptRows([(part.path, until) for part, until in earlier], folder)
        if earlier
        else RecordedRows(folder)
    )


class AttemptRows:
    """Rows of several attempts.

    Parameters
    ----------
    earlier : sequence of (Path, int)
        Folders of the earlier ones, oldest first, each with the step from which on later ones have its steps.
    folder : Path
        The run folder, where the newest attempt is.
    """

    def __init__(self, earlier: Sequence[tuple[Path, int]], folder: Path) -> None:
        self._parts = [
            *((RecordedRows(place), until) for place, until in earlier),
            (RecordedRows(folder), LAST_STEP + 1),
        ]
        self._known: dict[int, tuple[str, list[StatIndex]]] = {}

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return "-".join(rows.version for rows, _ in self._parts)

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        return any(rows.samples for rows, _ in self._parts)

    @property
    def warnings(self) -> list[str]:
        """What is cut short of the newest attempt."""
        return self._parts[-1][0].warnings

    def refresh(self, progress: Progress | None = None) -> bool:
        """Look for what is new, and say whether there was any."""
        more = [rows.refresh(progress) for rows, _ in self._parts]
        return any(more)

    def stats(self) -> list[StatIndex]:
        """Return what there is."""
        found: dict[str, StatIndex] = {}
        for at in range(len(self._parts)):
            for one in self._stats_of(at):
                before = found.get(one.stat)
                found[one.stat] = one if before is None else _both(before, one)
        return list(found.values())

    def relation(self, connection: Any, first: int | None = None) -> str:
        """Return SQL for the rows; where a step is said, for those from it on and others."""
        return " UNION ALL ".join(
            f"SELECT * FROM ({rows.relation(connection, first)}) WHERE step < {until:d}"
            for rows, until in self._parts
            if rows.stats()
        )

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        for rows, until in self._parts:
            last = until - 1 if wanted.last is None else min(wanted.last, until - 1)
            if rows.stats():
                yield from rows.chunks(connect, replace(wanted, last=last))

    def close(self) -> None:
        """Let go of the files. Safe twice."""
        for rows, _ in self._parts:
            rows.close()

    def _stats_of(self, at: int) -> list[StatIndex]:
        """Return what of an attempt counts; where later ones have some of its steps, it is counted once."""
        rows, until = self._parts[at]
        whole = rows.stats()
        if all(one.last < until for one in whole):
            return whole
        version, known = self._known.get(at, ("", []))
        if version != rows.version:
            with duck_cursor() as connection:
                relation = f"SELECT * FROM ({rows.relation(connection)}) WHERE step < {until:d}"
                known = stats_of(connection, relation)[0]
            self._known[at] = (rows.version, known)
        return known


def _both(before: StatIndex, after: StatIndex) -> StatIndex:
    return StatIndex(
        before.stat,
        before.rows + after.rows,
        min(before.first, after.first),
        max(before.last, after.last),
        before.steps + after.steps,
        sorted({*before.names, *after.names}),
    )


class LiveRows:
    """What the recording holds, and of what arrived the rows that it does not hold yet.

    Parameters
    ----------
    received : callable
        Returns the rows that arrived and are still in memory.
    folder : Path or None
        Where the hub records, where it does and this machine has it.
    """

    def __init__(self, received: Callable[[], pa.Table], folder: Path | None) -> None:
        self._received = received
        self._recorded = recorded_rows(folder) if folder is not None else None
        self._table = empty_table("moments")
        self._changes = 0
        self._last: tuple[int, int] = (0, -1)
        self._known: tuple[int, list[StatIndex], bool, int | None] = (-1, [], False, None)

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return str(self._changes)

    @property
    def samples(self) -> bool:
        """Whether steps are known as samples too."""
        return self._found()[1]

    @property
    def warnings(self) -> list[str]:
        """None: the newest message of a recording that grows is often not whole yet."""
        return []

    def refresh(self, progress: Progress | None = None) -> bool:
        """Take what arrived and what was recorded since, and say whether there was any."""
        more = self._recorded is not None and self._recorded.refresh(progress)
        self._table = self._received()
        rows = self._table.num_rows
        newest = self._table["step"][rows - 1].as_py() if rows else -1
        more = more or (rows, newest) != self._last
        self._last = (rows, newest)
        self._changes += more
        return more

    def stats(self) -> list[StatIndex]:
        """Return what there is; found once for each version."""
        return self._found()[0]

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps: from the recording those of steps of which it has all."""
        stats, _, begin = self._found()
        if self._recorded is not None and (begin is None or begin > self._recorded_first()):
            before = wanted if begin is None else replace(wanted, last=_least(wanted.last, begin - 1))
            yield from self._recorded.chunks(connect, before)
        if begin is not None and (wanted.last is None or wanted.last >= begin):
            connection = connect()
            after = replace(wanted, first=max(begin, wanted.first or begin))
            yield from sql_chunks(connection, self._joined(connection, begin), stats, after)

    def relation(self, connection: Any) -> str:
        """Return SQL for the rows."""
        return self._joined(connection, None)

    def _found(self) -> tuple[list[StatIndex], bool, int | None]:
        """Return what there is, whether steps are known as samples, and the first step of which rows arrived that are not recorded yet; None where all are."""
        if self._known[0] != self._changes:
            with duck_cursor() as connection:
                self._known = (self._changes, *self._look(connection))
        return self._known[1:]

    def _look(self, connection: Any) -> tuple[list[StatIndex], bool, int | None]:
        if self._recorded is None or not self._recorded.stats():
            connection.register("received", self._table)
            stats, samples = stats_of(connection, "SELECT * FROM received")
            return stats, samples, min((one.first for one in stats), default=None)
        recorded = self._recorded.stats()
        if not self._table.num_rows:
            return recorded, self._recorded.samples, None
        first = self._window()
        fresh = self._fresh(connection, first)
        begin = connection.execute(f"SELECT min(step) FROM ({fresh})").fetchall()[0][0]
        if begin is None:
            return recorded, self._recorded.samples, None
        added, samples = stats_of(connection, fresh)
        known = {one.stat: one for one in recorded}
        # Steps of which the recording has something already are counted once.
        new = f"SELECT DISTINCT stat, step FROM ({fresh}) ANTI JOIN recent USING (stat, step)"
        steps = dict(connection.execute(f"SELECT stat, count(*) FROM ({new}) GROUP BY stat").fetchall())
        for one in added:
            both = [one, known[one.stat]] if one.stat in known else [one]
            known[one.stat] = StatIndex(
                one.stat,
                sum(each.rows for each in both),
                min(each.first for each in both),
                max(each.last for each in both),
                steps.get(one.stat, 0) + sum(each.steps for each in both[1:]),
                sorted({name for each in both for name in each.names}),
            )
        return list(known.values()), samples or self._recorded.samples, begin

    def _window(self) -> int:
        """Return the step from which on what arrived is compared with what is recorded: the recorder is behind by a moment, not by many rows."""
        newest = self._table["step"].slice(max(0, self._table.num_rows - _MOST_BEHIND))
        return int(pc.min(newest).as_py())

    def _fresh(self, connection: Any, first: int) -> str:
        """Return SQL for the rows from a step on that arrived and are not recorded; recorded ones are registered as ``recent``."""
        assert self._recorded is not None
        connection.register("received", self._table)
        recorded = self._recorded.relation(connection, first)
        connection.execute(
            f"CREATE OR REPLACE TEMP TABLE recent AS SELECT stat, step, name, rank FROM ({recorded}) WHERE step >= {first:d}"
        )
        return (
            f"SELECT * FROM received ANTI JOIN recent USING (stat, step, name, rank) WHERE step >= {first:d}"
        )

    def _joined(self, connection: Any, since: int | None) -> str:
        """Return SQL for the rows from a step on, recorded or not."""
        begin = self._found()[2]
        if self._recorded is None or not self._recorded.stats():
            connection.register("received", self._table)
            return "SELECT * FROM received"
        fresh = "" if begin is None else f" UNION ALL {self._fresh(connection, min(begin, self._window()))}"
        recorded = self._recorded.relation(connection, since)
        return f"SELECT * FROM ({recorded}) WHERE step >= {since or 0:d}{fresh}"

    def _recorded_first(self) -> int:
        assert self._recorded is not None
        return min((one.first for one in self._recorded.stats()), default=2**62)

    def close(self) -> None:
        """Let go of the rows. Safe twice."""
        self._table = empty_table("moments")
        if self._recorded is not None:
            self._recorded.close()


def _least(last: int | None, other: int) -> int:
    return other if last is None else min(last, other)
