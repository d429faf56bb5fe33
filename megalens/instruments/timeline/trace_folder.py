"""Other tools' traces of one job, as rows of the stream ``spans``."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import replace_file, segment_name, shown_text, stream_schema
from ...runs.errors import ClientError
from ...runs.foreign_files import ForeignFiles
from ...runs.moments.rows.cache_folder import cache_folder, locked, trim_cache
from ...runs.run_folder import RunFolder
from .chrome import BEGIN, END, SpanRow, chrome_spans
from .kineto import KinetoTrace, is_kineto, kineto_trace
from .megascan_files import RankTrace, TimelineError, aggregate, read_rank_file, read_rank_files
from .trace_events import Event, EventArguments, TraceFile

_MOST_FILES = 20_000
_MOST_SPANS = 30_000_000
_MOST_NAMED = 5
_LOOKED_AT = 20
_RANK = re.compile(r"(?:rank|worker|host)[-_]?(\d{1,6})", re.IGNORECASE)
_MEGASCAN = (b'"rel_ts"', b'"pad_before"')
_BEGINNING = 4096
_ENDINGS = (".json", ".json.gz")

Progress = Callable[[int, int, str], object]

_VERSION = 4
"""To be raised when the same files give other rows."""
_MOST_PROBLEMS = 200


def holds_traces(path: Path, within: Path | None = None) -> bool:
    """Return whether a file or folder looks like traces of several ranks, by the heads of some files."""
    from .trace_events import TraceFile

    try:
        files = trace_files(path, within)
    except TimelineError:
        return False
    for file in files[:_LOOKED_AT]:
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
        # By names and times of the files, not by their content: that may be gigabytes.
        stamps = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        mark = hashlib.sha256(repr((_VERSION, str(path.resolve()), stamps)).encode()).hexdigest()
        folder = cache_folder() / mark[:2] / mark
        with locked(folder):
            if not (folder / "run.json").is_file():
                _write(folder, mark, path, read_traces(path, files, progress), files)
            (folder / "used").touch()
    except TimelineError as error:
        raise ClientError(str(error), code="unreadable") from error
    except OSError as error:
        raise ClientError(f"{path.name} cannot be read: {error.strerror}.", code="unreadable") from error
    trim_cache(folder)
    return RunFolder(folder)


TRACES = ForeignFiles(holds_traces, trace_recording)


def _write(folder: Path, mark: str, path: Path, traces: Traces, files: list[Path]) -> None:
    import pyarrow.parquet as pq

    written = max(file.stat().st_mtime for file in files)
    steps = traces.table["step"].to_numpy()
    try:
        spans = _segment(folder, "spans", int(steps[0]))
        pq.write_table(traces.table, spans, compression="zstd", row_group_size=1 << 16)
        warnings = [
            {
                "step": int(steps[0]),
                "time": written,
                "who": "reader",
                "action": "warning",
                "detail": json.dumps({"text": text[:500]}),
            }
            for text in traces.problems[:_MOST_PROBLEMS]
        ]
        if warnings:
            rows = pa.Table.from_pylist(warnings, schema=stream_schema("audit"))
            pq.write_table(rows, _segment(folder, "audit", int(steps[0])))
        header: dict[str, Any] = {
            "format": 2,
            "run": {"id": f"trace-{mark[:16]}", "name": shown_text(path.name, 200), "started": written},
            "state": "finished",
            "ended": written,
            "origin": {"kind": "trace", "name": traces.tool, "steps": "counted"},
            "flags": [],
            "versions": {},
            "streams": {
                "spans": {
                    "rows": len(traces.table),
                    "bytes": spans.stat().st_size,
                    "first_step": int(steps[0]),
                    "last_step": int(steps[-1]),
                }
            },
            "missing_steps": [],
        }
        # The recording is one from here on.
        replace_file(folder / "run.json", json.dumps(header).encode())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _segment(folder: Path, stream: str, first_step: int) -> Path:
    (folder / stream).mkdir(exist_ok=True)
    return folder / stream / segment_name(0, first_step, ".parquet")


@dataclass(frozen=True)
class Traces:
    """What was read: ``spans`` rows by step, who wrote the files, and sentences about omissions."""

    table: pa.Table
    tool: str
    problems: tuple[str, ...]


def trace_files(path: Path, within: Path | None = None) -> list[Path]:
    """Return the possible traces by name: the file itself, or those in a folder, all in ``within``."""

    def may_be(entry: Path) -> bool:
        return (
            entry.name.endswith(_ENDINGS)
            and not entry.name.startswith(".")
            and entry.is_file()
            and (within is None or entry.resolve().is_relative_to(within))
        )

    if path.is_file():
        return [path] if may_be(path) else []
    try:
        entries = sorted(entry for entry in path.iterdir() if may_be(entry))
    except OSError as error:
        raise TimelineError(f"{shown_text(str(path), 300)} cannot be read: {error.strerror}.") from error
    if len(entries) > _MOST_FILES:
        raise TimelineError(
            f"{shown_text(path.name, 200)} holds {len(entries)} files, and at most {_MOST_FILES} are read."
        )
    return entries


def read_traces(path: Path, files: Sequence[Path], progress: Progress | None = None) -> Traces:
    """Read one file for each rank by PyTorch's profiler or MegatronApp's tracer, or one file in Chrome's
    format.

    ``files`` are those of :func:`trace_files`; ``progress`` is as for :func:`trace_recording`. Raises
    ``TimelineError`` when there is no trace, and when there are two jobs.
    """
    if is_megascan(path, files):
        traces, problems = read_rank_files(path) if path.is_dir() else _one_rank(path)
        rows, more = chrome_spans([_events(traces)])
        return Traces(_table(rows), "MegatronApp", (*problems, *more))
    found: list[TraceFile] = []
    problems = []
    for each in map(TraceFile, files):
        try:
            if each.head():
                found.append(each)
            elif path.is_file():
                raise TimelineError(f"{each.shown} must be a trace: JSON with a list traceEvents.")
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
        rows, more = chrome_spans(found[0].pieces())
        return Traces(_table(rows), "Chrome’s trace format", (*problems, *more, *found[0].problems))
    if len(kineto) < len(found):
        others = [each.shown for each in found if not is_kineto(each)]
        problems.append(f"{', '.join(others[:_MOST_NAMED])}: not by PyTorch's profiler, and left out.")
    several: list[tuple[TraceFile, KinetoTrace]] = []
    done = 0
    for file, size in zip(found, sizes, strict=True):
        if file in kineto:
            if progress is not None:
                progress(done, sum(sizes), f"reading {file.shown}")
            try:
                several.append((file, kineto_trace(file)))
            except TimelineError as error:
                problems.append(str(error))
            problems += file.problems
        done += size
    rows = _one_job(several, path.name, problems)
    return Traces(_table(rows), "PyTorch’s profiler", tuple(problems))


def is_megascan(path: Path, files: Sequence[Path] | None = None) -> bool:
    """Return whether a folder has files of MegatronApp's tracer, one a rank, among ``files`` if known."""
    return any(map(_is_rank_file, (trace_files(path) if files is None else files)[:_LOOKED_AT]))


