"""A process that parses stretches of files.

A process of its own program and not one of ``multiprocessing``: that would run a script that has no ``if __name__ == "__main__"`` a second time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zlib
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import orjson

from ...errors import ClientError
from .cached_file import write_part
from .chunk import CHUNK_COLUMNS, JsonlChunk, Problem, read_chunk
from .tree import StatisticsFile

__all__ = ["ParseProcess", "main"]


class ParseProcess:
    """One such process; used by one thread at a time and ended with its context."""

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
        """Parse a stretch and write its rows to ``folder``; return what was read (without the rows), the file's name and the text's checksum."""
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
                f"The process that was reading {source.name} ended: there may be too little memory. Close other programs and open it again.",
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
