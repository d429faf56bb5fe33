"""Chrome's trace format, for ``chrome://tracing`` and Perfetto: spans written on one clock, and read."""

from __future__ import annotations

import gzip
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import STREAMS, join_numbers, ranges_text
from ...runs.exports import Export, Format
from .analysis import Analysis, analyse
from .megascan_files import TimelineError
from .spans import COMMUNICATION, KINDS
from .trace_events import Event

_ROWS = 50_000
_OWN, _SECOND_TRACK = 0, 1
_NO_TEXT = '""'
_FIELDS = ("step", "micro_batch", "chunk", "blocked", "bytes", "peer", "sequence", "count")
_ABSENT = {"micro_batch": -1, "chunk": -1, "blocked": 0, "bytes": 0, "peer": -1, "sequence": -1, "count": 1}

SpanRow = dict[str, Any]

_NAMES: tuple[tuple[str, str], ...] = (
    ("step", r"(train[_ ]?)?(step|iteration)\b|ProfilerStep"),
    (
        "collective",
        r"all[-_ ]?(reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|_(reduce|gather|reduce_scatter)"
        r"|broadcast|barrier|nccl|gloo:|grad[-_ ]sync|exchange-|c10d::",
    ),
    ("send", r"i?send\b"),
    ("receive", r"i?recv\b|receive"),
    ("forward", r"forward"),
    ("wgrad", r"wgrad|weight[-_ ]grad"),
    ("backward", r"backward"),
    ("optimizer", r"optimizer"),
    ("data", r"data[-_ ]?load|enumerate\(DataLoader|get[-_ ]batch"),
    ("checkpoint", r"(save[-_ ])?checkpoint|torch\.save"),
)  # fmt: skip
_PATTERNS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _NAMES]
_STAGE = re.compile(r"PP(\d{1,5})\b|[Ss]tage (\d{1,5})\b")
_NUMBER = re.compile(r"(\d{1,6})$")
_MOST = 1 << 60
_MOST_INDEX = 1 << 31
_PASS = re.compile(r"(forward|backward)(-warmup|-cooldown)?")

BEGIN, REDUCE, END = "iteration begin", "reduce", "iteration end"

Stretch = tuple[Any, int, str, int, int]


# MegatronApp's older tracer marks with ticks when an iteration begins and ends, and its pipeline has run
# empty.
class IterationTicks:
    """Collects instants, and makes spans of them."""

    def __init__(self) -> None:
        self._at: dict[tuple[Any, int], dict[str, int]] = {}
        self._threads: dict[tuple[Any, int], set[Any]] = {}

    def take(self, event: Event, ns: int | None) -> None:
        """Take an instant; others than these ticks are ignored."""
        iteration = event.args.iteration if event.args is not None else None
        if event.name not in (BEGIN, REDUCE, END) or ns is None or type(iteration) is not int:
            return
        pid, tid = (value if isinstance(value, int | str) else None for value in (event.pid, event.tid))
        if not 0 <= iteration < 1 << 60:
            return
        # What was written twice counts once.
        self._at.setdefault((pid, iteration), {}).setdefault(event.name, ns)
        self._threads.setdefault((pid, iteration), set()).add(tid)

    def stretches(self) -> list[Stretch]:
        """Return process, iteration, ``step`` or ``reduce``, begin and end in ns.

        Raises ``TimelineError`` where several recordings are in one file, as by MegatronApp's
        ``merge_trace.py``: a process then has an iteration on several threads.
        """
        merged = next((threads for threads in self._threads.values() if len(threads) > 1), None)
        if merged:
            threads = " and ".join(sorted(map(str, merged))[:5])
            raise TimelineError(
                f"The trace holds several recordings of the same iterations, on threads {threads} of each "
                "process. Open the files that it was merged from one by one, and compare their runs."
            )
        found: list[Stretch] = []
        for (pid, iteration), at in self._at.items():
            for tick, what in ((BEGIN, "step"), (REDUCE, "reduce")):
                if tick in at and END in at and at[tick] <= at[END]:
                    found.append((pid, iteration, what, at[tick], at[END]))
        return found


def kind_of(name: str) -> str:
    """Return the kind of span that a name suggests, or ``user``."""
    return next((kind for kind, pattern in _PATTERNS if pattern.match(name)), "user")


def span_row(kind: str, rank: int, start: int, end: int, **others: Any) -> SpanRow:
    """Return a row of the stream; a span that communicates blocks all the time."""
    row: SpanRow = {
        "step": 0, "rank": rank, "stage": -1, "chunk": -1, "micro_batch": -1, "kind": kind, "name": "",
        "start": start, "end": end, "count": 1, "blocked": 0 if kind == "send" else end - start, "bytes": 0,
        "group": "", "peer": -1, "sequence": -1, "device": "", "clock": 0,
    }  # fmt: skip
    row.update(others)
    return row


