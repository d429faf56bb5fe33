"""Other tools' traces of one job, as rows of the stream ``spans``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from ...protocol import shown_text
from ...runs.errors import ClientError
from ...runs.foreign_files import ForeignFiles, ForeignRows, Progress, cached_recording
from ...runs.run_folder import RunFolder
from .chrome_spans import BEGIN, END, chrome_spans
from .kineto import KinetoTrace, is_kineto, kineto_trace
from .megascan_files import RankTrace, TimelineError, aggregate, is_rank_file, read_rank_file, read_rank_files
from .span_columns import SpanColumns
from .spans import PASSES, ranks_text
from .trace_events import Event, EventArguments, TraceFile

_MOST_FILES = 20_000
_MOST_WORLD = 1_048_576
_MOST_NAMED = 5
_LOOKED_AT = 20
_RANK = re.compile(r"(?<![a-z])(?:rank|worker|host)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
_ENDING = re.compile(r"\.(json|trace|gz|txt|chrome|perfetto)\b|^[^.]+$", re.IGNORECASE)
"""Of files in a folder; one that is named itself may be called anything."""
_FIRST_SIGNS = (b"{", b"[", b"\x1f\x8b", b"\xef\xbb\xbf")

_VERSION = 6
"""To be raised when the same files give other rows."""
_EVENTS = 4096


def holds_traces(path: Path, within: Path | None = None) -> bool:
    """Return whether a file or folder looks like traces of several ranks, by the heads of some files."""
    from .trace_events import TraceFile

    try:
        named = _named(path)[:_MOST_FILES]
    except TimelineError:
        return False
    for file in islice((entry for entry in named if _may_be_trace(entry, within)), _LOOKED_AT):
        try:
            if TraceFile(file).head():
                return True
        except TimelineError:
            continue
    return False


def trace_recording(path: Path, progress: Progress | None = None, within: Path | None = None) -> RunFolder:
    """Return the recording of a trace or a folder of traces; changed files are read anew.

    ``progress`` is called with (bytes done, bytes in all, what is being done) and may raise to cancel. Links
    that lead out of ``within`` are not followed. Raises ``ClientError`` for unreadable files, and those of
    several jobs.
    """
    try:
        files = trace_files(path, within)

        def read() -> ForeignRows:
            traces = read_traces(path, files, progress)
            ranks = {"ranks": traces.ranks} if traces.ranks else {}
            origin = {"kind": "trace", "name": traces.tool, "steps": "counted", **ranks}
            return ForeignRows(origin, {"spans": traces.spans.tables()}, traces.problems)

        return cached_recording(path, files, f"trace {_VERSION}", read)
    except TimelineError as error:
        raise ClientError(str(error), code="unreadable") from error


TRACES = ForeignFiles(holds_traces, trace_recording)


@dataclass(frozen=True)
class Traces:
    """What was read: spans, who wrote the files, sentences about omissions, and of how many ranks the job is.

    The last is 0 where no file says so.
    """

    spans: SpanColumns
    tool: str
    problems: tuple[str, ...]
    ranks: int = 0

    def __post_init__(self) -> None:
        if not len(self.spans):
            reason = f" {self.problems[0]}" if self.problems else ""
            raise TimelineError(f"The trace holds no spans.{reason}")


def trace_files(path: Path, within: Path | None = None) -> list[Path]:
    """Return the possible traces by name: the file itself, or those in a folder, all in ``within``."""
    entries = _named(path)
    if len(entries) > _MOST_FILES:
        raise TimelineError(
            f"{shown_text(path.name, 200)} holds {len(entries)} files, and at most {_MOST_FILES} are read."
        )
    return [entry for entry in entries if _may_be_trace(entry, within)]


def _named(path: Path) -> list[Path]:
    """Return the file itself, or what has a name of a trace in a folder; nothing is opened."""
    if path.is_file():
        return [path]
    try:
        return sorted(entry for entry in path.iterdir() if _ENDING.search(entry.name))
    except OSError as error:
        raise TimelineError(f"{shown_text(str(path), 300)} cannot be read: {error.strerror}.") from error


def _may_be_trace(entry: Path, within: Path | None) -> bool:
    return (
        not entry.name.startswith(".")
        and entry.is_file()
        and (within is None or entry.resolve().is_relative_to(within))
        and _begins_like_json(entry)
    )


def _begins_like_json(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip().startswith(_FIRST_SIGNS)
    except OSError:
        return False


def read_traces(path: Path, files: Sequence[Path], progress: Progress | None = None) -> Traces:
    """Read one file for each rank by PyTorch's profiler or MegatronApp's tracer, or one file in Chrome's
    format.

    ``files`` are those of :func:`trace_files`; ``progress`` is as for :func:`trace_recording`. Raises
    ``TimelineError`` when there is no trace, and when there are two jobs.
    """
    ranks = [each for each in files if is_rank_file(each)]
    if ranks:
        traces, problems = read_rank_files(path, ranks) if path.is_dir() else _one_rank(path)
        others = [shown_text(each.name, 200) for each in files if each not in ranks]
        if others:
            problems.append(f"{', '.join(others[:_MOST_NAMED])}: not by MegatronApp's tracer, and left out.")
        # Numbers that do not fit were said when they were read.
        events = _events(traces)
        # So much as both take is not held while spans are made.
        traces.clear()
        rows = chrome_spans(events, lambda _: None)
        return Traces(rows, "MegatronApp", (*problems, *_room(rows)))
    found: list[TraceFile] = []
    problems = []
    for each in map(TraceFile, files):
        try:
            if each.head():
                found.append(each)
            elif path.is_file():
                raise TimelineError(f"{each.shown} must be a trace: JSON with a list traceEvents.")
            else:
                problems.append(f"{each.shown} is no trace, and left out.")
        except TimelineError as error:
            if path.is_file():
                raise
            problems.append(str(error))
    if not found:
        reason = f" {problems[0]}" if problems else ""
        raise TimelineError(
            f"{shown_text(path.name, 200)} holds no traces: JSON files with a list traceEvents.{reason}"
        )
    sizes = [each.path.stat().st_size for each in found]
    kineto = [each for each in found if is_kineto(each)]
    if not kineto:
        if len(found) > 1 and path.is_dir():
            names = ", ".join(each.shown for each in found[:_MOST_NAMED])
            raise TimelineError(f"{path.name} holds several traces of whole jobs: name one of {names}.")
        found[0].on_progress = _progress_of(found[0], 0, sizes[0], progress)
        rows = chrome_spans(found[0].pieces(), found[0].leave_out)
        return Traces(rows, "Chrome’s trace format", (*problems, *found[0].problems, *_room(rows)))
    if len(kineto) < len(found):
        others = [each.shown for each in found if not is_kineto(each)]
        problems.append(f"{', '.join(others[:_MOST_NAMED])}: not by PyTorch's profiler, and left out.")
    several: list[tuple[TraceFile, KinetoTrace]] = []
    done = 0
    for file, size in zip(found, sizes, strict=True):
        if file in kineto:
            file.on_progress = _progress_of(file, done, sum(sizes), progress)
            try:
                trace = kineto_trace(file)
                several.append((file, trace))
                problems += trace.problems
            except TimelineError as error:
                problems.append(str(error))
            problems += file.problems
        done += size
    rows = _one_job(several, path.name, problems)
    world = next((trace.world for _, trace in several if trace.world), 0)
    return Traces(rows, "PyTorch’s profiler", (*problems, *_room(rows)), min(world, _MOST_WORLD))


def _progress_of(
    file: TraceFile, before: int, total: int, progress: Progress | None
) -> Callable[[int], object] | None:
    if progress is None:
        return None
    progress(before, total, f"reading {file.shown}")
    return lambda read: progress(before + read, total, f"reading {file.shown}")


def _room(spans: SpanColumns) -> list[str]:
    return [f"The trace holds more than {len(spans)} spans: the rest is left out."] if spans.full else []


def is_megascan(path: Path) -> bool:
    """Return whether a folder has files of MegatronApp's tracer, one a rank."""
    return any(map(is_rank_file, trace_files(path)))


