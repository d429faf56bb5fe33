"""Bringing files up to date: new bytes are cut at line ends, parsed (many in several processes) and added."""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import orjson

from ...errors import ClientError
from ..rows.cache_folder import locked
from ..rows.moment_rows import Progress
from .cached_file import CachedFile, write_part
from .chunk import CHUNK_COLUMNS, JsonlChunk, Problem, read_chunk
from .tree import StatisticsFile

_CHUNK_BYTES = 24 << 20
_LINE_BYTES = 256 << 20
_BLOCK = 1 << 22
_ALONE_BYTES = 48 << 20
_MOST_PROCESSES = 8


# A process that parses stretches of files.
#
# A process of its own program and not one of ``multiprocessing``: that would run a script that has no ``if
# __name__ == "__main__"`` a second time.
class ParseProcess:
    """A process that parses; used by one thread at a time and ended with its context."""

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
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        if error is not None:
            self._process.kill()
        self._process.wait()
        self._process.stdout.close()

    def parse(
        self, source: StatisticsFile, begin: int, end: int, folder: Path
    ) -> tuple[JsonlChunk, str, int]:
        """Parse a stretch into ``folder``; return what was read without rows, file name, checksum."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        task = {
            # As bytes: a name may be no UTF-8 text.
            "path": os.fsencode(source.path).hex(),
            "begin": begin,
            "end": end,
            "kind": source.kind,
            "rank": source.rank,
            "folder": str(folder),
        }
        self._process.stdin.write(orjson.dumps(task) + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise ClientError(
                f"The process that was reading {source.name} ended: there may be too little memory. Close "
                "other programs and open it again.",
                code="unreadable",
            )
        answer = orjson.loads(line)
        if "error" in answer:
            raise ClientError(f"{source.name} could not be read: {answer['error']}", code="unreadable")
        chunk = JsonlChunk(
            CHUNK_COLUMNS.empty_table(),
            np.array(answer["records"], np.int64).reshape(-1, 5),
            answer["layouts"],
            answer["lines"],
            [Problem(*problem) for problem in answer["problems"]],
            answer["left_out"],
        )
        return chunk, answer["file"], answer["crc"]


def main() -> None:
    """Answer tasks, a line of JSON each, until there are no more."""
    for line in sys.stdin.buffer:
        try:
            answer = _answer(orjson.loads(line))
        except (OSError, MemoryError) as error:
            answer = {"error": str(error) or type(error).__name__}
        sys.stdout.buffer.write(orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY) + b"\n")
        sys.stdout.buffer.flush()


def _answer(task: dict[str, object]) -> dict[str, object]:
    begin, end = int(str(task["begin"])), int(str(task["end"]))
    with open(bytes.fromhex(str(task["path"])), "rb") as file:
        file.seek(begin)
        data = file.read(end - begin)
        # Only a record without a step needs to know the number of its line.
        chunk = read_chunk(
            data, begin, str(task["kind"]), int(str(task["rank"])), lambda: _lines_before(file, begin)
        )
    return {
        "file": write_part(chunk.table, Path(str(task["folder"]))),
        "crc": zlib.crc32(data),
        "records": chunk.records,
        "layouts": chunk.layouts,
        "lines": chunk.lines,
        "problems": [[problem.line, problem.what] for problem in chunk.problems],
        "left_out": chunk.left_out,
    }


def _lines_before(file: BinaryIO, begin: int) -> int:
    file.seek(0)
    lines, left = 0, begin
    while left and (block := file.read(min(1 << 22, left))):
        lines, left = lines + block.count(b"\n"), left - len(block)
    return lines


@dataclass(frozen=True)
class _Stretch:
    """Bytes of a file: complete lines, or (``long``) a part of a line too long to be read."""

    begin: int
    end: int
    long: bool = False
    done: bool = True


def bring_up_to_date(files: Sequence[CachedFile], progress: Progress | None = None) -> tuple[bool, list[str]]:
    """Parse what was appended to files; return whether there was any and which files cannot be read.

    ``progress`` is called with (bytes done, bytes in all, what is being done) and may raise to cancel; what
    was parsed until then is stored.
    """
    changed = False
    problems = []
    work: list[tuple[CachedFile, int]] = []
    for file in files:
        before = (file.offset, file.replaced)
        try:
            # A look at what is on disk first: another process may have read further.
            file.load()
            size = file.look()
        except ClientError as error:
            problems.append(str(error))
            continue
        changed = changed or before != (file.offset, file.replaced)
        if size > file.offset:
            work.append((file, size))
    total = sum(size - file.offset for file, size in work)
    done = 0
    with ExitStack() as stack:
        pool: list[ParseProcess] = []
        if total > _ALONE_BYTES:
            pool = [stack.enter_context(ParseProcess()) for _ in range(_processes(total))]
        for file, _ in work:
            with locked(file.folder):
                file.load()
                size = file.look()
                before_bytes = file.offset
                try:
                    for end in _add_stretches(file, _stretches(file, size), pool):
                        changed = True
                        if progress is not None:
                            progress(done + end - before_bytes, total, f"reading {file.source.name}")
                finally:
                    if file.offset > before_bytes:
                        file.save()
            done += file.offset - before_bytes
    return changed, problems


def _processes(total: int) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _MOST_PROCESSES, total // _CHUNK_BYTES))


def _add_stretches(
    file: CachedFile, stretches: Iterator[_Stretch], pool: list[ParseProcess]
) -> Iterator[int]:
    """Parse stretches, in processes where there are any, add them in order, and yield how far it got."""
    source = file.source
    if not pool:
        for stretch in stretches:
            if stretch.long:
                _skip(file, stretch)
            else:
                with source.path.open("rb") as text:
                    text.seek(stretch.begin)
                    data = text.read(stretch.end - stretch.begin)
                chunk = read_chunk(data, stretch.begin, source.kind, source.rank, lambda: file.lines)
                name = write_part(chunk.table, file.folder)
                file.add(chunk, name, stretch.begin, stretch.end, zlib.crc32(data))
            yield file.offset
        return
    idle = list(pool)
    with ThreadPoolExecutor(len(pool)) as threads:

        def parse(stretch: _Stretch) -> tuple[JsonlChunk, str, int]:
            process = idle.pop()
            try:
                return process.parse(source, stretch.begin, stretch.end, file.folder)
            finally:
                idle.append(process)

        waiting = []
        for stretch in stretches:
            waiting.append((stretch, None if stretch.long else threads.submit(parse, stretch)))
            # Two ahead of each process: bounded, and none is ever without work.
            while len(waiting) > 2 * len(pool):
                yield _take(file, *waiting.pop(0))
        for stretch, parsed in waiting:
            yield _take(file, stretch, parsed)


def _take(file: CachedFile, stretch: _Stretch, parsed: Future[tuple[JsonlChunk, str, int]] | None) -> int:
    if parsed is None:
        _skip(file, stretch)
    else:
        chunk, name, crc = parsed.result()
        file.add(chunk, name, stretch.begin, stretch.end, crc)
    return file.offset


def _skip(file: CachedFile, stretch: _Stretch) -> None:
    crc, left = 0, stretch.end - stretch.begin
    with file.source.path.open("rb") as text:
        text.seek(stretch.begin)
        while left and (block := text.read(min(_BLOCK, left))):
            crc, left = zlib.crc32(block, crc), left - len(block)
    file.skip(stretch.end, int(stretch.done), done=stretch.done, crc=crc)


def _stretches(file: CachedFile, size: int) -> Iterator[_Stretch]:
    """Cut what is new at line ends. An incomplete last line waits; one that lacks only its end counts."""
    begin = file.offset
    inside = file.skipping
    with file.source.path.open("rb") as text:
        while begin < size:
            if inside:
                end = _line_end(text, begin, size)
                yield _Stretch(begin, end or size, long=True, done=end is not None)
                begin, inside = end or size, False
                continue
            target = min(begin + _CHUNK_BYTES, size)
            cut = _last_end(text, begin, target)
            if cut is None:
                # One line that is longer than a stretch.
                cut = _line_end(text, target, min(size, begin + _LINE_BYTES))
                if cut is None and size - begin > _LINE_BYTES:
                    end = _line_end(text, begin + _LINE_BYTES, size)
                    yield _Stretch(begin, end or size, long=True, done=end is not None)
                    begin = end or size
                    continue
            if cut is None or (target == size and cut < size):
                complete = begin if cut is None else cut
                if _is_complete(text, complete, size):
                    cut = size
            if cut is None:
                return
            yield _Stretch(begin, cut)
            begin = cut
            if target == size:
                return


def _last_end(text: BinaryIO, begin: int, end: int) -> int | None:
    """Return the offset behind the last end of a line in a range."""
    at = end
    while at > begin:
        low = max(begin, at - _BLOCK)
        text.seek(low)
        found = text.read(at - low).rfind(b"\n")
        if found >= 0:
            return int(low + found + 1)
        at = low
    return None


def _line_end(text: BinaryIO, begin: int, end: int) -> int | None:
    """Return the offset behind the first end of a line in a range."""
    at = begin
    text.seek(at)
    while at < end:
        block = text.read(min(_BLOCK, end - at))
        if not block:
            return None
        found = block.find(b"\n")
        if found >= 0:
            return int(at + found + 1)
        at += len(block)
    return None


def _is_complete(text: BinaryIO, begin: int, size: int) -> bool:
    """Whether the last line lacks only its end: no part of a JSON object is an object itself."""
    if size - begin > _LINE_BYTES:
        return False
    text.seek(begin)
    data = text.read(size - begin)
    if not data.rstrip().endswith(b"}"):
        return False
    return not read_chunk(data, 0, "param", -1).left_out
