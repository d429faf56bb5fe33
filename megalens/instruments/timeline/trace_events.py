"""Events of a trace in Chrome's JSON: read piece by piece, packed or not, complete or cut off."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from ...protocol import shown_text
from .megascan_files import TimelineError

_PIECE = 1 << 23
_LARGEST_EVENT = 1 << 27
_HEAD = 1 << 20
_TAIL = 1 << 16
_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[|^\s*\[')
_ENDS = re.compile(rb"\}\s*\]|^\s*\]")


class EventArguments(msgspec.Struct, gc=False):
    """The event arguments that are used: ours, MegatronApp's, Kineto's; of any type."""

    step: Any = None
    iteration: Any = None
    micro_batch: Any = None
    micro_batch_index: Any = None
    microbatch: Any = None
    pp_rank: Any = None
    pp_rk: Any = None
    chunk: Any = None
    model_chunk: Any = None
    blocked: Any = None
    bytes: Any = None
    data: Any = None
    group: Any = None
    peer: Any = None
    sequence: Any = None
    count: Any = None
    name: Any = None
    correlation: Any = None
    device: Any = None
    collective: Any = msgspec.field(default=None, name="Collective name")
    ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    elements: Any = msgspec.field(default=None, name="In msg nelems")
    dtype: Any = None
    seq: Any = msgspec.field(default=None, name="Seq")
    source: Any = msgspec.field(default=None, name="Src Rank")
    destination: Any = msgspec.field(default=None, name="Dst Rank")
    dimensions: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")


class _LooseEvent(msgspec.Struct, gc=False):
    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None


class Event(_LooseEvent, gc=False):
    """One event. ``ts`` and ``dur`` in µs."""

    args: EventArguments | None = None


class TraceFacts(msgspec.Struct, kw_only=True):
    """The members next to the events; of any type."""

    schema: Any = msgspec.field(default=None, name="schemaVersion")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base_ns: Any = msgspec.field(default=None, name="baseTimeNanoseconds")


_decode = msgspec.json.Decoder(list[Event]).decode
_decode_facts = msgspec.json.Decoder(TraceFacts).decode
_decode_loosely = msgspec.json.Decoder(list[_LooseEvent]).decode


@dataclass
class TraceFile:
    """One file. ``facts`` behind the events, and ``problems``, are known once these are read."""

    path: Path
    facts: TraceFacts = field(default_factory=TraceFacts)
    problems: list[str] = field(default_factory=list)
    _is_list: bool = False

    @property
    def shown(self) -> str:
        """Its printable name."""
        return shown_text(self.path.name, 200)

    def head(self) -> bool:
        """Read what is before the events, and return whether there are any."""
        try:
            with self._open() as file:
                return self._skip_head(file) is not None
        except (OSError, EOFError, zlib.error) as error:
            raise self._unreadable(error) from error

    def pieces(self) -> Iterator[list[Event]]:
        """Yield all events, many at a time; raises ``TimelineError`` when this is no trace."""
        try:
            with self._open() as file:
                rest = self._skip_head(file)
                if rest is None:
                    raise TimelineError(
                        f"{self.shown} must be a trace: JSON with a list traceEvents, or a list of events."
                    )
                yield from self._pieces(file, rest)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> TimelineError:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        return TimelineError(f"{self.shown} cannot be read: {shown_text(why, 200)}.")

    def _open(self) -> IO[bytes]:
        file = self.path.open("rb")
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        return gzip.GzipFile(fileobj=file) if packed else file  # type: ignore[return-value]

    def _skip_head(self, file: IO[bytes]) -> bytes | None:
        text = file.read(_HEAD)
        found = _BEGINS.search(text)
        if found is None:
            return None
        self._is_list = found[0].lstrip().startswith(b"[")
        if not self._is_list:
            self._take_facts(text[: found.start()] + b'"traceEvents":0}')
        return text[found.end() :]

    def _take_facts(self, text: bytes) -> None:
        try:
            facts = _decode_facts(text)
        except msgspec.MsgspecError:
            return
        for name in facts.__struct_fields__:
            if getattr(facts, name) is not None:
                setattr(self.facts, name, getattr(facts, name))

    def _pieces(self, file: IO[bytes], rest: bytes) -> Iterator[list[Event]]:
        buffer, ended = rest, False
        while not ended:
            try:
                more = file.read(_PIECE)
            except (EOFError, zlib.error, gzip.BadGzipFile):
                more = b""
            ended = not more
            buffer += more
            if ended:
                break
            events, buffer = self._whole_events(buffer)
            if events:
                yield events
            elif len(buffer) > _LARGEST_EVENT:
                raise TimelineError(
                    f"{self.shown} has an event of more than {_LARGEST_EVENT >> 20} MiB, or is no JSON."
                )
        yield self._last(buffer)

    def _whole_events(self, buffer: bytes, tries: int = 64) -> tuple[list[Event], bytes]:
        """Return the events up to the last boundary, and the rest; within an event JSON is invalid."""
        at = len(buffer)
        for _ in range(tries):
            at = buffer.rfind(b"{", 0, at)
            if at < 0:
                break
            comma = buffer[:at].rstrip()
            if comma.endswith(b",") and comma[:-1].rstrip().endswith(b"}"):
                events = self._decoded(comma[:-1])
                if events is not None:
                    return events, buffer[at:]
        return [], buffer

    def _decoded(self, text: bytes) -> list[Event] | None:
        text = b"[" + text + b"]"
        try:
            return _decode(text)
        except msgspec.ValidationError:
            pass
        except (msgspec.DecodeError, RecursionError):
            return None
        # Somewhere arguments are no object: events are taken without any.
        try:
            return [
                Event(each.ph, each.cat, each.name, each.pid, each.tid, each.ts, each.dur)
                for each in _decode_loosely(text)
            ]
        except msgspec.ValidationError:
            self.problems.append(f"{self.shown}: entries that are no events were left out.")
            return []
        except (msgspec.DecodeError, RecursionError):
            return None

    def _last(self, buffer: bytes) -> list[Event]:
        for number, end in enumerate(_ENDS.finditer(buffer)):
            if number > 1000:
                break
            body = buffer[: end.end() - 1].rstrip()
            events = self._decoded(body) if body else []
            if events is not None:
                tail = buffer[end.end() :].strip()
                if tail.startswith(b",") and len(tail) < _TAIL:
                    self._take_facts(b"{" + tail[1:])
                return events
        events, rest = self._decoded(buffer.rstrip().rstrip(b",")), b""
        if events is None:
            events, rest = self._whole_events(buffer, 1000)
        # Chrome's own traces may lack the last bracket; a killed profiler leaves half an event, or no end.
        if rest.strip() or not self._is_list:
            self.problems.append(f"{self.shown} is cut off: its whole events are taken.")
        return events