def chrome_spans(pieces: Iterable[list[Event]]) -> tuple[list[SpanRow], list[str]]:
    """Return spans, and sentences about what was left out."""
    rows: list[SpanRow] = []
    begun: dict[tuple[Any, Any], list[Event]] = {}
    names: dict[Any, str] = {}
    odd = 0
    ticks = IterationTicks()
    for events in pieces:
        for event in events:
            if event.ph == "M":
                if event.name == "process_name" and event.args is not None:
                    names[_key(event.pid)] = str(event.args.name)[:200]
                continue
            if event.ph in ("i", "I"):
                ticks.take(event, _ns(event.ts))
            if event.ph not in ("X", "B", "E"):
                continue
            start = _ns(event.ts)
            if start is None:
                odd += 1
                continue
            at = (_key(event.pid), _key(event.tid))
            if event.ph == "B":
                begun.setdefault(at, []).append(event)
                continue
            if event.ph == "E":
                several = begun.get(at)
                if not several:
                    odd += 1
                    continue
                first = several.pop()
                begin, both = _ns(first.ts) or 0, [event.args, first.args]
                rows.append(_row(first.name, first.cat, event.pid, begin, start, both))
                continue
            long = _ns(event.dur)
            if long is None or long < 0 or not isinstance(event.name, str):
                odd += 1
                continue
            rows.append(_row(event.name, event.cat, event.pid, start, start + long, [event.args]))
    odd += sum(map(len, begun.values()))
    for pid, iteration, what, start, end in ticks.stretches():
        step = {"step": iteration, "pid": pid}
        if what == "step":
            rows.append(span_row("step", -1, start, end, **step, ranks=[]))
        else:
            # Gradients are reduced and the optimizer steps, without a named group.
            rows.append(span_row("collective", -1, start, end, **step, name=what, ranks=None))
    _set_ranks(rows, names)
    return _with_steps(rows), [f"{odd} events do not fit and were left out."] if odd else []


def _key(value: Any) -> Any:
    return value if isinstance(value, int | str) else None


def _ns(us: Any) -> int | None:
    if isinstance(us, bool) or not isinstance(us, int | float) or not abs(us) < 1e15:
        return None
    return round(us * 1000)


def _row(name: Any, category: Any, pid: Any, start: int, end: int, arguments: list[Any]) -> SpanRow:
    name = name if isinstance(name, str) else ""
    kind = category if isinstance(category, str) and category in KINDS else kind_of(name)

    def number(*names: str, least: int = 0, most: int = _MOST) -> int | None:
        for each in arguments:
            for field in names if each is not None else ():
                value = getattr(each, field)
                if isinstance(value, int) and not isinstance(value, bool) and least <= value < most:
                    return value
        return None

    group = next(
        (
            each.group
            for each in arguments
            if each is not None and isinstance(each.group, list | str) and each.group
        ),
        "",
    )
    ranks = (
        sorted({each for each in group if type(each) is int and 0 <= each < 1 << 20})
        if isinstance(group, list) and len(group) < 65_536
        else []
    )
    numbers = {
        "step": number("step", "iteration"),
        "stage": number("pp_rank", "pp_rk", most=_MOST_INDEX),
        "micro_batch": number("micro_batch", "micro_batch_index", "microbatch", most=_MOST_INDEX),
        "chunk": number("chunk", "model_chunk", most=_MOST_INDEX),
        "bytes": number("bytes", "data"),
        "peer": number("peer", most=_MOST_INDEX),
        "sequence": number("sequence"),
        "count": number("count", least=1, most=_MOST_INDEX),
    }
    row = span_row(
        kind, -1, start, end, **{key: value for key, value in numbers.items() if value is not None}
    )
    row["pid"] = pid
    # MegatronApp names complete passes by the part of the schedule that they are in.
    if name.lower() != kind and not _PASS.fullmatch(name):
        row["name"] = name[:500]
    row["ranks"] = ranks
    row["group"] = group[:2000] if isinstance(group, str) else ""
    blocked = number("blocked")
    if blocked is not None or (category in KINDS and kind in COMMUNICATION):
        row["blocked"] = min(blocked or 0, end - start)
    if name.startswith("exchange-"):
        # Both ends of an exchange wait for each other.
        row["name"] = "exchange"
    return row


