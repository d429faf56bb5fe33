"""Files of MegatronApp's tracer, one a rank, in both formats: iterations with begins and ends of spans."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ...protocol import MegalensError, shown_text
from ...protocol.outside import parse_json

_PLACE = re.compile(r"benchmark-data-(\d{1,6})-pipeline-(\d{1,6})-tensor-(\d{1,6})")
_NUMBER = re.compile(r"(?<!\d)(\d{1,6})\D*$")
_FILE = re.compile(r"benchmark-data-.*\.json(\.gz)?|\w{1,80}-\d{1,6}\.json")
_SIGNS = (b'"rel_ts"', b'"pad_before"')
_BEGINNING = 4096
_MOST_BYTES = 1 << 26
_MOST_ROWS, _WHOLE_BYTES = 400_000, 1 << 23
"""Rows of all files of a job, about a kB each until they are spans; larger files are read row by row."""
_ROW = re.compile(rb"\{[^{}]*\}")
_COORDINATES = ("dp_rk", "pp_rk", "tp_rk", "dev", "g_rk")
_MOST_NAMED = 20
_COLORS = (
    ("forward", "thread_state_running"),
    ("backward", "thread_state_iowait"),
    ("recv", "rail_response"),
    ("send", "rail_animation"),
    ("exchange-next", "thread_state_runnable"),
    ("exchange-prev", "thread_state_uninterruptible"),
    ("allreduce", "light_memory_dump"),
    ("optimizer", "detailed_memory_dump"),
)
_NOT_ATTRIBUTES = ("name", "ph", "rel_ts", "cat", *_COORDINATES)


def aggregate(traces: Sequence[RankTrace]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events, times in µs, and sentences about what was left out.

    An iteration begins on all ranks at once, after the longest pause of any rank, and lasts as long as on the
    slowest: a barrier before each is the only clock that these files share. Where rows have their
    coordinates, a span is one event with its duration, and spans that wait for each other are related; in
    older files begins, ends and instants stay events. ``traces`` have as many iterations each, in the order
    in which events of one time are to come.
    """
    has_coordinates = [bool(trace.coordinates) for trace in traces]
    if any(has_coordinates) != all(has_coordinates):
        raise TimelineError(
            "Some files say the place of their rank and some do not: give a folder that holds one job."
        )
    rows = _rows(traces)
    if not all(has_coordinates):
        return [_event(row, iteration, rank, start) for row, iteration, rank, start in rows], []
    events, problems = _spans(rows)
    for number, event in enumerate(events):
        event["args"]["id"] = number
    _relate(events)
    return [*events, *_names(traces)], problems


def _rows(traces: Sequence[RankTrace]) -> Iterator[tuple[dict[str, Any], int, int, int]]:
    """Yield rows of all ranks by time, each with its iteration, rank and the ns at which that began."""
    start = 0
    for number in range(min((len(trace.iterations) for trace in traces), default=0)):
        several = [(trace.rank, trace.iterations[number]) for trace in traces]
        start += max(iteration.pad for _, iteration in several)
        merged = [(row, rank) for rank, iteration in several for row in iteration.rows]
        merged.sort(key=lambda each: each[0]["rel_ts"])
        yield from ((row, number, rank, start) for row, rank in merged)
        start += max(iteration.duration for _, iteration in several)


def _event(row: dict[str, Any], iteration: int, rank: int, start: int) -> dict[str, Any]:
    name = row["name"]
    coordinates = {key: row[key] for key in _COORDINATES if key in row}
    attributes = {key: value for key, value in row.items() if key not in _NOT_ATTRIBUTES}
    return {
        "name": name,
        "cname": next((color for begin, color in _COLORS if name.startswith(begin)), "unknown"),
        "ph": row["ph"],
        "ts": (row["rel_ts"] + start) // 1000,
        "pid": rank,
        "tid": 0,
        "args": {"iteration": iteration, **coordinates, **attributes},
        **({"cat": row["cat"]} if "cat" in row else {}),
    }


