"""Structured logs of torchtitan: a JSONL file for each process, with begins and ends of spans, and numbers.

Their spans are the host's, which nothing synchronises with the device, and say nothing of communication:
``fwd_bwd`` and ``optim`` hold what a rank waits for others. Both are therefore spans of the script's own, no
passes by which ranks could be compared.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from ...protocol import shown_text
from ...runs.errors import ClientError
from ...runs.foreign_files import ForeignRows, Progress, files_within, foreign_files, scalar_tables
from .chrome_spans import FAR_US
from .span_columns import SpanColumns, near
from .spans import PAUSES

__all__ = ["TITAN_LOGS"]

_ENDING = re.compile(r"\.jsonl$")
_FOLDER = "structured_logs"
_LONGEST_LINE = 1 << 16
_MOST_OPEN, _MOST_TASKS = 1_000, 10_000
_MOST_SCALARS, _MOST_NAMES = 4_000_000, 10_000
_MOST_RANK, _MOST_STEP = 1 << 20, 1 << 60
_MOST_NAMED = 5
_KINDS = {
    "step": "step",
    "fetching_batch": "data",
    "checkpoint_save": "checkpoint",
    "checkpoint_load": "checkpoint",
}
_NAMES = {"eval": PAUSES["eval"]}
_NOT_FINITE = re.compile(rb'"value":\s*(NaN|-?Infinity)\b')


class _Record(msgspec.Struct, gc=False):
    """The members of a line that are used."""

    log_type_name: str
    log_type: str
    time_us: int
    seq_id: int
    global_rank: int | None = None
    rank: int | None = None
    source: str = ""
    step: int | None = None
    event_name: str | None = None
    value: float | None = None
    task_name: str | None = None
    host_name: str = ""
    message: str = ""


_decode = msgspec.json.Decoder(_Record).decode


@dataclass
class _Process:
    """One file: who wrote it and when, its spans and its numbers."""

    path: Path
    source: str
    rank: int
    began_us: int
    clock: int
    first_step: int | None = None
    spans: SpanColumns = field(default_factory=SpanColumns)
    scalars: list[array[Any]] = field(default_factory=lambda: [array(kind) for kind in "qdqd"])
    """Step, time in s, number of the name, value."""
    left_out: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    """Sentences about spans that ended with one."""


def _files(path: Path, within: Path | None = None) -> list[Path]:
    """Return the file itself, or those of a folder's ``structured_logs``, or of a folder."""
    return files_within(path / _FOLDER, _ENDING, within) or files_within(path, _ENDING, within)


def _first(file: Path) -> _Record | None:
    try:
        with file.open("rb") as lines:
            return _record(lines.readline(_LONGEST_LINE))
    except OSError:
        return None


def _record(line: bytes) -> _Record | None:
    """Return what a line says; None for one that is cut off, damaged or of another kind."""
    try:
        found = _decode(line)
    except (ValueError, RecursionError):
        # Python writes numbers that are not finite as no other JSON has them.
        odd = _NOT_FINITE.search(line)
        if odd is None:
            return None
        try:
            found = _decode(line[: odd.start(1)] + b"null" + line[odd.end(1) :])
        except (ValueError, RecursionError):
            return None
        found.value = float(odd[1].decode())
    fits = abs(found.time_us) < FAR_US and (found.step is None or 0 <= found.step < _MOST_STEP)
    rank = found.rank if found.global_rank is None else found.global_rank
    return found if fits and rank is not None and 0 <= rank < _MOST_RANK else None


def read_logs(path: Path, files: Sequence[Path], progress: Progress | None = None) -> ForeignRows:
    """Return the spans and numbers of one job. Raises ``ClientError`` where there is no step."""
    names: dict[str, int] = {}
    machines: dict[str, int] = {}
    processes: list[_Process] = []
    problems: list[str] = []
    sizes = [file.stat().st_size for file in files]
    for number, file in enumerate(files):
        if progress is not None:
            progress(sum(sizes[:number]), sum(sizes), f"reading {shown_text(file.name, 200)}")
        first = _first(file)
        if first is None:
            problems.append(f"{shown_text(file.name, 200)} is no structured log of torchtitan, and left out.")
            continue
        rank = first.rank if first.global_rank is None else first.global_rank
        clock = machines.setdefault(first.host_name, len(machines) + 1) if first.host_name else 0
        process = _Process(file, first.source, rank or 0, first.time_us, clock)
        _read_file(process, names)
        processes.append(process)
    processes = _one_source(processes, problems)
    _newest_attempts(processes, problems)
    spans = SpanColumns()
    left_out = Counter[str]()
    for process in processes:
        spans.extend(process.spans)
        left_out += process.left_out
    problems += [f"{count} {what} are left out." for what, count in sorted(left_out.items())]
    errors = [error for each in processes for error in each.errors]
    problems += errors[:_MOST_NAMED]
    if len(errors) > _MOST_NAMED:
        problems.append(f"{len(errors) - _MOST_NAMED} more spans ended with an error.")
    spans.keep(near(spans["start"], spans["end"]))
    if not len(spans) and not any(len(each.scalars[0]) for each in processes):
        raise ClientError(f"{shown_text(path.name, 200)} holds no step of a training.", code="unreadable")
    if spans.full:
        problems.append(f"The logs hold more than {len(spans)} spans: the rest is left out.")
    origin = {"kind": "trace", "name": "torchtitan", "steps": "counted"}
    return ForeignRows(origin, {"spans": spans.tables(), "scalars": _scalars(processes, names)}, problems)


TITAN_LOGS = foreign_files("titan 2", _files, _first, read_logs, _MOST_NAMED)


