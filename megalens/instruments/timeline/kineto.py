"""Spans of a rank's PyTorch profiler trace: passes, optimizer, data and collectives, on its device if any."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .chrome_spans import FAR_US, kind_of
from .kineto_collectives import CORRELATIONS, Collectives, whole
from .span_columns import SpanColumns
from .trace_events import Event, TraceFile

Times = NDArray[np.float64]

_STEP = re.compile(r"ProfilerStep\s?#(\d{1,12})$")
_BACKWARD = re.compile(
    r"autograd::engine::evaluate_function|\w+Backward\d*$|torch::autograd::AccumulateGrad$"
)
_OF_COLLECTIVES = ("c10d::", "record_param_comms")
_OPERATIONS = ("cpu_op", "operator")
_DEVICE = ("kernel", "concurrent_kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset", "mtia_ccp_events")
_LAUNCH = re.compile(r"(\w+_)?(runtime|driver)")
_APART_US = 50.0
"""µs: the largest gap in a backward pass, unless no forward work is in between."""
_LONGEST_US = 30 * 24 * 3600 * 1e6
"""What is so far from the middle of the first events is no time of the trace."""
_MOST_MARKS = 200_000
_MOST_INTERVALS = 2_000_000


def is_kineto(file: TraceFile) -> bool:
    return file.is_profile or bool(bytes(file.facts.distributed)) or file.facts.schema is not None


@dataclass
class KinetoTrace:
    """One file: the rank and world it names, spans in ns of the host's clock, and what it lacks."""

    rank: int | None
    world: int | None
    spans: SpanColumns
    problems: list[str]


class _Intervals:
    """Begins and ends in µs, joined where they overlap when there are many."""

    def __init__(self) -> None:
        self._ends = array("d")
        self._joined_at = 500_000

    def add(self, each: list[float]) -> None:
        self._ends.extend(each)
        if len(self._ends) > 2 * self._joined_at:
            self._ends = array("d", self.joined().tobytes())
            self._joined_at = max(500_000, len(self._ends))

    @property
    def full(self) -> bool:
        return len(self._ends) > 2 * _MOST_INTERVALS

    def joined(self) -> Times:
        return _union(np.frombuffer(self._ends, np.float64).reshape(-1, 2))


@dataclass
class _Found:
    """What is needed of the events. Times in µs since ``origin``."""

    origin: int | None = None
    marks: list[tuple[str, float, float, str]] = field(default_factory=list)
    backward: _Intervals = field(default_factory=_Intervals)
    operations: _Intervals = field(default_factory=_Intervals)
    forward: array[float] = field(default_factory=lambda: array("d"))
    kernels: array[float] = field(default_factory=lambda: array("d"))
    """Start, end and correlation of each."""
    launches: array[float] = field(default_factory=lambda: array("d"))
    """Correlation and start of each."""
    devices: set[str] = field(default_factory=set)
    collectives: Collectives = field(default_factory=Collectives)

    @property
    def full(self) -> bool:
        return (
            self.operations.full
            or self.backward.full
            or max(len(self.kernels), len(self.launches), len(self.forward)) > 3 * _MOST_INTERVALS
            or len(self.marks) > _MOST_MARKS
            or self.collectives.full
        )


def kineto_trace(file: TraceFile) -> KinetoTrace:
    """Read a file; raises ``TimelineError`` when it is no trace."""
    found, problems = _Found(), []
    for first, events in file.pieces():
        file.leave_out(_sort(first, events, found))
        if found.full:
            problems.append(f"{file.shown} has too many events: its beginning is read.")
            break
    base = file.facts.base_ns
    base = base if isinstance(base, int) and 0 <= base < 1 << 61 else 0
    job = file.facts.job
    spans = _spans(found, base, file, problems)
    return KinetoTrace(_known(job.rank), _known(job.world_size), spans, problems)


def _known(value: Any) -> int | None:
    return found if (found := whole(value)) >= 0 else None


def _number(value: Any) -> bool:
    return type(value) in (int, float) and -FAR_US < value < FAR_US


