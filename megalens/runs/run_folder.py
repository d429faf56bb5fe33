"""Reading a run folder: ``run.json`` and its streams, complete or cut short by a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from ..hub.discovery import live_hubs
from ..protocol import LAST_STEP, STREAMS, Streams, attempt_folders, parse_json, shown_text
from ..protocol.messages_generated import Hello, RunState, Status
from .errors import ClientError
from .query import Query
from .recorded_streams import KnownFiles, RecordedStreams
from .run_header import hello_from_zero, read_header
from .run_words import attempt_words, lacking_words
from .status import bare_hello
from .tensor_index import TensorIndex

_LAYERS_FROM_ONE = 1
_MOST_WARNINGS = 20
_STATES = ("waiting", "training", "paused", "idle", "finished", "lost")


class RunFolder:
    """One recorded run on disk.

    Parameters
    ----------
    path : str or path
        The run folder. Only ``run.json`` is read here; streams are read when asked for.

    Raises
    ------
    ClientError
        ``not-found`` when the folder holds no run, ``unreadable`` when ``run.json`` is not what it should be,
        ``version-mismatch`` when it is of a newer format.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.header = read_header(self.path)
        self.streams = Streams(STREAMS.values())
        self._unreadable = self.streams.learn(self.header.get("announced", {}))
        self.earlier: list[tuple[RunFolder, int]] = []
        """Earlier attempts before a return to a checkpoint, oldest first, each with the step that ends it."""
        self._take_earlier()
        self._files = self._read_with(KnownFiles())

    def reopened(self) -> RunFolder:
        """Return a fresh object that reads ``run.json`` anew and shares what either learns of the streams."""
        other = RunFolder(self.path)
        if other.id == self.id:
            other._files = other._read_with(self._files.known)
            known = {part.id: part for part, _ in self.earlier}
            other.earlier = [(known.get(part.id, part).reopened(), until) for part, until in other.earlier]
        return other

    def _read_with(self, known: KnownFiles) -> RecordedStreams:
        return RecordedStreams(self.path, self.streams, self.header["format"] == _LAYERS_FROM_ONE, known)

    def _take_earlier(self) -> None:
        until = LAST_STEP + 1
        for attempt in reversed(attempt_folders(self.path)):
            with suppress(ClientError):
                part = RunFolder(attempt)
                until = min(until, part.header.get("superseded_from", until))
                self.earlier.insert(0, (part, until))
                self.streams.learn(part.header.get("announced", {}))

    @property
    def id(self) -> str:
        return self.header["run"]["id"]

    @property
    def name(self) -> str:
        return self.header["run"]["name"]

    @property
    def started(self) -> float:
        """Seconds since the epoch."""
        return self.header["run"]["started"]

    @property
    def ended(self) -> float | None:
        """Seconds since the epoch, or ``None`` when nobody closed the run."""
        return self.header.get("ended")

    @property
    def closed(self) -> bool:
        """Whether the recording was closed. One that was not may still be growing, or its hub is gone."""
        return self.ended is not None

    @property
    def state(self) -> RunState:
        """State of the run when ``run.json`` was last written."""
        state = self.header.get("state")
        return cast("RunState", state) if state in _STATES else "lost"

    @property
    def step(self) -> int:
        """Newest step in ``run.json``; streams that nobody closed may have more."""
        own = [entry.get("last_step") or 0 for entry in self.header.get("streams", {}).values()]
        return max([*own, *(min(part.step, until - 1) for part, until in self.earlier)], default=0)

    def hello(self) -> Hello:
        """Return the ``hello`` message that a hub would send about this run."""
        hello: Hello = bare_hello(self.header["run"])
        members = (
            "model",
            "layout",
            "flags",
            "compressors",
            "config",
            "versions",
            "origin",
            "configurable",
            "statistics",
            "generation",
            "phase",
        )
        header: Any = self.header
        known: Any = {name: header[name] for name in members if name in header}
        hello.update(known)
        hello["streams"] = self.streams.declarations()
        return hello_from_zero(hello) if self.header["format"] == _LAYERS_FROM_ONE else hello

    @property
    def missing_steps(self) -> list[list[int]]:
        before = [
            [first, min(last, until - 1)]
            for part, until in self.earlier
            for first, last in part.missing_steps
            if first < until
        ]
        return [*before, *self.header.get("missing_steps", [])]

    def newest_step(self, stream: str) -> int:
        """Return the newest step of a stream; 0 where it has no rows."""
        before = (min(part.newest_step(stream), until - 1) for part, until in self.earlier)
        return max([0, self._files.end(stream).last_step or 0, *before])

    def first_step(self, stream: str) -> int | None:
        """Return the first step of a stream; None where it has no rows."""
        said = self.header.get("streams", {}).get(stream, {}).get("first_step") if self.closed else None
        own = self._files.end(stream).first_step if said is None else said
        first = [part.first_step(stream) for part, _ in self.earlier]
        return min((step for step in [own, *first] if step is not None), default=None)

    def ranks(self, stream: str) -> Iterator[set[int]]:
        """Yield the ranks of a stream's rows, a file or a piece at a time; some come again."""
        for part, _ in self.earlier:
            yield from part.ranks(stream)
        yield from self._files.ranks(stream)

    def status(self) -> Status:
        """Return the ``status`` that a hub would send, with what is missing in its warnings."""
        writing = not self.closed and any(hub.id == self.id for hub in live_hubs())
        state = self.state if self.closed or writing else "lost"
        missing = self.missing_steps
        status: Status = {
            "type": "status",
            "state": state,
            "step": max(self.step, self._last_step()),
            "producers": [],
            "viewers": 0,
            "recording": {
                "state": "on" if writing else "closed",
                "bytes": self.bytes(),
                "missing_steps": missing,
            },
        }
        if "instruments" in self.header:
            status["instruments"] = self.header["instruments"]
        warnings = [
            f"The {shown_text(name, 200)} stream is of another version of Megalens and is not read."
            for name in self._unreadable
        ]
        if writing:
            warnings.append("The recording is still being written: its hub runs.")
        elif not self.closed:
            warnings.append("The recording was not closed: its hub ended before the run did.")
        if missing:
            warnings.append(lacking_words(missing))
        warnings += [attempt_words(part.id, until) for part, until in self.earlier]
        for stream in self.truncated():
            warnings.append(f"The {stream} stream was cut short; it is read up to its last whole message.")
        warnings += self._recorded_warnings()
        more = len(warnings) - _MOST_WARNINGS
        if more > 0:
            warnings[_MOST_WARNINGS - 1 :] = [f"{more + 1} more warnings are in run.audit()."]
        if warnings:
            status["warnings"] = warnings
        return status

    def _recorded_warnings(self) -> list[str]:
        """Return the warnings of the time while the run was live."""
        found = []
        try:
            for row in self.read("audit", columns=["action", "detail"]).to_pylist():
                if row["action"] == "warning":
                    text = parse_json(row["detail"])["text"]
                    found.append(shown_text(str(text), 500))
        except (ClientError, OSError, ValueError, KeyError, TypeError):
            # Rows of another stream; the file's own errors are reported separately.
            pass
        return found

    def bytes(self) -> int:
        return self._files.bytes() + sum(part.bytes() for part, _ in self.earlier)

    def truncated(self) -> list[str]:
        """Return the streams of which a file ends within a message.

        Footers of sealed files and the steps of tails are read for it: other damage is known once it was
        read.
        """
        return [stream for stream in self.streams if self._files.is_cut(stream)]

    def read(self, stream: str, query: Query | None = None, columns: list[str] | None = None) -> pa.Table:
        schema = self.streams.named(stream).schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return pa.Table.from_batches(list(self.batches(stream, query, columns)), schema=schema)

    def batches(
        self, stream: str, query: Query | None = None, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows, a piece at a time, in the order in which they were written.

        A tail is read up to its last complete message, of sealed files only what may have the query's steps.
        Steps that were trained twice come as they were trained last.
        """
        for part, until in self.earlier:
            yield from part.batches(stream, (query or Query()).before(until), columns)
        yield from self._files.batches(stream, query or Query(), columns)

    def parted(self, stream: str, query: Query) -> list[tuple[RunFolder, Query]]:
        """Return questions that together ask the same, each of whole steps, about as many as segments."""
        # Whoever is asked need not look at every file's footer for what steps it has.
        self._files.end(stream)
        begins = self._files.begins(stream)
        before = [until for _, until in self.earlier]
        cuts = [step for step in sorted({*begins, *before}) if step > (query.first or 0)]
        cuts = [step for step in cuts if query.last is None or step <= query.last]
        firsts, lasts = [query.first, *cuts], [*(step - 1 for step in cuts), query.last]
        bounds = zip(firsts, lasts, strict=True)
        return [(self, replace(query, first=first, last=last)) for first, last in bounds]

    def tensor_index(self, check: Callable[[], None] = lambda: None) -> TensorIndex:
        """Return what there is of traced tensors, reading only what is new. ``check`` raises to cancel."""
        own = self._files.tensor_index(check)
        if not self.earlier:
            return own
        before = [(part.tensor_index(check), until, 0) for part, until in self.earlier]
        return TensorIndex.joined([*before, (own, LAST_STEP + 1, 0)])

    def _last_step(self) -> int:
        if self.closed:
            return 0
        marking = (name for name, stream in self.streams.items() if stream.policy.marks_step)
        return max(self._files.end(name).last_step or 0 for name in marking)
