"""The way of spans: noted in the training thread, made rows in the producer thread, sent by rank 0."""

from __future__ import annotations

import contextlib
import math
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...tracer.errors import describe_error
from ...tracer.memory import MemoryReader
from . import memory_rows
from .memory_rows import Readings
from .noted_span import Span
from .step_clock import DeviceTimes, Marks, StepClock, clock_number

if TYPE_CHECKING:
    from ...tracer.instrument import Host

STREAM = "spans"
_ALARMS = "alarms"
_NUMBERS = ("step", "chunk", "micro_batch", "start", "end", "count", "blocked", "bytes", "peer", "sequence")
_TEXTS = ("kind", "name", "group", "device")
_PASSES = ("forward", "backward", "wgrad")
_TRAFFIC = ("collective", "send", "receive")
_FLUSH_SECONDS = 0.5
_MOST_ROWS = 20_000
SPAN_BYTES = 8 * (len(_NUMBERS) + len(_TEXTS))
"""Bytes of one span on its way to rank 0, without its texts."""

_RULE = "slow_rank"
_WINDOW = 30
"""Steps of a finding."""
_STEPS = 10 * _WINDOW
"""Steps in which the beginning of a finding is searched."""
_LEAST = 0.05
_SURE = 6.0
"""Standard errors by which a finding must exceed zero."""
_USUAL = 0.8
"""Share of the steps in which it must occur: a few long ones are something else."""
_MAD = 1.4826
_MOST_STEPS, _MOST_WAITING = 256, 20_000
"""Most steps, or numbers in them, that wait for other ranks, which report up to a second together."""
_RISE = 1.5