def _sort(first: int, events: list[Event], found: _Found) -> list[int]:
    """Take what is needed of some events, and return the numbers of those that do not fit."""
    if found.origin is None:
        times = sorted(each.ts for each in events if each.ph == "X" and _number(each.ts))  # type: ignore[type-var]
        if not times:
            return []
        found.origin = int(times[len(times) // 2])  # type: ignore[arg-type]
    origin, odd = found.origin, []
    operations: list[float] = []
    for number, each in enumerate(events, first):
        ts: Any = each.ts
        if each.ph == "s" and each.cat == "fwdbwd":
            if _number(ts) and abs(ts - origin) < _LONGEST_US:
                found.forward.append(ts - origin)
            continue
        if each.ph != "X":
            continue
        long: Any = each.dur
        name, category = each.name, each.cat
        if (
            type(ts) not in (int, float)
            or type(long) not in (int, float)
            or type(name) is not str
            or not (-_LONGEST_US < ts - origin < _LONGEST_US and 0 <= long < _LONGEST_US)
        ):
            odd.append(number)
            continue
        start = float(ts - origin)
        end = start + long
        category = category.lower() if type(category) is str else ""
        if category in _OPERATIONS:
            if name.startswith(_OF_COLLECTIVES):
                found.collectives.take_call(name, start, end, each.args)
            elif category == "operator" and _annotated(name, start, end, each, found):
                pass
            else:
                operations += (start, end)
                if _BACKWARD.match(name):
                    found.backward.add([start, end])
        elif category == "user_annotation":
            _annotated(name, start, end, each, found)
        elif category in _DEVICE:
            args = each.args
            correlation = -1 if args is None else whole(args.correlation, CORRELATIONS)
            if not (category.endswith("kernel") and found.collectives.take_kernel(name, start, end, args)):
                found.kernels.extend((start, end, float(correlation)))
                if args is not None and whole(args.device) >= 0:
                    found.devices.add(str(args.device))
        elif each.args is not None and _LAUNCH.fullmatch(category):
            found.launches.extend((float(whole(each.args.correlation, CORRELATIONS)), start))
    found.operations.add(operations)
    return odd


def _annotated(name: str, start: float, end: float, event: Event, found: _Found) -> bool:
    """Take an annotation, and return whether it is one that is known."""
    if found.collectives.take_call(name, start, end, event.args):
        return True
    kind = "forward" if name.endswith("Parallel.forward") else kind_of(name.strip("#[] "))
    if kind not in ("step", "forward", "backward", "optimizer", "data", "checkpoint") or "zero_grad" in name:
        return False
    found.marks.append((kind, start, end, name[:40] if kind == "step" else ""))
    return True


def _spans(found: _Found, base: int, file: TraceFile, problems: list[str]) -> SpanColumns:
    zero = base + 1000 * (found.origin or 0)

    def ns(us: float) -> int:
        return zero + round(us * 1000)

    operations, kernels = found.operations.joined(), _launched(found)
    phases = _phases(found, operations)
    steps = _steps(found, phases, operations, kernels, file, problems)
    starts = [start for start, _, _ in steps]

    def step(at: float) -> int:
        index = bisect_right(starts, at) - 1
        return steps[max(index, 0)][2] if steps else 0

    spans = SpanColumns()
    device = f"cuda:{min(found.devices, default='0', key=int)}" if len(kernels) else "cpu"
    for start, end, number in steps:
        spans.add("step", -1, ns(start), ns(end), step=number)
    counts: dict[tuple[str, int], int] = {}
    for kind, start, end in phases:
        which = step(start)
        count = counts[kind, which] = counts.get((kind, which), -1) + 1
        of = device if kind in ("forward", "backward", "optimizer") else "cpu"
        if len(kernels) and of == device:
            first, last = np.searchsorted(kernels[:, 2], (start, end))
            if first == last:
                continue
            # Of a device count from its first kernel to its last, whenever they were launched.
            start, end = float(kernels[first:last, 0].min()), float(kernels[first:last, 1].max())
        batch = count if kind in ("forward", "backward") else -1
        spans.add(kind, -1, ns(start), ns(end), step=which, micro_batch=batch, device=of)
    _add_collectives(
        spans, found, _union(kernels[:, :2]) if len(kernels) else operations, ns, step, device, file
    )
    if found.collectives.unseen:
        problems.append(
            f"{file.shown}: {found.collectives.unseen} collectives were queued for a device, of which the "
            "trace does not say when it ran them; they are left out."
        )
    return spans


def _phases(found: _Found, operations: Times) -> list[tuple[str, float, float]]:
    """Return the passes on the host: kind, start and end."""
    marked = {
        kind: np.array([(start, end) for what, start, end, _ in found.marks if what == kind], float).reshape(
            -1, 2
        )
        for kind in ("forward", "backward", "optimizer", "data", "checkpoint")
    }
    phases = [
        (kind, start, end)
        for kind in ("optimizer", "data", "checkpoint")
        for start, end in _union(marked[kind]).tolist()
    ]
    begins = np.sort(np.array([start for _, start, _ in phases], float))
    # Between two stretches of backward work of one pass nothing of a forward pass begins.
    forward = np.sort(np.frombuffer(found.forward, np.float64))
    backward: list[tuple[float, float]] = []
    for start, end in found.backward.joined().tolist():
        if backward:
            last = backward[-1][1]
            between = [np.diff(np.searchsorted(each, (last, start)))[0] for each in (forward, begins)]
            if start - last < _APART_US or not any(between):
                backward[-1] = (backward[-1][0], end)
                continue
        backward.append((start, end))
    at = 0
    for start, end in [*backward, (np.inf, np.inf)] if len(forward) else []:
        until = int(np.searchsorted(forward, start))
        # Recomputation in a backward pass (activation checkpointing) belongs to it.
        if until > at:
            begin, last = float(forward[at]), float(forward[until - 1])
            over = np.searchsorted(operations[:, 0], last, side="right") - 1
            ended = max(last, float(operations[over, 1])) if over >= 0 else last
            phases.append(("forward", begin, min(ended, start)))
        at = max(until, int(np.searchsorted(forward, end)))
    phases += [("backward", start, end) for start, end in backward]
    for kind, known in (("forward", len(forward)), ("backward", len(backward))):
        if not known:
            # Where no operation says it, the training script's own annotations do.
            phases += [(kind, start, end) for start, end in _union(marked[kind]).tolist()]
    return sorted(phases, key=lambda phase: phase[1])


def _steps(
    found: _Found,
    phases: list[tuple[str, float, float]],
    operations: Times,
    kernels: Times,
    file: TraceFile,
    problems: list[str],
) -> list[tuple[float, float, int]]:
    """Return start, end and number of each step: the profiler's, the script's, or between optimizer steps."""
    marks = [(start, end, name) for kind, start, end, name in found.marks if kind == "step"]
    numbered = {int(match[1]): (start, end) for start, end, name in marks if (match := _STEP.match(name))}
    if numbered:
        return sorted((start, end, number) for number, (start, end) in numbered.items())
    own = _union(np.array(sorted((start, end) for start, end, _ in marks), float).reshape(-1, 2)).tolist()
    if own:
        return [(start, end, number) for number, (start, end) in enumerate(own, 1)]
    ends = [end for kind, _, end in phases if kind == "optimizer"]
    if ends:
        begins = [min(start for _, start, _ in phases), *ends[:-1]]
        return [(start, end, number) for number, (start, end) in enumerate(zip(begins, ends, strict=True), 1)]
    stretches = [each for each in (operations, kernels[:, :2], found.collectives.extent) if len(each)]
    if not stretches:
        return []
    problems.append(f"{file.shown} says no steps: all of it is taken for one.")
    both = np.concatenate(stretches)
    return [(float(both[:, 0].min()), float(both[:, 1].max()), 1)]


def _launched(found: _Found) -> Times:
    """Return start, end and launch of each kernel, by launch, µs, float64 ``[n, 3]``; unknown ones: start."""
    kernels = np.frombuffer(found.kernels, np.float64).reshape(-1, 3).copy()
    kernels[:, 2] = launched(kernels[:, 2], kernels[:, 0], found.launches)
    return kernels[np.argsort(kernels[:, 2], kind="stable")]


def launched(correlation: Times, otherwise: Times, launches: array[float]) -> Times:
    """Return when each correlation was launched on the host, µs."""
    table = np.frombuffer(launches, np.float64).reshape(-1, 2)
    if not len(table):
        return otherwise
    table = table[np.argsort(table[:, 0], kind="stable")]
    at = np.minimum(np.searchsorted(table[:, 0], correlation), len(table) - 1)
    found: Times = np.where((table[at, 0] == correlation) & (correlation >= 0), table[at, 1], otherwise)
    return found


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


def _add_collectives(
    spans: SpanColumns, found: _Found, work: Times, ns: Any, step: Any, device: str, file: TraceFile
) -> None:
    """Add collectives and messages; the time in which nothing is computed is their wait."""
    covered = np.concatenate([[0.0], np.cumsum(work[:, 1] - work[:, 0])])

    def computing(at: float) -> float:
        index = int(np.searchsorted(work[:, 0], at, side="right"))
        over = max(0.0, float(work[index - 1, 1]) - at) if index else 0.0
        return float(covered[index]) - over

    def launch(correlation: Times, otherwise: Times) -> Times:
        return launched(correlation, otherwise, found.launches)

    for each in found.collectives.found(launch, file.facts.only_group):
        start, end = each.start, each.end
        waiting = max(0.0, end - start - (computing(end) - computing(start)))
        spans.add(
            each.kind, -1, ns(start), ns(end), step=step(start), name=each.name, group=each.group,
            blocked=min(round(1000 * waiting), ns(end) - ns(start)), bytes=each.bytes, peer=each.peer,
            sequence=each.sequence, device=device if each.on_device else "cpu",
        )  # fmt: skip
