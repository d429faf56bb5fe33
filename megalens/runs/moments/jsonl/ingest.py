"""Bringing files up to date: new bytes are cut at line ends, parsed (many in several processes) and added."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple

import orjson
import pyarrow as pa

from ...errors import ClientError
from ..rows.import_folder import ROWS, locked, write_part
from ..rows.pieces import Progress
from .chunk import read_chunk
from .imported_file import ImportedFile, Stretch, tail_digest, text_crc
from .tree import StatisticsFile

_CHUNK_BYTES = 12 << 20
_LINE_BYTES = 48 << 20
_BLOCK = 1 << 22
_ALONE_BYTES = 48 << 20
_MOST_PROCESSES = 8

_Written = tuple[str, int, Stretch]


# A process that parses stretches of files.
#
# A process of its own program and not one of ``multiprocessing``: that would run a script that has no ``if
# __name__ == "__main__"`` a second time.
class ParseProcess:
    """A process that parses stretches in turn; ended with its context."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            # As a module of a package that imports it, it would be warned of.
            [sys.executable, "-c", f"from {__name__} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> ParseProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.__exit__(kind, error, trace)

    def send(self, source: StatisticsFile, begin: int, end: int, folder: Path) -> None:
        """Have a stretch parsed and written by :func:`write_part`."""
        assert self._process.stdin is not None
        # As bytes: a name may be no UTF-8 text.
        task = [os.fsencode(source.path).hex(), source.kind, source.rank, begin, end, str(folder)]
        with contextlib.suppress(BrokenPipeError):
            # One that ended says so when it is asked.
            self._process.stdin.write(orjson.dumps(task) + b"\n")
            self._process.stdin.flush()

    def receive(self, name: str) -> _Written:
        """Return what came of the first stretch of which that was not said yet."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise ClientError(
                f"The process that was reading {name} ended: there may be too little memory. Close other "
                "programs and open it again.",
                code="unreadable",
            )
        answer = orjson.loads(line)
        if "error" in answer:
            raise ClientError(f"{name} could not be read: {answer['error']}", code="unreadable")
        return answer["file"], answer["first_step"], Stretch.of_json(answer["stretch"].encode())


def main() -> None:
    """Answer tasks, a line of JSON each, until there are no more."""
    for line in sys.stdin.buffer:
        try:
            answer = _answer(*orjson.loads(line))
        except (OSError, MemoryError) as error:
            answer = {"error": str(error) or type(error).__name__}
        try:
            sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Whoever asked is dead.
            os._exit(1)


def _answer(path: str, kind: str, rank: int, begin: int, end: int, folder: str) -> dict[str, object]:
    source = StatisticsFile(Path(os.fsdecode(bytes.fromhex(path))), kind, rank)
    # Only a record without a step needs to know the number of its line.
    rows, stretch = _parsed(source, begin, end, lambda: _lines_before(source, begin))
    file, first_step = write_part(rows, stretch.to_json(), Path(folder))
    return {"file": file, "first_step": first_step, "stretch": stretch.to_json().decode()}


def _parsed(
    source: StatisticsFile, begin: int, end: int, before: Callable[[], int], crc: int = 0
) -> tuple[pa.Table, Stretch]:
    with source.path.open("rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
    rows, stretch = read_chunk(data, begin, source.kind, source.rank, before)
    return rows, _signed(source, stretch, zlib.crc32(data, crc))


def _signed(source: StatisticsFile, stretch: Stretch, crc: int) -> Stretch:
    found = os.stat(source.path)
    tail = tail_digest(source.path, stretch.end)
    return replace(stretch, crc=crc, inode=found.st_ino, written=found.st_mtime_ns, tail=tail)


def _lines_before(source: StatisticsFile, begin: int) -> int:
    lines = 0
    with source.path.open("rb") as file:
        while begin and (block := file.read(min(_BLOCK, begin))):
            lines, begin = lines + block.count(b"\n"), begin - len(block)
    return lines


class _LineRange(NamedTuple):
    """Bytes of a file: complete lines, or (``long``) a part of a line too long to be read."""

    begin: int
    end: int
    long: bool = False
    done: bool = True


def bring_up_to_date(
    files: Sequence[ImportedFile], progress: Progress | None = None
) -> tuple[bool, list[str]]:
    """Read what was appended to files; return whether there was any and which files cannot be read.

    ``progress`` is called with (bytes done, bytes in all, what is being done) and may raise to cancel; what
    was read until then stays.
    """
    changed = False
    problems = []
    work: list[tuple[ImportedFile, int]] = []
    for file in files:
        before = (file.read.end, file.replaced)
        try:
            # A look at what is sealed first: another process may have read further.
            changed = file.load() or changed
            size = file.look()
        except ClientError as error:
            problems.append(str(error))
            continue
        changed = changed or before != (file.read.end, file.replaced)
        if size > file.read.end or file.replaced > before[1]:
            work.append((file, size))
    total = sum(size - file.read.end for file, size in work)
    done = 0
    with ExitStack() as stack:
        pool: list[ParseProcess] = []
        if total > _ALONE_BYTES:
            pool = [stack.enter_context(ParseProcess()) for _ in range(_processes(total))]
        for file, _ in work:
            with locked(file.folder):
                file.load()
                size = file.look()
                file.prepare()
                begin = file.read.end
                for end in _add_all(file, _cuts(file, size), pool):
                    changed = True
                    if progress is not None:
                        progress(done + end - begin, total, f"reading {file.source.name}")
            done += file.read.end - begin
    return changed, problems


def _processes(total: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _MOST_PROCESSES, total // _CHUNK_BYTES))


def _add_all(file: ImportedFile, cuts: Iterator[_LineRange], pool: list[ParseProcess]) -> Iterator[int]:
    """Read stretches, in processes where there are any, add them in order, and yield how far it got."""
    waiting: deque[tuple[_LineRange, ParseProcess | None]] = deque()
    for number, cut in enumerate(cuts):
        process = pool[number % len(pool)] if pool else None
        if process is not None and not cut.long:
            process.send(file.source, cut.begin, cut.end, file.folder)
        waiting.append((cut, process))
        # Two ahead of each process: bounded, and none is ever without work.
        while len(waiting) > 2 * len(pool):
            yield _add(file, *waiting.popleft())
    while waiting:
        yield _add(file, *waiting.popleft())


def _add(file: ImportedFile, cut: _LineRange, process: ParseProcess | None) -> int:
    if cut.long:
        _skip(file, cut)
    elif process is not None:
        file.add_written(*process.receive(file.source.name))
    else:
        crc = file.newest.crc
        file.add(*_parsed(file.source, cut.begin, cut.end, lambda: file.read.lines, crc))
    file.seal(rest=file.newest.end - file.newest.begin < _CHUNK_BYTES // 2)
    return file.read.end


def _skip(file: ImportedFile, cut: _LineRange) -> None:
    skipped = Stretch(cut.begin, cut.end, lines=int(cut.done), skipping=not cut.done)
    if not file.read.skipping:
        what = "it is longer than any record can be, and is left out"
        skipped = replace(skipped, problems=((1, what),), left_out=1)
    crc = text_crc(file.source.path, cut.begin, cut.end, file.newest.crc)
    file.add(ROWS.empty_table(), _signed(file.source, skipped, crc))


def _cuts(file: ImportedFile, size: int) -> Iterator[_LineRange]:
    """Cut what is new at line ends. An incomplete last line waits; one that lacks only its end counts."""
    begin, inside = file.read.end, file.read.skipping
    with file.source.path.open("rb") as text:
        while begin < size:
            target = min(begin + _CHUNK_BYTES, size)
            end = None if inside else _line_end(text, begin, target, last=True)
            if end is None and not inside:
                # One line that is longer than a stretch.
                end = _line_end(text, target, min(size, begin + _LINE_BYTES))
            if end is None and (inside or size - begin > _LINE_BYTES):
                end = _line_end(text, begin if inside else begin + _LINE_BYTES, size)
                yield _LineRange(begin, end or size, long=True, done=end is not None)
                begin, inside = end or size, False
                continue
            if (end is None or target == size) and _is_complete(text, end or begin, size):
                end = size
            if end is None:
                return
            yield _LineRange(begin, end)
            begin = end
            if target == size:
                return


def _line_end(text: BinaryIO, begin: int, end: int, *, last: bool = False) -> int | None:
    """Return the offset behind the first (or ``last``) end of a line in a range."""
    found = None
    text.seek(begin)
    while begin < end and (last or found is None) and (block := text.read(min(_BLOCK, end - begin))):
        place = block.rfind(b"\n") if last else block.find(b"\n")
        found = found if place < 0 else begin + place + 1
        begin += len(block)
    return found


def _is_complete(text: BinaryIO, begin: int, size: int) -> bool:
    """Whether the last line lacks only its end: no part of a JSON object is an object itself."""
    if size - begin > _LINE_BYTES:
        return False
    text.seek(begin)
    data = text.read(size - begin)
    if not data.rstrip().endswith(b"}"):
        return False
    return not read_chunk(data, 0, "param", -1)[1].left_out
