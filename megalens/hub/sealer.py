"""The hub's side of sealing: which tails wait, and the child process that seals them.

Segments without values: what a bounded recording keeps of its oldest tensors.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..protocol import SEALED, STREAMS, Empty, Stream
from .segment_file import read_tail, remove_segment, sorted_by_step, write_beside
from .stream_folder import StreamFile

_SMALL_VALUES = 1024
"""Rows of so many values keep them: token ids and their texts among them."""
WORTH_BYTES = 1000
"""Bytes a row above which most of a file are values."""


def can_be_bare(stream: Stream) -> bool:
    """Return whether rows of a stream have values that can go without their statistics."""
    return {"values", "shape", "compressor"} <= set(stream.schema.names)


def give_up_values(path: Path, stream: Stream, rows: int) -> Path:
    """Replace a segment, or a tail that nobody writes to or seals, by a segment without the large values.

    Who has the old file open reads it to its end. Its rows are then as the compressor ``Empty`` makes them.

    Returns
    -------
    Path
        The segment.

    Raises
    ------
    OSError, HubError, pyarrow.ArrowException
        When it cannot be read or written; the file is then as it was.
    """
    import pyarrow.parquet as pq

    if not path.exists():
        # A sealer that was ended had done it all but for saying so.
        path = path.with_suffix(SEALED)
    if path.suffix == SEALED:
        table = pq.read_table(path, partitioning=None, memory_map=False)
    else:
        with open(path, "rb") as file:
            schema, batches = read_tail(file, path.name, rows)
            table = sorted_by_step(pa.Table.from_batches(batches, schema))
    target = path.with_suffix(SEALED)
    bare = _bare(table.combine_chunks())
    write_beside(target, stream, bare.schema, [bare])
    if path != target:
        path.unlink(missing_ok=True)
    return target


def _bare(table: pa.Table) -> pa.Table:
    """Return rows of which those with many values have none."""
    values = _one(table["values"])
    lengths = np.diff(values.offsets.to_numpy())
    gone = lengths > _SMALL_VALUES
    shape = _one(table["shape"])
    sizes, ends = shape.flatten().to_numpy(zero_copy_only=False).copy(), np.cumsum(np.diff(shape.offsets))
    sizes[ends[gone] - 1] = 0
    texts = np.where(gone, str(Empty()), table["compressor"].to_numpy())
    labels = _one(table["labels"]) if "labels" in table.schema.names else None
    columns = {
        "values": _without(values, gone),
        "shape": pa.ListArray.from_arrays(
            pa.array(np.append(0, ends), pa.int32()), pa.array(sizes, pa.int32())
        ),
        "compressor": pa.array(texts, pa.utf8()),
        **({} if labels is None else {"labels": _without(labels, gone)}),
    }
    for name, column in columns.items():
        at = table.schema.get_field_index(name)
        field = table.schema.field(at)
        table = table.set_column(at, field, column.cast(field.type))
    return table


def _without(lists: pa.ListArray, gone: np.ndarray) -> pa.ListArray:
    """Return lists of which some are empty."""
    lengths = np.where(gone, 0, np.diff(lists.offsets.to_numpy()))
    offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
    return pa.ListArray.from_arrays(offsets, lists.filter(pa.array(~gone)).flatten())


def _one(column: pa.ChunkedArray) -> pa.ListArray:
    chunk = column.combine_chunks()
    return chunk.chunk(0) if isinstance(chunk, pa.ChunkedArray) else chunk


_HURRY_BYTES = 512 * 1024 * 1024
"""When more waits than this, the child no longer waits for idle cores, until half of it is sealed."""
_MOST_DEATHS = 3
_KILL_SECONDS = 1.0


class Sealer:
    """Seals tails one after the other in a child process, and never waits for it.

    A child that dies is started again, and a tail that cannot be sealed stays as it is. All methods are
    called by the recorder's thread.
    """

    def __init__(self) -> None:
        self.failed: dict[StreamFile, str] = {}
        """Tails that cannot be sealed, and why."""
        self._waiting: deque[StreamFile] = deque()
        self._sealing: StreamFile | None = None
        self._unwanted = False
        self._child: subprocess.Popen[bytes] | None = None
        self._hurries = False
        self._output = b""
        self._deaths = 0

    @property
    def waiting_bytes(self) -> int:
        return sum(file.bytes for file in self._all())

    def add(self, tail: StreamFile) -> None:
        """Queue a tail to which nothing is added any more."""
        self._waiting.append(tail)

    def leave(self, tail: StreamFile) -> None:
        """Take a tail from the child where it is at it; it waits again then."""
        if tail is self._sealing:
            self._end_child()

    def forget(self, tail: StreamFile) -> None:
        """Forget a tail that was removed."""
        if tail is self._sealing:
            self._unwanted = True
        elif tail in self._waiting:
            self._waiting.remove(tail)
        self.failed.pop(tail, None)

    def poll(self) -> None:
        """Read the child's answers, and give it the next tail."""
        if self._sealing is not None:
            self._read_answer(self._sealing)
        if self._sealing is None and not self._waiting:
            return
        waits = self.waiting_bytes
        if waits > (_HURRY_BYTES // 2 if self._hurries else _HURRY_BYTES):
            # A process may not raise its own priority: another one takes its place.
            if not self._hurries:
                self._end_child()
                self._hurries = True
        elif self._hurries and self._sealing is None:
            self._end_child()
            self._hurries = False
        if self._sealing is None:
            self._sealing = self._waiting.popleft()
            self._send(self._sealing)

    def close(self) -> list[StreamFile]:
        """Leave the child alone, and return the tails that nobody seals, those included that could not be.

        The child ends by itself once it has sealed its current tail, since nothing more comes.
        """
        if self._sealing is not None:
            # It may be done, or dead.
            self._read_answer(self._sealing)
        self._close_pipes()
        self._sealing = None
        left = [*self._waiting, *self.failed]
        self._waiting.clear()
        self.failed.clear()
        return left

    def _all(self) -> Iterable[StreamFile]:
        yield from self._waiting
        if self._sealing is not None:
            yield self._sealing

    def _read_answer(self, tail: StreamFile) -> None:
        assert self._child is not None
        assert self._child.stdout is not None
        try:
            data = os.read(self._child.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return
        self._output += data
        if not data:
            self._died(tail)
        elif self._output.endswith(b"\n"):
            answer, self._output = json.loads(self._output), b""
            self._sealing, self._deaths = None, 0
            if self._unwanted:
                _remove_segment(tail)
            elif "failed" in answer:
                self.failed[tail] = answer["failed"]
            else:
                tail.become(tail.path.with_suffix(SEALED), answer["bytes"])
            self._unwanted = False

    def _send(self, tail: StreamFile) -> None:
        try:
            if self._child is None:
                self._child = _start(self._hurries)
            assert self._child.stdin is not None
            # It waits for this line, so the pipe has capacity.
            self._child.stdin.write(_job(tail))
        except OSError:
            self._died(tail)

    def _died(self, tail: StreamFile) -> None:
        self._deaths += 1
        self._end_child()
        if self._deaths >= _MOST_DEATHS and tail in self._waiting:
            self._deaths = 0
            self._waiting.remove(tail)
            self.failed[tail] = "the process that seals it ends without a word"

    def _end_child(self) -> None:
        if self._child is not None:
            self._child.kill()
            # One that waits for a core to die on does nothing more.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(_KILL_SECONDS)
        self._close_pipes()
        tail, self._sealing = self._sealing, None
        if tail is None:
            return
        if self._unwanted:
            _remove_segment(tail)
        else:
            # Where it was sealed just before, only the answer is repeated.
            self._waiting.appendleft(tail)
        self._unwanted = False

    def _close_pipes(self) -> None:
        child, self._child, self._output = self._child, None, b""
        for pipe in (child.stdin, child.stdout) if child is not None else ():
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()


def seal_detached(tails: Iterable[StreamFile]) -> subprocess.Popen[bytes]:
    """Seal tails in a process that outlives this one; raises ``OSError`` when it cannot be started."""
    with tempfile.TemporaryFile() as jobs:
        jobs.writelines(_job(tail) for tail in tails)
        jobs.seek(0)
        return _popen(["--hurry"], stdin=jobs, stdout=subprocess.DEVNULL)


def _start(hurries: bool) -> subprocess.Popen[bytes]:
    child = _popen(["--hurry"] if hurries else [], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    return child


def _popen(options: list[str], **streams: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "megalens.hub.sealing", *options]
    # Ctrl+C in the terminal of a training is for the training. What it writes to stderr nobody reads.
    return subprocess.Popen(command, bufsize=0, stderr=subprocess.DEVNULL, start_new_session=True, **streams)


def _remove_segment(tail: StreamFile) -> None:
    with contextlib.suppress(OSError):
        remove_segment(tail.path.with_suffix(SEALED))


def _job(tail: StreamFile) -> bytes:
    stream = tail.stream
    job: dict[str, Any] = {"tail": str(tail.path), "stream": stream.name}
    job |= {"rows": tail.rows, "file": tail.identity}
    if stream.name not in STREAMS:
        job["declared"] = stream.declaration
    return json.dumps(job).encode() + b"\n"