def _set_ranks(rows: list[SpanRow], names: dict[Any, str]) -> None:
    """Derive ranks and stages from processes and their names."""
    pids = sorted({_key(row["pid"]) for row in rows}, key=lambda pid: (not isinstance(pid, int), str(pid)))
    rank_of: dict[Any, int] = {}
    for order, pid in enumerate(pids):
        named = _NUMBER.search(names.get(pid, "") or (pid if isinstance(pid, str) else ""))
        small = pid if isinstance(pid, int) and 0 <= pid < 1 << 20 else None
        rank = int(named[1]) if named and "rank" in names.get(pid, str(pid)).lower() else None
        wanted = rank if rank is not None else small
        rank_of[pid] = wanted if wanted is not None and wanted not in rank_of.values() else order
    stage_of = {_key(row["pid"]): row["stage"] for row in rows if row["stage"] >= 0}
    for pid, name in names.items():
        stage = _STAGE.search(name)
        if stage:
            stage_of[pid] = int(stage[1] or stage[2])
    for row in rows:
        pid = _key(row.pop("pid"))
        row["rank"] = rank_of[pid]
        row["stage"] = stage_of.get(pid, -1)
        ranks = row.pop("ranks")
        if ranks is None:
            ranks = [row["rank"]]
        # MegatronApp writes the other ranks until its aggregate makes it all of them.
        ranks = sorted({*ranks, row["rank"]}) if ranks else []
        if not ranks:
            continue
        row["group"] = ranges_text(join_numbers(ranks))
        if row["kind"] in ("send", "receive") and len(ranks) == 2:
            row["peer"] = next(each for each in ranks if each != row["rank"])


def _with_steps(rows: list[SpanRow]) -> list[SpanRow]:
    """Set the step of each span; without step spans, add one from first to last span of a rank's step."""
    known = {(row["rank"], row["step"]) for row in rows if row["kind"] == "step"}
    ends: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        at = (row["rank"], row["step"])
        if at not in known:
            both = ends.setdefault(at, [row["start"], row["end"]])
            both[0], both[1] = min(both[0], row["start"]), max(both[1], row["end"])
    stage = {row["rank"]: row["stage"] for row in rows}
    return rows + [
        span_row("step", rank, start, end, step=step, stage=stage[rank])
        for (rank, step), (start, end) in ends.items()
    ]


def write_chrome_trace(analysis: Analysis, path: Path, alarms: Sequence[Mapping[str, Any]] = ()) -> int:
    """Write a trace, compressed where ``path`` ends in ``.gz``, and return how many spans it has.

    Each rank is a process; what runs concurrently with its passes, such as asynchronous collectives, is a
    second thread; messages have arrows. ``metadata.megalens`` has the clocks: by how much each rank's times
    were shifted, and how surely. ``alarms`` are rows of the stream: instants at the end of their rank's step,
    if that was timed.
    """
    with path.open("wb") as raw:
        # No time and no name in the header: the same run gives the same bytes.
        packed = gzip.GzipFile("", "wb", 6, raw, 0) if path.name.endswith(".gz") else raw
        with packed, io.TextIOWrapper(packed, "utf-8", write_through=True) as file:
            file.write('{"displayTimeUnit":"ms","metadata":')
            json.dump({"megalens": _manifest(analysis)}, file)
            file.write(',"traceEvents":[')
            before = ""
            for events in _events(analysis, alarms):
                file.write(before + ",\n".join(events))
                before = ",\n"
            file.write("]}\n")
    return len(analysis.spans)


def _manifest(analysis: Analysis) -> dict[str, Any]:
    clocks = analysis.clocks
    return {
        "clocks": [
            {
                "rank": int(rank),
                "reference": int(clocks.component[at]),
                "offset_ns": int(clocks.offset_ns[at]),
                "at_ns": int(clocks.middle[at]),
                "drift": float(clocks.drift[at]),
                "half_width_ns": float(clocks.half_width_ns[at]),
            }
            for at, rank in enumerate(clocks.ranks)
        ],
        "problems": [*analysis.spans.problems, *analysis.dependencies.problems, *clocks.problems],
    }