def _one_rank(path: Path) -> tuple[list[RankTrace], list[str]]:
    trace, problems = read_rank_file(path)
    return [trace], problems


def _events(traces: Sequence[RankTrace]) -> Iterator[tuple[int, list[Event]]]:
    """Return the events of MegatronApp's own aggregate, with times as whole ns, some at a time."""
    events, _ = aggregate(traces)
    return _converted(_ticks(traces), events)


def _converted(ticks: list[Event], events: list[dict[str, Any]]) -> Iterator[tuple[int, list[Event]]]:
    yield 1, ticks
    fields, first = set(EventArguments.__struct_fields__), 1 + len(ticks)
    events.reverse()
    while events:
        some = [events.pop() for _ in range(min(_EVENTS, len(events)))]
        yield first, [
            Event(
                each["ph"], each.get("cat"), each["name"], each["pid"], 0, each.get("ts"), each.get("dur"),
                EventArguments(**{key: value for key, value in each["args"].items() if key in fields}),
            )
            for each in some
        ]  # fmt: skip
        first += len(some)


def _ticks(traces: Sequence[RankTrace]) -> list[Event]:
    """Return begins and ends of iterations of older files, which have them only in neighbouring rows."""
    found: list[Event] = []
    start = 0
    for number in range(min(len(trace.iterations) for trace in traces)):
        several = [(trace, trace.iterations[number]) for trace in traces]
        start += max(iteration.pad for _, iteration in several)
        for trace, iteration in several:
            if trace.coordinates or any(row["name"] == BEGIN for row in iteration.rows):
                continue
            long = max([iteration.duration, *(row["rel_ts"] for row in iteration.rows)])
            for name, at in ((BEGIN, start), (END, start + long)):
                args = EventArguments(iteration=number)
                found.append(Event("i", None, name, trace.rank, 0, at // 1000, None, args))
        start += max(iteration.duration for _, iteration in several)
    return found


def _one_job(
    several: Sequence[tuple[TraceFile, KinetoTrace]], folder: str, problems: list[str]
) -> SpanColumns:
    """Put the ranks together, and describe missing ones; consecutive files of one rank are parts of it."""
    worlds = {trace.world for _, trace in several if trace.world}
    if len(worlds) > 1:
        raise TimelineError(
            f"{folder} holds traces of jobs of {' and '.join(map(str, sorted(worlds)))} ranks: give a folder "
            "that holds one job."
        )
    parts: dict[int, list[tuple[TraceFile, KinetoTrace]]] = {}
    for rank, (file, trace) in zip(_ranks(several, problems), several, strict=True):
        if not len(trace.spans):
            problems.append(f"{file.shown} holds no steps, passes or collectives.")
        else:
            parts.setdefault(rank, []).append((file, trace))
    spans = SpanColumns()
    for rank, mine in sorted(parts.items()):
        mine.sort(key=lambda part: int(part[1].spans["start"].min()))
        until = last = -1
        for file, trace in mine:
            own = trace.spans
            if int(own["start"].min()) < until:
                raise TimelineError(
                    f"{file.shown} and another file are both of rank {rank} at the same time: give a folder "
                    "that holds one job."
                )
            until = int(own["end"].max())
            first = int(own["step"].min())
            # Without the profiler's step numbers each file counts from its own beginning.
            own.set("step", own["step"] + (last + 1 - first if first <= last else 0))
            own.set("rank", rank)
            last = int(own["step"].max())
            spans.extend(own)
    idle = [rank for rank, mine in parts.items() if not any(_has_pass(trace) for _, trace in mine)]
    if idle:
        problems.append(f"No pass was found of {ranks_text(sorted(idle))}.")
    world = next(iter(worlds), 0)
    missing = sorted({*range(world or max(parts, default=-1) + 1)} - parts.keys())
    if missing:
        shown = ", ".join(map(str, missing[:_MOST_NAMED]))
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        problems.append(f"Ranks {shown}{more} have no file.")
    return spans


def _has_pass(trace: KinetoTrace) -> bool:
    return bool(trace.spans.of_kind(*PASSES).any())


def _ranks(several: Sequence[tuple[TraceFile, KinetoTrace]], problems: list[str]) -> list[int]:
    """Return the rank of each file: what it says itself, else its name, else its place among the others."""
    named = [_RANK.search(file.path.name) for file, _ in several]
    ranks = [
        trace.rank if trace.rank is not None else int(match[1]) if match else None
        for match, (_, trace) in zip(named, several, strict=True)
    ]
    unknown = [at for at, rank in enumerate(ranks) if rank is None]
    by_name = _numbers([several[at][0].path.name for at in unknown])
    taken = {rank for rank in ranks if rank is not None}
    if taken & {*by_name}:
        by_name = []
    for at, number in zip_longest(unknown, by_name):
        if number is None:
            number = next(each for each in range(len(several) + 1) if each not in taken)
        ranks[at] = number
        taken.add(number)
        if len(several) > 1:
            problems.append(f"{several[at][0].shown} does not say its rank; it is taken for rank {number}.")
    return [rank or 0 for rank in ranks]


def _numbers(names: Sequence[str]) -> list[int]:
    """Return the first number in which several names differ that are otherwise alike; else nothing."""
    parts = [re.split(r"(\d+)", name) for name in names]
    if len(names) < 2 or len({tuple(each[::2]) for each in parts}) > 1:
        return []
    for column in list(zip(*parts, strict=True))[1::2]:
        if len({*column}) == len(names) and max(map(len, column)) < 7:
            return [int(each) for each in column]
    return []
