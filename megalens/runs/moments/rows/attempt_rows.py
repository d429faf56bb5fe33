"""The stream ``moments`` of a run whose training went back to a checkpoint: of each step as it was trained last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....protocol import LAST_STEP, StatIndex
from ...run_folder import RunFolder
from .duck import duck_cursor
from .index_sql import stats_of
from .moment_rows import Progress
from .recorded_rows import RecordedRows
from .wanted import Chunk, Wanted

__all__ = ["AttemptRows", "recorded_rows"]


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
