"""Events of a trace in Chrome's JSON: read piece by piece, packed or not, damaged or cut off.

What a file can cost is bounded before anything is decoded: the bytes that it unfolds to, and those of one
event. Decoding builds the members below and nothing else, none of which holds more than a list of numbers.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ...protocol import shown_text
from .megascan_files import TimelineError

_PIECE = 1 << 20
_LARGEST_EVENT = 1 << 20
_HEAD, _TAIL = 1 << 25, 1 << 23
_MOST_BYTES = 1 << 32
_LEAST_BYTES, _MOST_UNFOLDED = 1 << 26, 200
"""What unfolds to more than ``_LEAST_BYTES`` may be so many times as long; traces are 10 to 40 times."""
_MOST_DAMAGED = 50_000
_MOST_PLACES = 5
_NESTED = 16
"""Objects of one event behind which a comma stands, at most."""
_BEGINS = re.compile(rb'"traceEvents"\s*:\s*\[|^\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*")
_EVENT = rb'\{\s*"(?:ph|cat|cname|name|pid|tid|ts|tts|dur|id|args|s|bp)"'
_NEXT = re.compile(rb",\s*(?=" + _EVENT + rb")")
_STARTS = re.compile(_EVENT)
_OVERLAP = 1 << 16
_END = re.compile(rb"\}\s*\]\s*(?=[,}]|$)")
_CLOSES = re.compile(rb"\]\s*(?=[,}]|$)")
_NOT_FINITE = re.compile(rb"(?<=[:,\[])\s*[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_PROFILER = re.compile(
    rb'"cat"\s*:\s*"(?:cpu_op|kernel|(?:cuda_)?runtime|operator|python_function|user_annotation|ac2g|fwdbwd)"',
    re.IGNORECASE,
)

Scalar = int | float | str | bool | None


class EventArguments(msgspec.Struct, gc=False):
    """The event arguments that are used: ours, MegatronApp's, Kineto's."""

    step: Scalar = None
    iteration: Scalar = None
    micro_batch: Scalar = None
    micro_batch_index: Scalar = None
    microbatch: Scalar = None
    pp_rank: Scalar = None
    pp_rk: Scalar = None
    chunk: Scalar = None
    model_chunk: Scalar = None
    blocked: Scalar = None
    bytes: Scalar = None
    data: Scalar = None
    group: list[int] | Scalar = None
    peer: Scalar = None
    sequence: Scalar = None
    count: Scalar = None
    name: Scalar = None
    correlation: Scalar = None
    device: Scalar = None
    collective: Scalar = msgspec.field(default=None, name="Collective name")
    ranks: list[int] | Scalar = msgspec.field(default=None, name="Process Group Ranks")
    elements: Scalar = msgspec.field(default=None, name="In msg nelems")
    dtype: Scalar = None
    seq: Scalar = msgspec.field(default=None, name="Seq")
    source: Scalar = msgspec.field(default=None, name="Src Rank")
    destination: Scalar = msgspec.field(default=None, name="Dst Rank")
    dimensions: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="Input Dims")


class Event(msgspec.Struct, gc=False):
    """One event. ``ts`` and ``dur`` in µs."""

    ph: Scalar = None
    cat: Scalar = None
    name: Scalar = None
    pid: Scalar = None
    tid: Scalar = None
    ts: Scalar = None
    dur: Scalar = None
    args: EventArguments | None = None
    id: Scalar = None


class _Group(msgspec.Struct, gc=False):
    ranks: list[int] | Scalar = None


class _Distributed(msgspec.Struct):
    rank: Scalar = None
    world_size: Scalar = None
    groups: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="pg_config")


class TraceFacts(msgspec.Struct, kw_only=True):
    """The members next to the events."""

    schema: Scalar = msgspec.field(default=None, name="schemaVersion")
    base_ns: Scalar = msgspec.field(default=None, name="baseTimeNanoseconds")
    distributed: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="distributedInfo")

    @property
    def job(self) -> _Distributed:
        """What it says of its job; empty where that is of another kind."""
        try:
            return _decode_job(self.distributed)
        except (ValueError, RecursionError):
            return _Distributed()

    @property
    def only_group(self) -> Any:
        """The ranks of the only group of the job, if that is said."""
        groups = self.job.groups
        try:
            found = _decode_groups(groups) if len(bytes(groups)) < _LARGEST_EVENT else []
        except (ValueError, RecursionError):
            return None
        return found[0].ranks if len(found) == 1 else None


_decode = msgspec.json.Decoder(list[Event]).decode
_decode_facts = msgspec.json.Decoder(TraceFacts).decode
_decode_job = msgspec.json.Decoder(_Distributed).decode
_decode_groups = msgspec.json.Decoder(list[_Group]).decode
_decode_scalar = msgspec.json.Decoder(Scalar).decode
_LIST_MEMBERS = ("group", "ranks")
_decode_list = msgspec.json.Decoder(list[int] | Scalar).decode
_RawEvent, _RawArguments = (
    msgspec.defstruct(
        f"_Raw{of.__name__}",
        [
            (each.name, msgspec.Raw, msgspec.field(default=msgspec.Raw(b"null"), name=each.encode_name))
            for each in msgspec.structs.fields(of)
        ],
    )
    for of in (Event, EventArguments)
)
_decode_raw_event = msgspec.json.Decoder(_RawEvent).decode
_decode_raw_arguments = msgspec.json.Decoder(_RawArguments).decode


@dataclass
class TraceFile:
    """One file. ``facts`` behind the events, and ``problems``, are known once these are read."""

    path: Path
    facts: TraceFacts = field(default_factory=TraceFacts)
    is_profile: bool = False
    """Whether its first events look like those of PyTorch's profiler."""
    on_progress: Callable[[int], object] | None = None
    """Called while events are read with how many bytes of the file were; may raise to cancel."""
    _read: int = 0
    _problems: list[str] = field(default_factory=list)
    _is_list: bool = False
    _seen: int = 0
    _damaged: int = 0
    _places: list[int] = field(default_factory=list)

    @property
    def shown(self) -> str:
        """Its printable name."""
        return shown_text(self.path.name, 200)

    @property
    def problems(self) -> list[str]:
        """Sentences about what was left out."""
        if not self._damaged:
            return self._problems
        places = ", ".join(map(str, self._places))
        more = f" and {self._damaged - len(self._places)} more" if self._damaged > len(self._places) else ""
        which = f"event {places}" if self._damaged == 1 else f"events {places}{more}"
        are = "is damaged and was" if self._damaged == 1 else "are damaged and were"
        return [*self._problems, f"{self.shown}: {which} (counted from 1) {are} left out."]

    def leave_out(self, numbers: list[int]) -> None:
        """Count events by their number in the file, from 1, as damaged."""
        self._damaged += len(numbers)
        self._places += numbers[: _MOST_PLACES - len(self._places)]

    def head(self) -> bool:
        """Read what is before the events, and return whether there are any."""
        try:
            text = self._skip_head(self._unfolded())
        except OSError as error:
            raise self._unreadable(error) from error
        self.is_profile = text is not None and _PROFILER.search(text) is not None
        return text is not None

    def pieces(self) -> Iterator[tuple[int, list[Event]]]:
        """Yield all events, many at a time, with the number of the first; those that are damaged are empty.

        Raises ``TimelineError`` when this is no trace.
        """
        try:
            pieces = self._unfolded()
            text = self._skip_head(pieces)
            if text is None:
                raise TimelineError(
                    f"{self.shown} must be a trace: JSON with a list traceEvents, or a list of events."
                )
            for events in self._pieces(pieces, text):
                if any(each.ph is None for each in events):
                    self.leave_out([self._seen + at for at, each in enumerate(events, 1) if each.ph is None])
                yield self._seen + 1, events
                self._seen += len(events)
                if self.on_progress is not None:
                    self.on_progress(self._read)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> TimelineError:
        why = error.strerror or str(error)
        return TimelineError(f"{self.shown} cannot be read: {shown_text(why, 200)}.")

    def _unfolded(self) -> Iterator[bytes]:
        """Yield the text; a packed file that is cut off or damaged gives what comes before that."""
        most = min(_MOST_BYTES, max(_LEAST_BYTES, _MOST_UNFOLDED * self.path.stat().st_size))
        with self.path.open("rb") as file:
            data = file.read(_PIECE)
            self._read = len(data)
            packed = data.startswith(b"\x1f\x8b")
            unpack = zlib.decompressobj(31)
            while data:
                piece, rest = data, b""
                if packed:
                    try:
                        piece = unpack.decompress(data, _PIECE)
                    except zlib.error:
                        return
                    rest = unpack.unconsumed_tail
                    if unpack.eof:
                        rest, unpack = unpack.unused_data.lstrip(b"\0"), zlib.decompressobj(31)
                most -= len(piece)
                if most < 0:
                    self._problems.append(f"{self.shown} is too large: its beginning is read.")
                    return
                yield piece
                if not rest:
                    rest = file.read(_PIECE)
                    self._read += len(rest)
                data = rest

    def _skip_head(self, pieces: Iterator[bytes]) -> bytes | None:
        """Return the text from the first event on."""
        text = b""
        for piece in pieces:
            text += piece if text else piece.removeprefix(b"\xef\xbb\xbf")
            found = _BEGINS.search(text)
            if found is not None:
                self._is_list = found[0].lstrip().startswith(b"[")
                if not self._is_list:
                    self._take_facts(text[: found.start()] + b'"traceEvents":0}')
                rest = text[found.end() :]
                return rest if len(rest) > 1000 else rest + next(pieces, b"")
            if len(text) > _HEAD or text.lstrip()[:1] not in (b"{", b""):
                break
        return None

    def _take_facts(self, text: bytes) -> None:
        try:
            facts = _decode_facts(text)
        except (ValueError, RecursionError):
            return
        for name in facts.__struct_fields__:
            if getattr(facts, name) not in (None, msgspec.Raw(b"")):
                setattr(self.facts, name, getattr(facts, name))

    def _pieces(self, pieces: Iterator[bytes], text: bytes) -> Iterator[list[Event]]:
        ended, lost = text.lstrip().startswith(b"]"), False
        if ended:
            text = text.lstrip()[1:]
        while not ended:
            piece = next(pieces, b"")
            text += piece
            if lost:
                # Behind an event that is too long it goes on where one seems to begin.
                found = _NEXT.search(text)
                text, lost = (text[found.end() :], False) if found else (text[-_OVERLAP:], True)
            if lost and piece:
                continue
            if lost or not piece:
                if not lost:
                    events, text, ended = self._events(text, True)
                    yield events
                if not ended and (end := _end_of_list(text)) >= 0:
                    text, ended = text[end:], True
                break
            whole = _last_event(text)
            if whole > 0:
                events, rest, ended = self._events(text[:whole], False)
                text = rest + text[whole:]
                yield events
            elif len(text) > _LARGEST_EVENT:
                lost = True
                yield [Event()]
            if self._damaged > _MOST_DAMAGED:
                self._problems.append(f"{self.shown} is damaged: its beginning is read.")
                return
        if ended:
            while len(text) < _TAIL and (piece := next(pieces, b"")):
                text += piece
            if text.lstrip().startswith(b","):
                self._take_facts(b"{" + text.strip()[1:])
        elif text.strip() or not self._is_list:
            # Chrome's own traces may lack the last bracket; a killed profiler leaves half an event.
            self._problems.append(f"{self.shown} is cut off: its whole events are taken.")

    def _events(self, text: bytes, last: bool) -> tuple[list[Event], bytes, bool]:
        """Return the events of a text, what is left of it, and whether the list ended before that."""
        events = _decoded(text.rstrip().removesuffix(b","))
        if events is not None:
            return events, b"", False
        found: list[Event] = []
        between = [(each.start() + 1, each.end()) for each in _BETWEEN.finditer(text)]
        begins = [0, *(end for _, end in between)]
        ends = [*(start for start, _ in between), len(text)]
        at, several = 0, len(begins)
        while at < len(begins):
            # As many at a time as are sound.
            several = min(several, len(begins) - at)
            events = _decoded(text[begins[at] : ends[at + several - 1]]) if several > 1 else None
            if events is not None:
                found += events
                at, several = at + several, 2 * several
                continue
            if several > 1:
                several //= 2
                continue
            if not _STARTS.match(text, begins[at]) and (entry := _NEXT.search(text, begins[at], ends[at])):
                found.append(Event())
                begins[at] = entry.end()
                continue
            for until in range(at, min(at + _NESTED, len(begins))):
                part = text[begins[at] : ends[until]]
                if len(part) > _LARGEST_EVENT:
                    continue
                for each in _ends(part):
                    if event := _one(part[: each.start() + 1]):
                        return [*found, event], text[begins[at] + each.end() :], True
                event = _one(part)
                if event is not None:
                    found.append(event)
                    at, several = until + 1, 2
                    break
            else:
                after = at + 1
                while after < len(begins) and not _STARTS.match(text, begins[after]):
                    after += 1
                rest = text[begins[at] :]
                if after == len(begins) and len(rest) <= _LARGEST_EVENT:
                    end = _end_of_list(rest) if last else -1
                    if end < 0:
                        # Cut off, or what follows belongs to it.
                        return found, rest, False
                    return [*found, Event()], rest[end:], True
                found.append(Event())
                at = after
        return found, b"", False