# Says while the training runs which rank computes more slowly than those that do the same: from sums of each
# step, on rank 0.
class SlowRanks:
    def __init__(self, world: int) -> None:
        self._world = world
        self._steps: dict[int, dict[int, tuple[int, float]]] = {}
        # Of the newest steps that all ranks reported, a ring whose next index is ``_seen`` modulo its length.
        self._seen = 0
        self._numbers = np.zeros(_STEPS, np.int64)
        self._slower = np.zeros((_STEPS, world))
        self._own, self._like = np.zeros((2, _WINDOW, world))
        self._reported = np.zeros(world)

    def take(self, rank: int, stage: int, step: int, ns: float) -> list[dict[str, Any]]:
        """Take a rank's work in a step; return the rows of the stream ``alarms`` that follow."""
        if self._world < 2:
            return []
        reported = self._steps.setdefault(step, {})
        reported[rank] = (stage, ns)
        if len(reported) < self._world:
            while len(self._steps) > max(_MOST_STEPS, _MOST_WAITING // self._world):
                del self._steps[next(iter(self._steps))]
            return []
        del self._steps[step]
        stages, work = np.array([reported[each] for each in range(self._world)]).T
        like = medians_of_others(stages, work)
        at, recent = self._seen % _STEPS, self._seen % _WINDOW
        self._seen += 1
        self._numbers[at], self._own[recent], self._like[recent] = step, work, like
        # Without others that work a rank is not slower.
        self._slower[at] = np.divide(work, like, out=np.ones(len(work)), where=like > 0) - 1
        return self._judged(step, stages) if self._seen >= _WINDOW else []

    def _judged(self, step: int, stages: np.ndarray) -> list[dict[str, Any]]:
        """Return the alarms of a step: mostly none, which the first lines find."""
        newest = (self._seen - 1 - np.arange(min(self._seen, _STEPS))) % _STEPS
        recent = self._slower[newest[:_WINDOW]]
        middle = np.median(recent, axis=0)
        self._reported[middle < _LEAST / 2] = 0.0
        large = np.flatnonzero((middle >= _LEAST) & (middle >= _RISE * self._reported))
        found = []
        for rank in large.tolist():
            mine, level = recent[:, rank], float(middle[rank])
            error = _MAD * float(np.median(np.abs(mine - level))) / math.sqrt(_WINDOW)
            if level <= _SURE * error or (mine > level / 2).mean() < _USUAL:
                continue
            self._reported[rank] = level
            # Since when: the interval up to now with most of its steps, each other step counting against two.
            score = np.cumsum(np.where(self._slower[newest, rank] > level / 2, 1, -2))
            since = int(self._numbers[newest[int(np.argmax(score))]])
            stage = int(stages[rank])
            where = " of its stage" if stage >= 0 else ""
            found.append({
                "step": step, "time": time.time(), "rank": rank, "stage": stage, "micro_batch": -1,
                "rule": _RULE, "severity": "warning", "direction": "compute",
                "stat": "span", "name": "compute", "statistic": "ms",
                "value": float(np.median(self._own[:, rank])) / 1e6,
                "expected": float(np.median(self._like[:, rank])) / 1e6,
                "sentence": f"Rank {rank} is {100 * level:.0f} % slower than the other ranks{where} "
                f"since step {since}.",
                "place": 0, "samples": "", "cause": 0,
            })  # fmt: skip
        return found


def medians_of_others(stages: np.ndarray, work: np.ndarray) -> np.ndarray:
    """Return for each rank the median work of the others of its stage; NaN without others."""
    like = np.full(len(work), np.nan)
    for stage in np.unique(stages):
        ranks = np.flatnonzero(stages == stage)
        others = len(ranks) - 1
        if others < 1:
            continue
        order = np.argsort(work[ranks], kind="stable")
        index = np.empty(len(ranks), np.int64)
        index[order] = np.arange(len(ranks))
        ordered = work[ranks][order]
        # Without a rank those after it move up by one.
        below, above = ((others - 1) // 2, others // 2)
        like[ranks] = sum(ordered[np.where(index > each, each, each + 1)] for each in (below, above)) / 2
    return like


_NOT_BLOCKED_NS = 20_000
"""A device takes some µs between two consecutive events."""


class _TimedStep(NamedTuple):
    """The spans of a step, as the training thread passes them on."""

    number: int
    spans: Sequence[Span]
    summed: bool
    marks: Marks
    readings: Readings
    reader: MemoryReader | None


_COLUMNS = {STREAM: (_NUMBERS, _TEXTS), memory_rows.STREAM: (memory_rows.NUMBERS, memory_rows.TEXTS)}


class _Table(NamedTuple):
    """The rows of a stream of some steps of a rank, and their common columns."""

    stream: str

    rank: int
    stage: int
    clock: int
    rows: np.ndarray
    """int64 ``[n, 14]``, the numbers and texts of :data:`_COLUMNS`, with indices into ``texts``."""
    texts: Sequence[str]


class SpanSender:
    """Takes the spans of a step from the training thread. Other ranks send theirs to rank 0, which sends all.

    ``slow`` is called in the producer thread of rank 0 when a rank was found slow.
    """

    def __init__(self, host: Host, slow: Callable[[], None], clock: StepClock) -> None:
        self._host, self._found, self._clock = host, slow, clock
        # Steps that the training thread has handed over.
        self._steps: deque[_TimedStep] = deque()
        self._times: DeviceTimes | None = None
        self._rows: list[_Table] = []
        self._clock_number = clock_number()
        self._count, self._flushed = 0, time.monotonic()
        self._closed = False
        self._slow = SlowRanks(host.place.world_size)
        if host.place.rank == 0:
            host.gather(self)

    def put(self, step: int, spans: Sequence[Span], summed: bool) -> None:
        """Queue a step; training thread."""
        marks, readings = self._clock.take()
        self._steps.append(_TimedStep(step, spans, summed, marks, readings, self._clock.memory))
        nbytes = SPAN_BYTES * len(spans) * (2 if readings else 1)
        # Rows of several steps go together: neither the search for slow ranks nor a picture waits for one.
        if not self._host.later(self._take, nbytes, patient=True):
            with contextlib.suppress(IndexError):
                self._clock.give(self._steps.pop().marks)
            self._host.lose(len(spans), "waiting", "Spans")

    def close(self) -> None:
        """Accept nothing more; what came is still sent."""
        self._closed = True
        self._host.later(self._take)

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take the rows of another rank, in the thread of the connections."""
        numbers, texts_of = _COLUMNS[meta["stream"]]
        table = np.frombuffer(payload, "<i8").reshape(-1, len(numbers) + len(texts_of))
        texts = [str(text) for text in meta["texts"]]
        if table[:, len(numbers) :].size and not 0 <= table[:, len(numbers) :].max() < len(texts):
            raise ValueError("a text that is not there")
        worked = [(int(step), float(ns)) for step, ns in meta["worked"]]
        rows = _Table(meta["stream"], rank, int(meta["stage"]), int(meta["clock"]), table, texts)
        self._host.later(lambda: self._keep(rows, worked), payload.nbytes, patient=True)

    # The producer thread.

    @property
    def waiting(self) -> bool:
        """Whether rows are to be sent, or a device still works on them."""
        return bool(self._rows or self._steps)

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""
        return self._closed and not self.waiting

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what has come, at most twice a second."""
        if self._steps:
            self._take()
        if not self._rows or not (
            everything
            or self._closed
            or self._count > _MOST_ROWS
            or time.monotonic() - self._flushed > _FLUSH_SECONDS
        ):
            return
        rows, self._rows, self._count = self._rows, [], 0
        self._flushed = time.monotonic()
        for stream in _COLUMNS:
            if mine := [each for each in rows if each.stream == stream]:
                self._send(stream, mine)

    def _send(self, stream: str, rows: Sequence[_Table]) -> None:
        numbers, texts = _COLUMNS[stream]
        sizes = [len(each.rows) for each in rows]
        # Each table has its own texts: concatenated, they follow those of earlier tables.
        firsts = np.cumsum([0, *(len(each.texts) for each in rows[:-1])])
        every = np.array([text for each in rows for text in each.texts], object)
        table = np.concatenate([each.rows for each in rows])
        order = np.argsort(table[:, 0], kind="stable")
        codes = (table[:, len(numbers) :] + np.repeat(firsts, sizes)[:, None])[order]
        columns: dict[str, Any] = {name: table[order, at] for at, name in enumerate(numbers)}
        columns |= {name: every[codes[:, at]].tolist() for at, name in enumerate(texts)}
        for name, dtype in (("rank", np.int32), ("stage", np.int32), ("clock", np.int64)):
            columns[name] = np.repeat(np.array([getattr(each, name) for each in rows], dtype), sizes)[order]
        self._host.send(stream, columns, int(table[:, 0].max()))

    def _take(self) -> None:
        steps = []
        # What a device still works on waits for the next time; at the end it is waited for.
        while self._steps and (self._closed or self._clock.passed(self._steps[0].marks)):
            steps.append(self._steps.popleft())
        if not steps:
            return
        try:
            self._pass_on(steps)
        except Exception as error:  # Tracing goes on without these.
            first, last = steps[0].number, steps[-1].number
            self._host.warn(
                f"The spans of steps {first} to {last} were lost to an error of their own: "
                f"{describe_error(error)}"
            )

    def _pass_on(self, steps: Sequence[_TimedStep]) -> None:
        codes: dict[str, int] = {}
        memory_codes: dict[str, int] = {}
        rows, memory, worked = [], [], []
        for step in steps:
            spans = self._placed(step) if step.marks else step.spans
            rows += _rows(step.number, _sums(spans) if step.summed else spans, codes)
            worked.append((step.number, computed_ns(spans)))
            if step.reader is not None:
                memory += memory_rows.memory_rows(
                    step.number, step.spans, spans, step.readings, step.reader, step.summed, memory_codes
                )
        self._hand_over(STREAM, rows, codes, worked)
        if memory:
            self._hand_over(memory_rows.STREAM, memory, memory_codes, ())

    def _hand_over(
        self,
        stream: str,
        rows: Sequence[tuple[int, ...]],
        codes: Mapping[str, int],
        worked: Sequence[tuple[int, float]],
    ) -> None:
        """Keep the rows of this rank, or send them to rank 0."""
        place = self._host.place
        stage = place.pp if place.pp_size > 1 else -1
        table = np.array(rows, "<i8").reshape(-1, sum(map(len, _COLUMNS[stream])))
        texts, clock = list(codes), self._clock_number
        if place.rank == 0:
            self._keep(_Table(stream, 0, stage, clock, table, texts), worked)
        else:
            meta = {"stream": stream, "stage": stage, "clock": clock, "texts": texts, "worked": worked}
            self._host.tell(0, meta, [table])

    def _placed(self, step: _TimedStep) -> Sequence[Span]:
        """Return spans with the device's times on the host's clock."""
        events = self._clock.events
        if events is None:
            return step.spans
        try:
            if self._times is None or self._times.events is not events:
                self._times = DeviceTimes(events)
            passed = self._times.read(step.marks)
        except Exception as error:  # What the host saw is better than nothing.
            self._clock.give_up(error)
            return step.spans
        self._clock.give(step.marks)
        return [_on_device(each, passed, events.name) for each in step.spans]

    def _keep(self, table: _Table, worked: Sequence[tuple[int, float]]) -> None:
        if len(table.rows):
            self._rows.append(table)
            self._count += len(table.rows)
        for step, ns in worked:
            alarms = self._slow.take(table.rank, table.stage, step, ns)
            if alarms:
                columns_of = {name: [alarm[name] for alarm in alarms] for name in alarms[0]}
                self._host.send(_ALARMS, columns_of, alarms[0]["step"])
                self._found()
        self.send_ready()


def _on_device(span: Span, passed: Mapping[int, int], device: str) -> Span:
    """Return a span with the times at which a device passed its ends, if it has passed both."""
    start, end = passed.get(span.start), passed.get(span.end)
    if start is None or end is None:
        return span
    length = max(0, end - start)
    since = passed.get(span.end - span.blocked, start)
    blocked = min(length, max(0, end - since))
    if blocked < length and blocked <= _NOT_BLOCKED_NS:
        blocked = 0
    return span._replace(start=start, end=start + length, blocked=blocked, device=device)


def computed_ns(spans: Sequence[Span]) -> float:
    """Return the ns of a rank's own work in a step: passes and optimizer without waiting in communication."""
    work = sorted(
        (each.start, each.end)
        for each in spans
        if each.kind == "optimizer" or (each.kind in _PASSES and not each.name)
    )
    starts = [start for start, _ in work]
    total = sum(end - start for start, end in work)
    for each in spans:
        if each.kind in _TRAFFIC and each.blocked > 0:
            at = bisect_right(starts, each.end - each.blocked) - 1
            if at >= 0 and each.end <= work[at][1]:
                total -= each.blocked
    return float(total)


def _sums(spans: Sequence[Span]) -> list[Span]:
    """Return one row for each kind: count, times, waits and bytes; nested spans of a kind count once."""
    sums: dict[str, Span] = {}
    until: dict[str, int] = {}
    for each in sorted(spans, key=lambda span: span.start):
        before = sums.get(each.kind)
        if before is None:
            sums[each.kind] = Span(
                each.kind, each.start, each.end, blocked=each.blocked, bytes=each.bytes, device=each.device
            )
            until[each.kind] = each.end
            continue
        alone = max(0, each.end - max(each.start, until[each.kind]))
        until[each.kind] = max(until[each.kind], each.end)
        sums[each.kind] = before._replace(
            end=before.end + alone,
            counted=before.counted + 1,
            blocked=before.blocked + each.blocked,
            bytes=before.bytes + each.bytes,
        )
    return list(sums.values())


def _rows(step: int, spans: Sequence[Span], codes: dict[str, int]) -> list[tuple[int, ...]]:
    """Return spans as rows of 14 integers: numbers, then indices of texts in ``codes``, which grows."""
    return [
        (
            *(step, each.chunk, each.micro_batch, each.start, each.end, each.counted),
            *(each.blocked, each.bytes, each.peer, each.sequence),
            *(codes.setdefault(text, len(codes)) for text in (each.kind, each.name, each.group, each.device)),
        )
        for each in spans
    ]
