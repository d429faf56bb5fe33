"""Spans of a rank's PyTorch profiler trace: passes, optimizer, data and collectives, on its device if any."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol import join_numbers, ranges_text
from .chrome import SpanRow, kind_of, span_row
from .trace_events import Event, TraceFile

Times = NDArray[np.float64]

_STEP = re.compile(r"ProfilerStep\s?#(\d{1,12})$")
_BACKWARD = "autograd::engine::evaluate_function"
_COLLECTIVE = re.compile(r"nccl(?:Dev)?Kernel|nccl:|gloo:|rccl|ucc:|mpi:", re.IGNORECASE)
_POINT_TO_POINT = re.compile(r"send|recv", re.IGNORECASE)
_RANKS = re.compile(r"\d{1,7}")
_BYTES = {
    **dict.fromkeys(("char", "byte", "bool"), 1),
    **dict.fromkeys(("half", "bfloat16", "short"), 2),
    **dict.fromkeys(("float", "int"), 4),
    **dict.fromkeys(("double", "long"), 8),
}
_FAR_US = 1e15
"""µs: no profile is of another century; more would overflow in ns."""
_APART_US = 50.0
"""µs: the largest gap in a backward pass, unless no forward work is in between."""


def is_kineto(file: TraceFile) -> bool:
    return file.facts.distributed is not None or file.facts.schema is not None


@dataclass
class KinetoTrace:
    """One file: the rank and world it names, and rows with times in ns of the host's clock and rank -1."""

    rank: int | None
    world: int | None
    rows: list[SpanRow]


@dataclass
class _Found:
    """The events that are needed. Times in µs."""

    annotations: list[Event] = field(default_factory=list)
    backward: list[tuple[float, float]] = field(default_factory=list)
    forward: list[float] = field(default_factory=list)
    operations: list[tuple[float, float]] = field(default_factory=list)
    collectives: list[Event] = field(default_factory=list)
    kernels: list[tuple[float, float, Any]] = field(default_factory=list)
    launches: dict[Any, float] = field(default_factory=dict)
    devices: set[Any] = field(default_factory=set)


def kineto_trace(file: TraceFile) -> KinetoTrace:
    """Read a file; raises ``TimelineError`` when it is no trace."""
    found = _Found()
    for events in file.pieces():
        _sort(events, found)
    facts = file.facts.distributed if isinstance(file.facts.distributed, dict) else {}
    base = file.facts.base_ns
    base = base if isinstance(base, int) and 0 <= base < 1 << 62 else 0
    rows = _rows(found, base, facts)
    return KinetoTrace(_integer(facts.get("rank")), _integer(facts.get("world_size")), rows)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str) else None


def _integer(value: Any, end: int = 1 << 20) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < end else None


def _sort(events: list[Event], found: _Found) -> None:
    # Millions of events: one comprehension each for what there are many of.
    usable = [
        each
        for each in events
        if each.ph == "X"
        and type(each.ts) in (float, int)
        and type(each.dur) in (float, int)
        and type(each.name) is str
        and -_FAR_US < each.ts < _FAR_US
        and 0 <= each.dur < _FAR_US
    ]
    found.forward += [
        each.ts
        for each in events
        if each.ph == "s"
        and each.cat == "fwdbwd"
        and type(each.ts) in (float, int)
        and -_FAR_US < each.ts < _FAR_US
    ]
    found.operations += [
        (each.ts, each.ts + each.dur)
        for each in usable
        if each.cat == "cpu_op" and not each.name.startswith(("c10d::", "record_param_comms"))
    ]
    for each in usable:
        category = each.cat
        if category == "cpu_op":
            if each.name.startswith(_BACKWARD):
                found.backward.append((each.ts, each.ts + each.dur))
        elif category == "user_annotation":
            (found.collectives if _COLLECTIVE.match(each.name) else found.annotations).append(each)
        elif category in ("kernel", "gpu_memcpy", "gpu_memset"):
            if _COLLECTIVE.match(each.name):
                found.collectives.append(each)
            elif each.args is not None:
                found.kernels.append((each.ts, each.ts + each.dur, _plain(each.args.correlation)))
                found.devices.add(str(each.args.device)[:20])
        elif category in ("cuda_runtime", "cuda_driver") and each.args is not None:
            found.launches[_plain(each.args.correlation)] = each.ts