def _events(analysis: Analysis, alarms: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    spans, clocks = analysis.spans, analysis.clocks
    yield [json.dumps(event) for event in _processes(analysis)]
    start = clocks.aligned(spans.rank, spans.start)
    # Ranks that nothing connects each begin at nothing: their clocks may be hours apart.
    reference = clocks.component[np.searchsorted(clocks.ranks, spans.rank)]
    for each in np.unique(reference):
        start[reference == each] -= start[reference == each].min()
    # A rank's own track has what is nested: passes, and what blocks.
    track = (spans.blocked < spans.end - spans.start).astype(int)
    names, groups = ([json.dumps(text) for text in texts] for texts in (spans.names, spans.groups))
    kinds = [json.dumps(kind) for kind in KINDS]
    for at in range(0, len(spans), _ROWS):
        rows = slice(at, at + _ROWS)
        columns = [getattr(spans, name)[rows].tolist() for name in _FIELDS]
        texts = zip(
            *(getattr(spans, name)[rows].tolist() for name in ("kind", "name", "group", "rank")), strict=True
        )
        times = zip(
            start[rows].tolist(), (spans.end - spans.start)[rows].tolist(), track[rows].tolist(), strict=True
        )
        yield [
            _span(kinds[kind], names[name], groups[group], rank, time, values)
            for (kind, name, group, rank), time, values in zip(
                texts, times, zip(*columns, strict=True), strict=True
            )
        ]
    yield from _arrows(analysis, start, track)
    if instants := list(_instants(analysis, start, alarms)):
        yield instants


def _instants(analysis: Analysis, start: Any, alarms: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield an instant for each alarm, where its rank's step ended."""
    spans = analysis.spans
    steps = np.flatnonzero(spans.of_kind("step"))
    ended = {
        (int(spans.rank[at]), int(spans.step[at])): int(start[at] + spans.end[at] - spans.start[at])
        for at in steps
    }
    for alarm in alarms:
        time = ended.get((alarm["rank"], alarm["step"]))
        if time is not None:
            yield json.dumps(
                {
                    "ph": "i",
                    "s": "p",
                    "name": alarm["rule"],
                    "cat": "alarm",
                    "pid": alarm["rank"],
                    "tid": _OWN,
                    "ts": time / 1000,
                    "args": {name: alarm[name] for name in ("step", "severity", "name", "sentence")},
                }
            )


def _span(
    kind: str, name: str, group: str, rank: int, time: tuple[int, int, int], values: tuple[int, ...]
) -> str:
    start, long, track = time
    arguments = ",".join(
        f'"{field}":{value}'
        for field, value in zip(_FIELDS, values, strict=True)
        if value != _ABSENT.get(field)
    )
    of = "" if group == _NO_TEXT else f',"group":{group}'
    shown = kind if name == _NO_TEXT else name
    return (
        f'{{"ph":"X","name":{shown},"cat":{kind},"pid":{rank},"tid":{track},'
        f'"ts":{start / 1000:.3f},"dur":{long / 1000:.3f},"args":{{{arguments}{of}}}}}'
    )


def _arrows(analysis: Analysis, start: Any, second_track: Any) -> Iterator[list[str]]:
    """Yield an arrow for each message, from its send to its receive."""
    found, spans = analysis.dependencies, analysis.spans
    events = np.flatnonzero(found.complete & found.message)
    for at in range(0, len(events), _ROWS):
        chosen = events[at : at + _ROWS]
        sent, received = found.rows[found.first[chosen]], found.rows[found.first[chosen] + 1]
        arrived = start[received] + spans.end[received] - spans.start[received]
        lines = []
        for phase, rows, times in (("s", sent, start[sent]), ("f", received, arrived)):
            more = ',"bp":"e"' if phase == "f" else ""
            lines += [
                f'{{"ph":"{phase}","id":{number},"name":"message","cat":"message",'
                f'"pid":{rank},"tid":{track},"ts":{time / 1000:.3f}{more}}}'
                for number, rank, track, time in zip(
                    chosen.tolist(),
                    spans.rank[rows].tolist(),
                    second_track[rows].tolist(),
                    times.tolist(),
                    strict=True,
                )
            ]
        yield lines


def _processes(analysis: Analysis) -> Iterator[dict[str, Any]]:
    spans = analysis.spans
    first = spans.first_rows
    for order, (rank, stage) in enumerate(
        zip(spans.ranks.tolist(), spans.stage[first].tolist(), strict=True)
    ):
        name = f"Rank {rank}" if stage < 0 else f"Stage {stage}, rank {rank}"
        yield {"ph": "M", "name": "process_name", "pid": rank, "args": {"name": name}}
        sort_index = max(stage, 0) * (len(first) + 1) + order
        yield {"ph": "M", "name": "process_sort_index", "pid": rank, "args": {"sort_index": sort_index}}
        for track, text in ((_OWN, "Passes"), (_SECOND_TRACK, "Beside them")):
            yield {"ph": "M", "name": "thread_name", "pid": rank, "tid": track, "args": {"name": text}}


def _export(export: Export) -> None:
    spans, alarms = (
        pa.Table.from_batches(export.batches(stream), STREAMS[stream].schema)
        for stream in ("spans", "alarms")
    )
    write_chrome_trace(analyse(spans), export.folder / "trace.json.gz", alarms.to_pylist())


PERFETTO = Format(_export, ("spans", "alarms"))
"""The format of ``run.export("perfetto")``."""