def _last_event(text: bytes) -> int:
    """Return where the last event of a text seems to begin, or -1."""
    at, other = len(text), -1
    while (at := text.rfind(b"{", 0, at)) > 0:
        before = text[max(0, at - 200) : at].rstrip()
        if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
            if _STARTS.match(text, at):
                return at
            other = max(other, at)
    # Only what writes its members in an order of its own has such.
    return -1 if _STARTS.match(text.lstrip()[:100]) else other


def _ends(text: bytes) -> list[re.Match[bytes]]:
    return [each for each, _ in zip(_END.finditer(text), range(_NESTED), strict=False)]


def _end_of_list(text: bytes) -> int:
    """Return where the list of events ends in a text of which no event can be read, or -1."""
    closes = list(_CLOSES.finditer(text))
    for each in (*closes[:_NESTED], *closes[_NESTED:][-_NESTED:]):
        tail = text[each.end() :].strip()
        try:
            if tail:
                _decode_facts(b"{" + tail.removeprefix(b","))
        except (ValueError, RecursionError):
            continue
        return each.end()
    return -1


def _decoded(text: bytes) -> list[Event] | None:
    try:
        return _decode(b"[" + text + b"]")
    except (ValueError, RecursionError):
        return None


def _one(text: bytes) -> Event | None:
    """Return an event, without those of its members that are of another kind than expected; or None."""
    for attempt in (text, _NOT_FINITE.sub(b"null", text)):
        try:
            raw: Any = _decode_raw_event(attempt)
        except (ValueError, RecursionError):
            continue
        members = {name: _scalar(getattr(raw, name)) for name in Event.__struct_fields__ if name != "args"}
        return Event(**members, args=_arguments(raw.args)) if members["ph"] is not None else None
    return None


def _arguments(raw: msgspec.Raw) -> EventArguments | None:
    try:
        found: Any = _decode_raw_arguments(raw)
    except (ValueError, RecursionError):
        return None
    members: dict[str, Any] = {
        name: _scalar(getattr(found, name), _decode_list if name in _LIST_MEMBERS else _decode_scalar)
        for name in EventArguments.__struct_fields__
        if name != "dimensions"
    }
    return EventArguments(**members, dimensions=found.dimensions)


def _scalar(raw: msgspec.Raw, decode: Any = _decode_scalar) -> Any:
    try:
        return decode(raw)
    except (ValueError, RecursionError):
        return None