def _rows(found: _Found, base: int, facts: dict[str, Any]) -> list[SpanRow]:
    def ns(us: float) -> int:
        return base + round(us * 1000)

    phases = _phases(found)
    steps = _steps(found, phases)
    starts = [start for start, _, _ in steps]

    def step(at: float) -> int:
        index = bisect_right(starts, at) - 1
        return steps[max(index, 0)][2] if steps else 0

    device = "cpu"
    kernels = _launched(found)
    if len(kernels):
        device = f"cuda:{next((each for each in sorted(found.devices) if each.isdigit()), '0')}"
    rows = [span_row("step", -1, ns(start), ns(end), step=number) for start, end, number in steps]
    counts: dict[tuple[str, int], int] = {}
    for kind, start, end in phases:
        which = step(start)
        count = counts[kind, which] = counts.get((kind, which), -1) + 1
        of = device if kind in ("forward", "backward", "optimizer") else "cpu"
        if len(kernels) and of == device:
            mine = kernels[(kernels[:, 2] >= start) & (kernels[:, 2] < end)]
            if not len(mine):
                continue
            # Of a device count from its first kernel to its last, whenever they were launched.
            start, end = float(mine[:, 0].min()), float(mine[:, 1].max())
        batch = count if kind in ("forward", "backward") else -1
        rows.append(span_row(kind, -1, ns(start), ns(end), step=which, micro_batch=batch, device=of))
    work: Times = kernels[:, :2] if len(kernels) else np.array(found.operations, float).reshape(-1, 2)
    return rows + _communication(found, _union(work), ns, step, facts, device)


def _phases(found: _Found) -> list[tuple[str, float, float]]:
    """Return the annotated passes on the host: kind, start and end."""
    phases = []
    for each in found.annotations:
        kind = kind_of(each.name)
        if kind in ("optimizer", "data", "checkpoint") and "zero_grad" not in each.name:
            phases.append((kind, float(each.ts), float(each.ts + each.dur)))
    # Between two stretches of backward work of one pass nothing of a forward pass begins.
    forward = np.sort(np.array(found.forward, float))
    stretches = _union(np.array(found.backward, float).reshape(-1, 2))
    backward: list[tuple[float, float]] = []
    for start, end in stretches.tolist():
        if backward:
            last = backward[-1][1]
            others = np.searchsorted(forward, start) - np.searchsorted(forward, last)
            if start - last < _APART_US or (
                others == 0 and not any(last <= begin < start for _, begin, _ in phases)
            ):
                backward[-1] = (backward[-1][0], end)
                continue
        backward.append((start, end))
    operations = np.array(sorted(found.operations), float).reshape(-1, 2)
    before = -np.inf
    for start, end in [*backward, (np.inf, np.inf)]:
        mine = forward[(forward >= before) & (forward < start)]
        # Recomputation in a backward pass (activation checkpointing) belongs to it.
        if len(mine):
            last = np.searchsorted(operations[:, 0], mine[-1], side="right") - 1
            until = max(float(mine[-1]), float(operations[last, 1]) if last >= 0 else float(mine[-1]))
            phases.append(("forward", float(mine[0]), min(until, start)))
        before = end
    phases += [("backward", start, end) for start, end in backward]
    return sorted(phases, key=lambda phase: phase[1])


def _steps(found: _Found, phases: list[tuple[str, float, float]]) -> list[tuple[float, float, int]]:
    """Return start, end and number of each step: the profiler's own, or between optimizer steps."""
    marked = [
        (each.ts, each.ts + each.dur, int(match[1]))
        for each in found.annotations
        if (match := _STEP.match(each.name))
    ]
    if marked:
        return sorted(marked)
    ends = [end for kind, _, end in phases if kind == "optimizer"]
    begin = min((start for _, start, _ in phases), default=0.0)
    steps = []
    for number, end in enumerate(ends, 1):
        steps.append((begin, end, number))
        begin = end
    return steps