def _spans(rows: Iterable[tuple[dict[str, Any], int, int, int]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one event for each begin and its end on the same rank."""
    spans: list[dict[str, Any]] = []
    begun: dict[int, list[dict[str, Any]]] = {}
    lost = 0
    for row, iteration, rank, start in rows:
        if row["ph"] == "i":
            continue
        event = _event(row, iteration, rank, start)
        open_here = begun.setdefault(rank, [])
        if row["ph"] == "B":
            open_here.append(event)
            spans.append(event)
            continue
        at = next(
            (at for at in reversed(range(len(open_here))) if open_here[at]["name"] == event["name"]), None
        )
        if at is None:
            lost += 1
            continue
        span = open_here.pop(at)
        span |= {
            "ph": "X",
            "dur": event["ts"] - span["ts"],
            **({"cat": event["cat"]} if "cat" in event else {}),
        }
        span["args"] |= event["args"]
    complete = [span for span in spans if span["ph"] == "X" and span["dur"] >= 0]
    lost += len(spans) - len(complete)
    return complete, [f"{lost} beginnings or ends of spans have no other half."] if lost else []


def _relate(events: Sequence[dict[str, Any]]) -> None:
    """Relate spans that wait for each other: those of one group with the name that the first expects."""
    waiting: dict[tuple[str, tuple[int, ...]], tuple[list[dict[str, Any]], set[int]]] = {}
    for event in events:
        arguments = event["args"]
        others, rank = arguments.get("group"), event["pid"]
        if not isinstance(others, list) or not all(isinstance(each, int) for each in others):
            continue
        group = tuple(sorted({*others, rank}))
        joined = waiting.get((event["name"], group))
        if joined is None:
            expected = arguments.get("expect") or event["name"]
            waiting[expected, group] = ([event], {rank})
            continue
        several, ranks = joined
        several.append(event)
        ranks.add(rank)
        if len(several) >= len(group):
            related = " ".join(str(each["args"]["id"]) for each in several)
            for each in several:
                each["args"] |= {"related_sync_op": related, "group": list(group)}
            del waiting[event["name"], group]


def _names(traces: Sequence[RankTrace]) -> Iterator[dict[str, Any]]:
    stages = 1 + max(trace.coordinates["pp_rk"] for trace in traces)
    tensors = 1 + max(trace.coordinates["tp_rk"] for trace in traces)
    for trace in traces:
        d, p, t = (trace.coordinates[each] for each in ("dp_rk", "pp_rk", "tp_rk"))
        about = (
            ("process_name", {"name": f"DP{d}-PP{p}-TP{t}"}),
            ("process_sort_index", {"sort_index": (d * stages + p) * tensors + t}),
        )
        for name, args in about:
            yield {"name": name, "ph": "M", "pid": trace.rank, "args": args}


class TimelineError(MegalensError):
    """A trace that cannot be read, or an argument that does not fit it."""


@dataclass(frozen=True)
class Iteration:
    """One traced iteration of a rank; times in ns of the host's clock.

    ``pad`` is the time since the iteration before ended. ``rows`` are begins (``B``), ends (``E``) with the
    attributes, and instants (``i``) in the order of the file; ``rel_ts`` is ns since the iteration began.
    """

    pad: int
    duration: int
    rows: list[dict[str, Any]]


@dataclass
class RankTrace:
    """The content of one file, by global rank, each iteration once.

    ``coordinates`` are ``dp_rk``, ``pp_rk``, ``tp_rk``, ``dev`` and ``g_rk`` where the rows have them, as the
    format since July 2025 does; else empty. ``place`` is that in data, pipeline and tensor parallelism where
    only the name of the file, or a pass, says it.
    """

    rank: int
    coordinates: Mapping[str, int] = field(default_factory=dict)
    iterations: list[Iteration] = field(default_factory=list)
    place: tuple[int, int, int] | None = None


def is_rank_file(path: Path) -> bool:
    """Return whether a file begins like one of MegatronApp's tracer."""
    try:
        with path.open("rb") as file:
            beginning = _unpacked(file.read(_BEGINNING), _BEGINNING)
    except (OSError, zlib.error):
        return False
    return any(sign in beginning for sign in _SIGNS)


def read_rank_files(folder: Path, files: Sequence[Path] | None = None) -> tuple[list[RankTrace], list[str]]:
    """Read the files of a folder, by default all that look like a rank's: traces by rank with equal
    iterations, and sentences about what was left out.

    Raises ``TimelineError`` when there is nothing to read, or there are files of two jobs.
    """
    if files is None:
        try:
            files = sorted(
                entry
                for entry in folder.iterdir()
                if entry.is_file() and (_FILE.fullmatch(entry.name) or is_rank_file(entry))
            )
        except OSError as error:
            raise TimelineError(
                f"{shown_text(str(folder), 300)} cannot be read: {error.strerror}."
            ) from error
    read: list[tuple[str, RankTrace]] = []
    problems: list[str] = []
    for path in files:
        name = shown_text(path.name, 200)
        try:
            trace, wrong = _read(path, _MOST_ROWS // len(files))
        except TimelineError as error:
            problems.append(str(error))
            continue
        problems += wrong
        if trace.iterations:
            read.append((name, trace))
        else:
            problems.append(f"{name} holds no iteration.")
    _set_ranks([trace for _, trace in read])
    traces: dict[int, RankTrace] = {}
    for name, trace in read:
        if trace.rank in traces:
            raise TimelineError(
                f"{name} and another file are both of rank {trace.rank}: give a folder that holds one job."
            )
        traces[trace.rank] = trace
    if not traces:
        reason = f" {problems[0]}" if problems else ""
        raise TimelineError(
            f"{shown_text(str(folder), 300)} must hold files such as "
            f"benchmark-data-0-pipeline-0-tensor-0.json, one for each rank.{reason}"
        )
    found = [traces[rank] for rank in sorted(traces)]
    missing = sorted(set(range(found[-1].rank + 1)) - traces.keys())
    if missing:
        problems.append(f"Ranks {', '.join(map(str, missing[:_MOST_NAMED]))} have no file.")
    least = min(len(trace.iterations) for trace in found)
    longer = [trace for trace in found if len(trace.iterations) > least]
    if longer:
        problems.append(
            f"Ranks {', '.join(str(trace.rank) for trace in longer[:_MOST_NAMED])} have more than {least} "
            f"iterations: only the first {least} of each are taken."
        )
        for trace in longer:
            del trace.iterations[least:]
    return found, problems


def read_rank_file(path: Path) -> tuple[RankTrace, list[str]]:
    """Read one file, and return sentences about what was left out; raises ``TimelineError``."""
    trace, problems = _read(path, _MOST_ROWS)
    _set_ranks([trace])
    return trace, problems


def _set_ranks(traces: Sequence[RankTrace]) -> None:
    """Set the ranks that only the places say, as Megatron counts them: tensor, then data, then pipeline."""
    places = [trace.place for trace in traces if trace.place is not None]
    data, tensor = (1 + max((place[at] for place in places), default=0) for at in (0, 2))
    for trace in traces:
        if trace.rank < 0 and trace.place is not None:
            d, p, t = trace.place
            trace.rank = t + tensor * (d + data * p)
    free = (number for number in range(len(traces)) if number not in {trace.rank for trace in traces})
    for trace in traces:
        if trace.rank < 0:
            trace.rank = next(free)


def _unpacked(text: bytes, most: int) -> bytes:
    return zlib.decompressobj(31).decompress(text, most) if text.startswith(b"\x1f\x8b") else text


def _read(path: Path, most_rows: int) -> tuple[RankTrace, list[str]]:
    """Read one file, whose trace has no rank yet if neither its rows nor a number in its name say it."""
    name = shown_text(path.name, 200)
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise TimelineError(f"{name} has more than {_MOST_BYTES >> 20} MiB.")
        text = _unpacked(path.read_bytes(), _MOST_BYTES)
    except (OSError, zlib.error) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise TimelineError(f"{name} cannot be read: {shown_text(why, 200)}.") from error
    problems: list[str] = []
    damaged: list[int] = []
    rows: Any
    why = ""
    try:
        rows = parse_json(text) if len(text) <= _WHOLE_BYTES else None
    except ValueError as error:
        rows, why = None, f" {str(error)[:200]}"
    if rows is None:
        # The writer may have been killed, and single rows may be damaged: the others count.
        rows = _row_by_row(text, damaged)
        first = next(rows, None)
        if first is None:
            raise TimelineError(f"{name} must be a JSON array of rows.{why}")
        rows = chain([first], rows)
        if not text.rstrip().endswith(b"]"):
            problems.append(f"{name} is cut off: its whole iterations are taken.")
    elif not isinstance(rows, list):
        raise TimelineError(f"{name} must be a JSON array of rows, it is of another kind.")
    rows = iter(rows)
    trace = RankTrace(-1)
    skipped = _fill(trace, islice(rows, most_rows))
    if next(rows, None) is not None:
        problems.append(
            f"{name} has more than the {most_rows} rows that are read of a file of such a job: its first "
            f"{len(trace.iterations)} iterations are taken."
        )
    if damaged:
        shown = ", ".join(map(str, damaged[:_MOST_NAMED]))
        problems.append(f"{name}: rows that are damaged were left out: {len(damaged)}, row {shown}.")
    if skipped:
        problems.append(f"{name}: {skipped} rows that do not fit were left out.")
    named, last = _PLACE.search(path.name), _NUMBER.search(path.name)
    stage = trace.place[1] if trace.place is not None else None
    if named:
        d, p, t = map(int, named.groups())
        # What a pass says of its stage counts more than a name that may have been changed.
        trace.place = (d, p if stage is None else stage, t)
    elif trace.rank < 0 and last:
        trace.rank = int(last[1])
    return trace, problems


def _row_by_row(text: bytes, damaged: list[int]) -> Iterator[Any]:
    """Yield the rows that can be read, and note the numbers of the others."""
    for number, row in enumerate(_ROW.finditer(text), 1):
        try:
            yield parse_json(row[0])
        except ValueError:
            damaged.append(number)


def _fill(trace: RankTrace, rows: Iterable[Any]) -> int:
    """Sort rows into iterations, and return how many do not fit; rows outside of any are skipped."""
    skipped, pad = 0, 0
    own: list[dict[str, Any]] | None = None
    before: list[dict[str, Any]] = []
    for row in rows:
        if not (
            isinstance(row, dict) and isinstance(row.get("name"), str) and row.get("ph") in ("B", "E", "i")
        ):
            skipped += 1
        elif row["name"] == "iteration" and row["ph"] == "B":
            if own:
                # Its end is damaged: that it was there keeps those after it in step with other ranks.
                trace.iterations.append(Iteration(pad, max(each["rel_ts"] for each in own), own))
                before = own
            pad, own = _integer(row.get("pad_before")), []
        elif own is None:
            continue
        elif row["name"] == "iteration" and row["ph"] == "E":
            if not _is_time(row.get("duration_wall")):
                skipped += 1
            elif not own or own != before:
                # The tracer writes an iteration twice, and those of a window with all that came before.
                new = own[len(before) :] if before and own[: len(before)] == before else own
                trace.iterations.append(Iteration(pad, row["duration_wall"], new))
                before = own
            own = None
        elif _is_time(row.get("rel_ts")):
            own.append(row)
            if trace.place is None and _is_time(row.get("pp_rank")):
                trace.place = (0, row["pp_rank"], 0)
            if not trace.coordinates and all(
                _is_time(row.get(each)) for each in _COORDINATES if each != "dev"
            ):
                trace.coordinates = {each: _integer(row.get(each)) for each in _COORDINATES}
                trace.rank = trace.coordinates["g_rk"]
        else:
            skipped += 1
    return skipped


def _is_time(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _integer(value: Any) -> int:
    return value if _is_time(value) else 0
