"""TrainerMon's folders, imported into run folders of the cache."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import orjson
import pyarrow as pa

from ...errors import ClientError
from ..jsonl.tree import StatisticsFile, StatisticsTree
from ..rows.hidden import newest
from ..rows.import_folder import ROWS, ImportedRows, ImportFolder, is_much, locked, trim_cache, write_part
from ..rows.pieces import MemoryPiece, Piece, Progress
from .csv_moments import moment_tables
from .files import STACKS, CsvPlace, csv_blocks

_MOST_WARNINGS = 20
_SEGMENT_BYTES = 6 << 20
# Size, and time of the last change in nanoseconds.
_State = tuple[int, int]


@dataclass(frozen=True)
class CsvFiles:
    """Whole files of a folder, sentences about what was left out of them, and how far others were read."""

    files: dict[str, _State] = field(default_factory=dict)
    problems: dict[str, list[str]] = field(default_factory=dict)
    parts: dict[str, CsvPlace] = field(default_factory=dict)

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: bytes) -> CsvFiles:
        """Return what :meth:`to_json` gave; else raises ``ValueError``, ``TypeError`` or ``KeyError``."""
        members = orjson.loads(text)
        files = {str(name): (int(size), int(written)) for name, (size, written) in members["files"].items()}
        parts = {str(name): CsvPlace.of_json(each) for name, each in members.get("parts", {}).items()}
        return cls(files, dict(members["problems"]), parts)


class _Read(NamedTuple):
    state: _State
    pieces: list[MemoryPiece]
    problems: list[str]
    failed: bool = False


class ImportedCsvFolder(ImportFolder[CsvFiles]):
    """What was read of the folder of one rank.

    A file is sealed once there is a later one of its kind. The newest of each kind are read from their last
    step on as they grow: what is before that is sealed where it is much, and stays in memory else.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        super().__init__(folder, CsvFiles.of_json)
        self.rank = rank
        self._home = folder
        self._files: dict[str, _State] = {}
        self._memory: dict[str, _Read] = {}
        self._problems: dict[str, list[str]] = {}
        self._parts: dict[str, CsvPlace] = {}

    @property
    def begun(self) -> int:
        """When the first of its files was written to last."""
        times = [*self._files.values(), *(read.state for read in self._memory.values())]
        return min((written for _, written in times), default=0)

    def pieces(self) -> list[Piece]:
        sealed = [piece for part in self.sealed for piece in part.pieces]
        return [*sealed, *(piece for read in self._memory.values() for piece in read.pieces)]

    def problems(self) -> Mapping[str, list[str]]:
        """Return sentences about what was left out, by file."""
        return {**self._problems, **{name: read.problems for name, read in self._memory.items()}}

    def take(self, source: CsvFiles) -> bool:
        self._files |= source.files
        self._problems |= source.problems
        self._parts = {
            name: place for name, place in (self._parts | source.parts).items() if name not in source.files
        }
        return True

    def forget(self) -> None:
        super().forget()
        self._files, self._memory, self._problems, self._parts = {}, {}, {}, {}

    def look(self, states: Mapping[str, _State]) -> tuple[bool, list[str]]:
        """Return whether something that was read is gone, and the files to be read.

        Where a sealed file changed, all are read anew.
        """
        gone = self._memory.keys() - states.keys()
        for name in gone:
            del self._memory[name]
        replaced = any(states.get(name) != state for name, state in self._files.items()) or any(
            (name not in states or self._state(name) != states[name]) and not place.is_of(self._home / name)
            for name, place in self._parts.items()
        )
        if replaced:
            self.forget()
        changed = [name for name, state in states.items() if self._state(name) != state]
        return bool(gone or replaced), changed

    def _state(self, name: str) -> _State | None:
        read = self._memory.get(name)
        return self._files.get(name) if read is None else read.state

    def update(self, files: Mapping[str, StatisticsFile], states: Mapping[str, _State]) -> Iterator[int]:
        """Read what changed, and yield how many bytes each file had."""
        with locked(self.folder):
            self.load()
            _, changed = self.look(states)
            self.prepare()
            newest_files = {files[name].kind: name for name in sorted(states, key=_place)}.values()
            for name in sorted(changed, key=_place):
                yield from self._read(files[name], states[name])
                self._seal(newest_files, rest=True)
            self._seal(newest_files, rest=False)

    def _read(self, file: StatisticsFile, state: _State) -> Iterator[int]:
        """Read what is new of a file, and yield the bytes; all but its end is sealed where that is much."""
        name = file.path.name
        place = done = self._parts.get(name, CsvPlace())
        tables: list[pa.Table] = []
        failed: list[str] = []
        yield done.end
        try:
            # Call stacks hold no statistics.
            for lines, upto in () if file.kind == STACKS else csv_blocks(file.path, place):
                if done.end - place.end >= _SEGMENT_BYTES:
                    # There is more, so that no step goes on behind this.
                    self._commit(tables, CsvFiles(parts={name: done}))
                    place, tables = done, []
                pieces = moment_tables(file.kind, file.rank, lines)
                tables += [MemoryPiece(table).table for table in pieces if table.num_rows]
                yield upto.end - done.end
                done = upto
        except ClientError as error:
            failed = [error.message]
        found = [MemoryPiece(table) for table in tables]
        self._memory[name] = _Read(state, found, failed or done.problems(name), bool(failed))

    def _commit(self, tables: list[pa.Table], source: CsvFiles) -> None:
        rows = pa.concat_tables([ROWS.empty_table(), *tables])
        self.commit(*write_part(rows, source.to_json(), self.folder))
        self.take(source)

    def _seal(self, newest_files: Collection[str], *, rest: bool) -> None:
        """Seal all but the newest files, if they are much; while there is a ``rest``, only what is large."""
        reads = {
            name: read for name, read in self._memory.items() if name not in newest_files and not read.failed
        }
        size = sum(read.state[0] for read in reads.values())
        if size >= _SEGMENT_BYTES or (
            reads and not rest and is_much(size, sum(size for size, _ in self._files.values()))
        ):
            source = CsvFiles(
                {name: read.state for name, read in reads.items()},
                {name: read.problems for name, read in reads.items() if read.problems},
            )
            tables = [piece.table for read in reads.values() for piece in read.pieces]
            self._commit(tables, source)
            for name in reads:
                del self._memory[name]


