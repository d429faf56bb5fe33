"""The files of one recording."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ..protocol import CheckedBody, make_run_folder, replace_file
from .options import HubError
from .sealer import WORTH_BYTES, Sealer, can_be_bare, give_up_values, seal_detached
from .segment_file import seal_tail, sealed_bytes
from .stream_folder import StreamFile, StreamFolder

_TAIL_BYTES = 32 * 1024 * 1024
_PARTS = 32
"""A bounded recording gives up about one part in so many of its bytes at a time."""
_BARE_PART = 8
"""Rows without values may take one part in so many of a bounded recording."""
_BARE_AT_ONCE = 8
"""Segments of which values are given up together: the recorder writes nothing meanwhile."""
_CLOSE_SECONDS = 0.5
_SEALED_PER_SECOND = 32 * 1024 * 1024
"""What is sealed at least, in bytes, unless every core is busy."""


@dataclass(frozen=True)
class GivenUp:
    """What a recording lacks because it may not take more bytes.

    ``values`` says that rows lack only their values.
    """

    rows: int
    first_step: int
    last_step: int
    values: bool = False


class RecordingFolder:
    """The run folder that a recorder writes, made here unless a recording goes on in it (``resumes``).

    ``limit_bytes`` is the bound of :meth:`keep_newest`, ``mode`` as of ``make_run_folder``. Raises
    ``OSError``.
    """

    def __init__(
        self, path: Path, limit_bytes: int | None = None, *, mode: int | None = None, resumes: bool = False
    ) -> None:
        self.path = path
        self.streams: dict[str, StreamFolder] = {}
        self._limit = limit_bytes
        self._mode = mode
        self._began = time.monotonic()
        self._sealer = Sealer()
        self._described = False
        make_run_folder(path, mode, exist_ok=resumes)

    def deleted(self) -> bool:
        """Whether the recording was deleted: its ``run.json`` goes last."""
        return self._described and not os.path.lexists(self.path / "run.json")

    def mend(self, *, again: bool) -> list[StreamFile]:
        """Return the files that are gone; ``again`` makes the folder again where somebody removed it.

        Raises ``OSError``, also for a folder that was removed and is not to be made again.
        """
        if again:
            make_run_folder(self.path, self._mode, exist_ok=True)
        else:
            self.path.stat()
        gone = [file for stream in self.streams.values() for file in stream.gone()]
        for file in gone:
            self._sealer.forget(file)
        return gone

    def append(self, body: CheckedBody) -> None:
        """Add rows to their stream's folder, made when its first rows come."""
        stream = body.declared
        folder = self.streams.get(stream.name)
        if folder is None:
            size = _TAIL_BYTES if self._limit is None else min(_TAIL_BYTES, self._limit // _PARTS)
            folder = StreamFolder(self.path, stream, size, self._began, self._sealer.add)
            self.streams[stream.name] = folder
        folder.append(body)

    def seal(self) -> str | None:
        """Start sealing the tails that wait for it; return a sentence about those that cannot be, or None."""
        self._sealer.poll()
        return self._unsealed_words(self._sealer.failed)

    def keep_newest(self) -> Iterator[GivenUp]:
        """Give up the oldest of bounded streams where the recording exceeds its limit; say what.

        Large values of tensors go first, of a few segments at a time. Where that is not enough, or rows
        without values take an eighth of the limit, whole segments go, and a quarter of the limit is made free
        at once, so that this comes seldom. Streams that are kept whole (scalars, audit) stay. Raises
        ``OSError``.
        """
        if self._limit is None or self.bytes <= self._limit:
            return
        yield from self._give_up_values(self._limit)
        if self.bytes > self._limit:
            yield from self._remove_oldest(self._limit)

    def _remove_oldest(self, limit: int) -> Iterator[GivenUp]:
        excess = self.bytes - limit * 3 // 4
        bounded = [folder for folder in self.streams.values() if folder.stream.policy.keep == "newest"]
        files = [(file, folder) for folder in bounded for file in folder.closed_files()]
        gone: list[StreamFile] = []
        for file, folder in sorted(
            files, key=lambda each: -1 if each[0].last_step is None else each[0].last_step
        ):
            if excess <= 0:
                break
            folder.remove(file)
            self._sealer.forget(file)
            gone.append(file)
            excess -= file.bytes
        yield from _given(gone)

    def _give_up_values(self, limit: int) -> Iterator[GivenUp]:
        files = [
            file
            for folder in self.streams.values()
            if folder.stream.policy.keep == "newest" and can_be_bare(folder.stream)
            for file in folder.closed_files()
        ]
        if sum(file.bytes for file in files if file.bare) > limit // _BARE_PART:
            return
        bare: list[StreamFile] = []
        for file in sorted(files, key=lambda each: -1 if each.last_step is None else each.last_step):
            if file.bare or file.bytes <= WORTH_BYTES * file.rows:
                continue
            self._sealer.leave(file)
            try:
                segment = give_up_values(file.path, file.stream, file.rows)
            except (HubError, pa.ArrowException):
                # It cannot be read: it goes as a whole when its turn comes.
                continue
            self._sealer.forget(file)
            file.become(segment, segment.stat().st_size)
            file.bare = True
            bare.append(file)
            if self.bytes <= limit or len(bare) == _BARE_AT_ONCE:
                break
        yield from _given(bare, values=True)

    @property
    def bytes(self) -> int:
        """Bytes that the streams take."""
        # Other threads ask too.
        return sum(file.bytes for folder in list(self.streams.values()) for file in list(folder.files))

    def write_description(self, description: Mapping[str, object]) -> None:
        """Replace ``run.json`` atomically, adding the streams' summaries."""
        streams = {name: folder.summary() for name, folder in self.streams.items()}
        text = json.dumps({**description, "streams": streams}, ensure_ascii=False, allow_nan=False, indent=1)
        replace_file(self.path / "run.json", f"{text}\n".encode(), mode=None, sync=True)
        self._described = True

    def finish(self) -> str | None:
        """Close every stream and seal what can be within half a second; a detached process seals the rest.

        Returns a sentence about tails that cannot be sealed; None where there are none.
        """
        until = time.monotonic() + _CLOSE_SECONDS
        for folder in self.streams.values():
            folder.close()
        rest: list[StreamFile] = []
        failed: dict[StreamFile, str] = {}
        for tail in sorted(self._sealer.close(), key=lambda file: file.bytes):
            if tail.bytes > (until - time.monotonic()) * _SEALED_PER_SECOND:
                rest.append(tail)
                continue
            try:
                segment = seal_tail(tail.path, tail.stream, rows=tail.rows, identity=tail.identity)
                tail.become(segment, sealed_bytes(segment))
            except (OSError, HubError, pa.ArrowException) as error:
                failed[tail] = getattr(error, "strerror", None) or str(error)
        if rest:
            try:
                seal_detached(rest)
            except OSError as error:
                failed |= dict.fromkeys(rest, error.strerror or str(error))
        return self._unsealed_words(failed)

    def close(self) -> None:
        """Close the files as they are. Safe twice."""
        for folder in self.streams.values():
            folder.close()
        self._sealer.close()

    def _unsealed_words(self, failed: Mapping[StreamFile, str]) -> str | None:
        if not failed:
            return None
        tail, why = next(iter(failed.items()))
        name = tail.path.relative_to(self.path)
        others = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        return f"{name}{others} could not be sealed to Parquet: {why}. It stays readable as it is."


def _given(files: Sequence[StreamFile], *, values: bool = False) -> Iterator[GivenUp]:
    steps = [step for file in files for step in (file.first_step, file.last_step) if step is not None]
    if files:
        yield GivenUp(sum(file.rows for file in files), min(steps, default=0), max(steps, default=0), values)
