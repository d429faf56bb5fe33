"""Spans on one clock in Chrome's trace format, for ``chrome://tracing`` and Perfetto."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import STREAMS
from ...runs.exports import Export, Format
from .analysis import Analysis, analyse
from .spans import KINDS

_ROWS = 50_000
_OWN, _SECOND_TRACK = 0, 1
_NO_TEXT = '""'
_FIELDS = ("step", "micro_batch", "chunk", "blocked", "bytes", "peer", "sequence", "count")
_ABSENT = {"micro_batch": -1, "chunk": -1, "blocked": 0, "bytes": 0, "peer": -1, "sequence": -1, "count": 1}


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