def _place(name: str) -> tuple[int, ...]:
    """Return the steps in a file's name, and its number among those of the same steps."""
    return tuple(map(int, re.findall(r"\d+", name)))


class TrainerMonRows(ImportedRows):
    """Rows of TrainerMon's CSV files; a refresh reads the files that changed.

    Where a rank wrote several folders, a later one takes over from its first step on.
    """

    def __init__(self, tree: StatisticsTree) -> None:
        super().__init__()
        self._tree = tree
        self._folders: dict[Path, ImportedCsvFolder] = {}

    def refresh(self, progress: Progress | None = None) -> bool:
        first = not self._changes
        closed: list[OSError] = []
        found: dict[Path, dict[str, StatisticsFile]] = {}
        states: dict[Path, dict[str, _State]] = {}
        for file in self._tree.files(closed):
            home = file.path.parent
            try:
                about = file.path.stat()
            except OSError as error:
                closed.append(error)
            else:
                found.setdefault(home, {})[file.path.name] = file
                states.setdefault(home, {})[file.path.name] = about.st_size, about.st_mtime_ns
        more = self._folders.keys() != found.keys()
        self._folders = {
            home: self._folders.get(home) or ImportedCsvFolder(home, next(iter(files.values())).rank)
            for home, files in found.items()
        }
        work = []
        for home, folder in self._folders.items():
            more = folder.load() or more
            gone, changed = folder.look(states[home])
            more = more or gone
            if changed:
                work.append((home, sum(states[home][name][0] for name in changed)))
        if not work and not more and not first:
            return False
        total, done = sum(size for _, size in work), 0
        for home, _ in work:
            for size in self._folders[home].update(found[home], states[home]):
                done += size
                if progress is not None:
                    progress(done, total, "Reading TrainerMon's files")
        sentences = self._sentences(closed)
        if all(file.kind == STACKS for files in found.values() for file in files.values()):
            sentences.append(
                f"There are no statistics here, only from where modules are called: run.readings({STACKS!r})."
            )
        self._count(self._newest(), sentences)
        if first:
            trim_cache()
        return True

    def _newest(self) -> list[Piece]:
        by_rank: dict[int, list[ImportedCsvFolder]] = {}
        for home in sorted(self._folders, key=lambda home: (self._folders[home].begun, str(home))):
            by_rank.setdefault(self._folders[home].rank, []).append(self._folders[home])
        parts = [part for of in by_rank.values() for part in newest([folder.pieces() for folder in of])]
        return [piece for part in parts for piece in part]

    def _sentences(self, closed: list[OSError]) -> list[str]:
        found = [
            sentence
            for folder in self._folders.values()
            for _, sentences in sorted(folder.problems().items())
            for sentence in sentences
        ]
        found += [f"{Path(str(error.filename)).name} cannot be read: {error.strerror}." for error in closed]
        more = [f"{len(found) - _MOST_WARNINGS} more files have lines that do not fit."]
        return found[:_MOST_WARNINGS] + (more if len(found) > _MOST_WARNINGS else [])

    def close(self) -> None:
        super().close()
        self._folders = {}