def _launched(found: _Found) -> Times:
    """Return start, end and launch of each kernel, µs, float64 ``[n, 3]``; unknown launches are starts."""
    table = [
        (start, end, found.launches.get(correlation, start)) for start, end, correlation in found.kernels
    ]
    return np.array(table, float).reshape(-1, 3)


def _union(intervals: Times) -> Times:
    """Return the union of intervals, rising and disjoint."""
    if not len(intervals):
        return intervals
    order = intervals[np.argsort(intervals[:, 0], kind="stable")]
    reach = np.maximum.accumulate(order[:, 1])
    new = np.ones(len(order), bool)
    new[1:] = order[1:, 0] > reach[:-1]
    first = np.flatnonzero(new)
    return np.stack([order[first, 0], reach[np.append(first[1:], len(order)) - 1]], axis=1)


def _communication(
    found: _Found, work: Times, ns: Any, step: Any, facts: dict[str, Any], device: str
) -> list[SpanRow]:
    """Return collectives and messages; the time in which nothing is computed is their wait."""
    groups = facts.get("pg_config")
    only = (
        groups[0].get("ranks")
        if isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], dict)
        else None
    )
    covered = np.concatenate([[0.0], np.cumsum(work[:, 1] - work[:, 0])])

    def computing(at: float) -> float:
        index = int(np.searchsorted(work[:, 0], at, side="right"))
        over = max(0.0, float(work[index - 1, 1]) - at) if index else 0.0
        return float(covered[index]) - over

    rows = []
    for each in sorted(found.collectives, key=lambda event: event.ts):
        start, end = each.ts, each.ts + each.dur
        arguments = each.args
        name = arguments.collective if arguments and isinstance(arguments.collective, str) else ""
        name = (name or each.name.split(":")[-1].split("(")[0])[:200]
        ranks = _ranks(arguments.ranks if arguments else None) or _ranks(only)
        waiting = max(0.0, end - start - (computing(end) - computing(start)))
        others: dict[str, Any] = {
            "step": step(start), "name": name, "group": ranges_text(join_numbers(ranks)) if ranks else "",
            "blocked": min(round(1000 * waiting), ns(end) - ns(start)), "bytes": _size(each),
            "device": device if each.cat == "kernel" else "cpu",
        }  # fmt: skip
        if arguments is not None and _integer(arguments.seq) is not None:
            others["sequence"] = arguments.seq
        kind = "collective"
        if _POINT_TO_POINT.search(name) and arguments is not None:
            kind = "send" if "send" in name.lower() else "receive"
            peer = _integer(arguments.destination if kind == "send" else arguments.source)
            others["peer"] = -1 if peer is None else peer
        rows.append(span_row(kind, -1, ns(start), ns(end), **others))
    return rows


def _ranks(value: Any) -> list[int]:
    if isinstance(value, str):
        # The profiler shortens long lists in the middle, which makes them useless.
        return [] if "..." in value else sorted({int(each) for each in _RANKS.findall(value[:400_000])})
    if isinstance(value, list) and len(value) < 65_536:
        return sorted({each for each in value if _integer(each) is not None})
    return []


def _size(event: Event) -> int:
    arguments = event.args
    if arguments is None:
        return 0
    elements = _integer(arguments.elements, 1 << 50)
    if elements is None:
        elements = 0
        for dimensions in re.findall(rb"\[([\d,\s]*)\]", bytes(arguments.dimensions)[:4000]):
            product = 1
            for each in re.findall(rb"\d{1,12}", dimensions):
                product *= int(each)
            elements += product if dimensions.strip() else 0
    kind = arguments.dtype if isinstance(arguments.dtype, str) else "float"
    return min(elements * _BYTES.get(kind.lower(), 4), 1 << 50)
