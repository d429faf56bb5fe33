"""The files of a TrainerMon folder as rows of the stream ``moments``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import StatIndex
from ...errors import ClientError
from ..jsonl.tree import StatisticsFile, StatisticsTree
from ..rows.moment_rows import Progress
from ..rows.table_rows import TableRows
from ..rows.wanted import Chunk, Wanted
from .as_moments import moment_tables
from .csv_table import read_csv_table

__all__ = ["TrainerMonRows", "readings_of"]

_MOST_TOLD = 20
_State = tuple[int, int]


class TrainerMonRows:
    """Rows of TrainerMon's CSV files. What grew or came is read at each refresh; what stayed is kept.

    Where a rank wrote several folders, those of a later one take over from its first step on.

    Parameters
    ----------
    tree : StatisticsTree
        Where the files are.
    """

    def __init__(self, tree: StatisticsTree) -> None:
        self._tree = tree
        self._rows = TableRows()
        self._read: dict[Path, tuple[_State, list[pa.Table], list[str]]] = {}
        self._warnings: list[str] = []
        self._refreshed = 0

    @property
    def version(self) -> str:
        """Changes whenever there is more."""
        return str(self._refreshed)

    @property
    def samples(self) -> bool:
        """False: TrainerMon does not count them."""
        return False

    @property
    def warnings(self) -> list[str]:
        """Sentences about what was left out."""
        return self._warnings

    def refresh(self, progress: Progress | None = None) -> bool:
        """Read the files that are new or changed, and say whether there were any."""
        closed: list[OSError] = []
        files = self._tree.files(closed)
        states: dict[Path, _State] = {}
        for file in files:
            try:
                about = file.path.stat()
            except OSError as error:
                closed.append(error)
            else:
                states[file.path] = (about.st_size, about.st_mtime_ns)
        changed = [file for file in files if self._read.get(file.path, (None,))[0] != states.get(file.path)]
        if not changed and self._read.keys() == states.keys():
            return False
        total, done = sum(states.get(file.path, (0, 0))[0] for file in changed), 0
        for file in changed:
            if file.path in states:
                self._read[file.path] = (states[file.path], *_read(file))
                done += states[file.path][0]
            if progress is not None:
                progress(done, total, "Reading TrainerMon's files")
        self._read = {file.path: self._read[file.path] for file in files if file.path in self._read}
        said = [sentence for _, _, problems in self._read.values() for sentence in problems]
        said += [f"{Path(str(error.filename)).name} cannot be read: {error.strerror}." for error in closed]
        more = [f"{len(said) - _MOST_TOLD} more files have lines that do not fit."]
        self._warnings = said[:_MOST_TOLD] + (more if len(said) > _MOST_TOLD else [])
        tables = self._newest(files)
        rows = TableRows()
        if tables:
            whole = pa.concat_tables(tables)
            rows.append(whole.take(pc.sort_indices(whole["step"])))
        self._rows.close()
        self._rows = rows
        self._refreshed += 1
        return True

    def _newest(self, files: list[StatisticsFile]) -> list[pa.Table]:
        """Return the tables of all files, without the steps that a later folder of the same rank has again."""
        begun: dict[Path, float] = {}
        for file in files:
            folder = file.path.parent
            begun[folder] = min(
                begun.get(folder, float("inf")),
                self._read[file.path][0][1] if file.path in self._read else float("inf"),
            )
        found: list[pa.Table] = []
        taken: dict[tuple[int, str], int] = {}
        for folder in sorted(begun, key=lambda each: (begun[each], str(each)), reverse=True):
            first: dict[tuple[int, str], int] = {}
            for file in files:
                if file.path.parent != folder or file.path not in self._read:
                    continue
                for table in self._read[file.path][1]:
                    key = (file.rank, table["stat"][0].as_py())
                    kept = table.filter(pc.less(table["step"], taken[key])) if key in taken else table
                    found.append(kept)
                    step = pc.min(table["step"]).as_py()
                    first[key] = min(step, first.get(key, step))
            for key, step in first.items():
                taken[key] = min(step, taken.get(key, step))
        return [table for table in found if table.num_rows]

    def stats(self) -> list[StatIndex]:
        """Return what there is."""
        return self._rows.stats()

    def relation(self, connection: Any) -> str:
        """Return SQL for the rows."""
        return self._rows.relation(connection)

    def chunks(self, connect: Callable[[], Any], wanted: Wanted) -> Iterator[Chunk]:
        """Read rows in chunks of whole steps."""
        return self._rows.chunks(connect, wanted)

    def close(self) -> None:
        """Let go of the rows. Safe twice."""
        self._rows.close()
        self._read.clear()


def readings_of(tree: StatisticsTree, kind: str) -> tuple[pa.Table, list[str]]:
    """Return the lines of all files of a kind as they are, with kind and rank before the file's own columns, and sentences on what was left out."""
    tables, said = [], []
    for file in tree.files():
        if file.kind == kind:
            table, problems = read_csv_table(file.path)
            said += problems
            if table.num_rows:
                rows = table.num_rows
                table = table.add_column(0, "kind", pa.array([kind]).take(pa.array([0] * rows)))
                tables.append(table.add_column(1, "rank", pa.array([file.rank] * rows, pa.int32())))
    return pa.concat_tables(tables, promote_options="default") if tables else pa.table({}), said


def _read(file: StatisticsFile) -> tuple[list[pa.Table], list[str]]:
    try:
        lines, problems = read_csv_table(file.path)
    except ClientError as error:
        return [], [error.message]
    return list(moment_tables(file.kind, file.rank, lines)), problems