def _read_file(process: _Process, names: dict[str, int]) -> None:
    opened: dict[str | None, list[_Record]] = {}
    with process.path.open("rb") as lines:
        while line := lines.readline(_LONGEST_LINE):
            found = _record(line)
            if found is None:
                if line.strip():
                    process.left_out["lines that cannot be read"] += 1
            elif found.log_type_name == "metric_value":
                _add_scalar(process, found, names)
            elif found.log_type == "event":
                _take(process, found, opened)
    process.left_out["spans that did not end"] += sum(
        each.step is not None for several in opened.values() for each in several
    )


def _take(process: _Process, found: _Record, opened: dict[str | None, list[_Record]]) -> None:
    """Take a begin, or an end with the begin that it belongs to: the last one of its task."""
    name, _, edge = found.log_type_name.rpartition("_")
    if found.task_name not in opened and len(opened) >= _MOST_TASKS:
        process.left_out["spans of further tasks"] += 1
        return
    several = opened.setdefault(found.task_name, [])
    if edge == "start":
        if len(several) < _MOST_OPEN:
            several.append(found)
        return
    if edge == "error" and len(process.errors) < _MOST_OPEN:
        where = "before the first step" if found.step is None else f"in step {found.step}"
        process.errors.append(
            f"{shown_text(name, 100)} of rank {process.rank} ended with an error {where}: "
            # The message begins with step and name.
            f"{shown_text(found.message.partition(f'{name}_error: ')[2] or found.message, 200)}"
        )
    if edge != "end":
        return
    at = next(
        (at for at in reversed(range(len(several))) if several[at].log_type_name == f"{name}_start"), -1
    )
    if at < 0:
        if found.value is None or found.step is None:
            process.left_out["ends without a begin"] += 1
        else:
            # Its duration tells when it began.
            long = found.value * 1e3
            start = found.time_us * 1000 - round(long * 1000) if 0 <= long < FAR_US else 0
            _add_span(process, name, found.step, start, long)
        return
    begin = several[at]
    # What was opened behind it never ended.
    process.left_out["spans that did not end"] += len(several) - at - 1
    del several[at:]
    if not several:
        del opened[found.task_name]
    if begin.step is None:
        process.left_out["spans before the first step"] += 1
        return
    # The duration is measured more finely than the times of its ends.
    long = found.value * 1e3 if found.value is not None else found.time_us - begin.time_us
    _add_span(process, name, begin.step, begin.time_us * 1000, long)


def _add_span(process: _Process, name: str, step: int, start: int, long: float) -> None:
    if not 0 <= long < FAR_US:
        process.left_out["spans with impossible times"] += 1
        return
    if process.first_step is None:
        process.first_step = step
    kind = _KINDS.get(name, "user")
    shown = "" if kind == name or kind != "user" else _NAMES.get(name, name)
    process.spans.add(
        kind, process.rank, start, start + round(long * 1000),
        name=shown, step=step, blocked=0, clock=process.clock,
    )  # fmt: skip


def _add_scalar(process: _Process, found: _Record, names: dict[str, int]) -> None:
    name = found.event_name
    fits = name and found.value is not None and found.step is not None
    if (
        not fits
        or len(process.scalars[0]) >= _MOST_SCALARS
        or (len(names) >= _MOST_NAMES and name not in names)
    ):
        process.left_out["numbers without a step"] += 1
        return
    row = (found.step, found.time_us / 1e6, names.setdefault(str(name)[:200], len(names)), found.value)
    for column, value in zip(process.scalars, row, strict=True):
        column.append(value)


def _one_source(processes: list[_Process], problems: list[str]) -> list[_Process]:
    """Return the processes of one source: each counts its ranks from 0."""
    spans = Counter[str]()
    for each in processes:
        spans[each.source] += len(each.spans) + 1
    if len(spans) < 2:
        return processes
    chosen = spans.most_common(1)[0][0]
    others = ", ".join(sorted(shown_text(name, 50) for name in spans if name != chosen)[:_MOST_NAMED])
    problems.append(
        f"These are the logs of {shown_text(chosen, 50)}. Open those of {others} from a folder of their own: "
        "each counts its ranks from 0."
    )
    return [each for each in processes if each.source == chosen]


def _newest_attempts(processes: list[_Process], problems: list[str]) -> None:
    """Leave out the steps of a process that a later one of the same rank did again."""
    lost = 0
    for rank in {each.rank for each in processes}:
        again = _MOST_STEP
        for each in sorted((one for one in processes if one.rank == rank), key=lambda one: -one.began_us):
            kept = each.spans["step"] < again
            lost += int(len(kept) - np.count_nonzero(kept))
            each.spans.keep(kept)
            kept_rows = np.frombuffer(each.scalars[0], np.int64) < again
            each.scalars = [
                array(column.typecode, np.frombuffer(column, column.typecode)[kept_rows].tobytes())
                for column in each.scalars
            ]
            if each.first_step is not None:
                again = min(again, each.first_step)
    if lost:
        problems.append(f"{lost} spans of steps that were trained again after a restart are left out.")


def _scalars(processes: Sequence[_Process], names: dict[str, int]) -> Iterator[pa.Table]:
    """Return the numbers of all processes by step."""
    step, time, name, value = (
        np.concatenate([np.frombuffer(each.scalars[at], each.scalars[at].typecode) for each in processes])
        for at in range(4)
    )
    rank = np.repeat([each.rank for each in processes], [len(each.scalars[0]) for each in processes])
    order = np.argsort(step, kind="stable")
    return scalar_tables([each[order] for each in (step, time, rank, name, value)], list(names))