def _is_rank_file(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            beginning = opened.read(_BEGINNING)
    except OSError:
        return False
    return any(mark in beginning for mark in _MEGASCAN)


def _one_rank(path: Path) -> tuple[list[RankTrace], list[str]]:
    trace, problems = read_rank_file(path)
    return [trace], problems


def _events(traces: Sequence[RankTrace]) -> list[Event]:
    """Return the events of MegatronApp's own aggregate, with times as whole ns."""
    events, _ = aggregate(traces)
    fields = set(EventArguments.__struct_fields__)
    return _ticks(traces) + [
        Event(
            each["ph"], each.get("cat"), each["name"], each["pid"], 0, each.get("ts"), each.get("dur"),
            EventArguments(**{key: value for key, value in each["args"].items() if key in fields}),
        )
        for each in events
    ]  # fmt: skip


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
) -> list[SpanRow]:
    """Set each file's rank, and describe missing ones; consecutive files of one rank are parts of it."""
    worlds = {trace.world for _, trace in several if trace.world}
    if len(worlds) > 1:
        raise TimelineError(
            f"{folder} holds traces of jobs of {' and '.join(map(str, sorted(worlds)))} ranks: give a folder "
            "that holds one job."
        )
    parts: dict[int, list[tuple[TraceFile, KinetoTrace]]] = {}
    unknown = []
    for file, trace in several:
        named = _RANK.search(file.path.name)
        rank = trace.rank if trace.rank is not None else int(named[1]) if named else None
        if rank is None:
            unknown.append((file, trace))
        elif not trace.rows:
            problems.append(f"{file.shown} holds no passes, optimizer steps or collectives.")
        else:
            parts.setdefault(rank, []).append((file, trace))
    for each in unknown:
        rank = next(number for number in range(len(several) + 1) if number not in parts)
        parts[rank] = [each]
        if len(several) > 1:
            problems.append(f"{each[0].shown} does not say its rank; it is taken for rank {rank}.")
    rows: list[SpanRow] = []
    for rank, mine in sorted(parts.items()):
        mine.sort(key=lambda part: min((row["start"] for row in part[1].rows), default=0))
        until = last = -1
        for file, trace in mine:
            begin = min((row["start"] for row in trace.rows), default=0)
            if begin < until:
                raise TimelineError(
                    f"{file.shown} and another file are both of rank {rank} at the same time: give a folder "
                    "that holds one job."
                )
            until = max((row["end"] for row in trace.rows), default=until)
            first = min((row["step"] for row in trace.rows), default=0)
            # Without the profiler's step numbers each file counts from its own beginning.
            shift = last + 1 - first if first <= last else 0
            for row in trace.rows:
                row["rank"], row["step"] = rank, row["step"] + shift
            last = max((row["step"] for row in trace.rows), default=last)
            rows += trace.rows
    world = next(iter(worlds), 0)
    missing = sorted({*range(world or max(parts, default=-1) + 1)} - parts.keys())
    if missing:
        shown = ", ".join(map(str, missing[:_MOST_NAMED]))
        more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
        problems.append(f"Ranks {shown}{more} have no file.")
    return rows


def _table(rows: Iterable[SpanRow]) -> pa.Table:
    schema = stream_schema("spans")
    listed = list(rows)
    if not listed:
        raise TimelineError("The trace holds no spans.")
    if len(listed) > _MOST_SPANS:
        raise TimelineError(f"The trace holds {len(listed)} spans, and at most {_MOST_SPANS} are read.")
    columns: dict[str, list[Any]] = {field.name: [row.get(field.name) for row in listed] for field in schema}
    # The recording is in the order of steps.
    order = np.argsort(columns["step"], kind="stable")
    return pa.table(columns, schema=schema).take(pa.array(order))
