"""The instrument of the stream ``alarms``."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from ...protocol import (
    MEMORY,
    MEMORY_LIMIT,
    MEMORY_NOW,
    MEMORY_PEAK,
    MOMENT_COLUMNS,
    MOMENT_STATS,
    Readings,
    StepReadings,
    merge_moments,
    must_be,
    stream_schema,
)
from ...protocol.messages_generated import Status
from ...tracer.errors import TracerError, describe_error
from ...tracer.instrument import Instrument
from ...tracer.memory import MemoryReader, memory_reader
from .actions import Action, OptimizerNumbers, post
from .rule import alarm_columns

if TYPE_CHECKING:
    from ...tracer.instrument import Host
    from ...tracer.moments.logger import StatisticsLogger
    from ...tracer.tracer import Tracer
    from .watch import Watch

STREAM = "alarms"
_MOST_WAITING = 16
_MOST_REASON = 1000
_MOST_SAMPLES, _MOST_IDS, _MOST_TEXT = 256, 1000, 20_000

_READING_BYTES = 8 * len(MOMENT_COLUMNS) + 64


# The last steps at full rate: what a recording that is sparse lacks when something goes wrong.
class BlackBox:
    """Keeps the readings of at most ``steps`` last steps in at most ``limit`` bytes.

    ``recorded`` takes a step and returns the statistics of it that are sent anyway.
    """

    def __init__(self, steps: int, limit: int) -> None:
        self.limit, self.nbytes = limit, 0
        self.most = steps
        self.recorded: Callable[[int], Collection[str]] = lambda step: ()
        self._steps: deque[StepReadings] = deque()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: StepReadings) -> None:
        self._steps.append(step)
        self.nbytes += _size(step)
        while self._steps and (len(self._steps) > self.most or self.nbytes > self.limit):
            self.nbytes -= _size(self._steps.popleft())

    def open(self, rank: int) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the unsent rows of ``moments`` step by step, and forget them; ``rank`` sends them."""
        while self._steps:
            step = self._steps.popleft()
            self.nbytes -= _size(step)
            known = self.recorded(step.step)
            left = [
                each
                for each in step.readings
                if each.counted and each.stat in MOMENT_STATS and each.stat not in known
            ]
            if left:
                yield step.step, _columns(step, left, rank)


def _size(step: StepReadings) -> int:
    return sum(_READING_BYTES * len(each.names) for each in step.readings)


def _columns(step: StepReadings, readings: list[Readings], rank: int) -> dict[str, Any]:
    """Return the columns of the stream, parts of one tensor merged over the processes."""
    indices: dict[tuple[str, int, str], int] = {}
    of: list[int] = []
    first: list[tuple[Readings, int, str]] = []
    for each in readings:
        for number, name in enumerate(each.names):
            of.append(indices.setdefault((each.stat, each.micro_batch, name), len(indices)))
            if len(first) < len(indices):
                first.append((each, number, name))
    rows = np.concatenate([each.rows for each in readings])
    given = {name: rows[:, at] for at, name in enumerate(MOMENT_COLUMNS)}
    n = len(indices)
    merged = merge_moments(given, np.array(of, np.int64), n)
    everything: dict[str, Any] = {
        **{name: merged[name] for name in MOMENT_COLUMNS},
        "step": np.full(n, step.step, np.int64),
        "samples": np.full(n, step.samples, np.int64),
        "stat": [each.stat for each, _, _ in first],
        "name": [name for _, _, name in first],
        "rank": np.full(n, rank, np.int32),
        "stage": np.array([each.stage for each, _, _ in first], np.int32),
        "micro_batch": np.array([each.micro_batch for each, _, _ in first], np.int32),
        "rounding": np.zeros(n),
        "gradient_stage": [each.gradient_stage for each, _, _ in first],
        "loss_scale": np.array([each.loss_scale for each, _, _ in first], np.float64),
        "shape": [each.shapes[number] if each.shapes else "" for each, number, _ in first],
        "dtype": [each.dtypes[number] if each.dtypes else "" for each, number, _ in first],
    }
    return {name: everything[name] for name in stream_schema("moments").names}


class MonitorInstrument(Instrument):
    """Judges steps in the producer thread of rank 0, sends the alarms and, with them, the steps before.

    ``black_box`` is the number of steps stored at full rate, in at most ``box_bytes``. ``judged`` and
    ``alarms`` count; ``stopped`` is why the training is to end, and empty while it continues.
    """

    name = "monitor"
    title = "Rules"

    def __init__(self, actions: Sequence[Action], black_box: int, box_bytes: int) -> None:
        self._actions = actions
        self._tracer: Tracer
        self._watch: Watch
        self._numbers: OptimizerNumbers
        self._host: Host | None = None
        self._statistics: StatisticsLogger
        self._memory: MemoryReader | None = None
        # Since the last step of which memory was judged.
        self._peak = 0
        self._box = BlackBox(black_box, box_bytes)
        # Filled in the producer thread, emptied between two steps in the training thread.
        self._waiting: deque[tuple[Action, list[Any], int]] = deque(maxlen=_MOST_WAITING)
        self._samples: dict[int, str] = {}
        self._untaken: deque[StepReadings] = deque()
        # Settings by the step from which on they judge: the producer thread is behind.
        self._to_follow: deque[tuple[int, Mapping[str, Any]]] = deque()
        self._settings: Mapping[str, Any] | None = None
        self._acted: dict[int, int] = {}
        self._raised_until = 0
        self.judged = self.alarms = 0
        self._may_stop = any(action.stop for action in actions)
        self.stopped = ""

    def begin(
        self,
        statistics: StatisticsLogger,
        watch: Watch,
        numbers: OptimizerNumbers,
    ) -> None:
        """Set what it judges with, before it is attached, which must be after ``statistics``."""
        self._tracer, self._statistics = statistics.tracer, statistics
        self._watch, self._numbers = watch, numbers
        self._box.recorded = statistics.recorded.due

    # The producer thread.

    def take(self, step: StepReadings) -> None:
        """Queue a step, to be judged once the numbers of the training loop are there too."""
        self._untaken.append(step)
        self.send_ready()

    @property
    def waiting(self) -> bool:
        return bool(self._untaken)

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""
        return False

    def send_ready(self, *, everything: bool = False) -> None:
        """Judge the steps that have ended."""
        host = self._host
        while self._untaken and host is not None:
            step = self._untaken[0]
            numbers = host.numbers(step.step)
            if numbers is None and not everything:
                return
            self._untaken.popleft()
            ids = self._samples.pop(step.step, step.sample_ids)
            scalars = {**(numbers or {}), **self._numbers.of(step.step)}
            self._take(replace(step, scalars=scalars, sample_ids=ids), host)

    def _take(self, step: StepReadings, host: Host) -> None:
        while self._to_follow and self._to_follow[0][0] <= step.step:
            self._watch.configure(self._to_follow.popleft()[1])
        self._box.add(step)
        alarms = self._watch.judge(step)
        self.judged += 1
        if alarms:
            self.alarms += len(alarms)
            host.send(STREAM, alarm_columns(alarms), step.step)
            self._set_off(alarms, step.step)
        if step.step <= self._raised_until or any(
            alarm.severity != "note" or alarm.follows for alarm in alarms
        ):
            for at, rows in self._box.open(host.place.rank):
                host.send("moments", rows, at)

    def _set_off(self, alarms: Sequence[Any], step: int) -> None:
        for number, action in enumerate(self._actions):
            found = action.of(alarms)
            last = self._acted.get(number)
            if not found or (last is not None and step - last < action.every):
                continue
            self._acted[number] = step
            self._raised_until = max(self._raised_until, step + action.raise_tracing)
            if action.webhook is not None:
                post(action.webhook, self._tracer.run_id, found, self._tracer.warn)
            if action.pause or action.stop or action.checkpoint is not None or action.call is not None:
                self._waiting.append((action, found, step))

    # The training thread.

    def attach(self, host: Host) -> None:
        self._host = host
        host.gather(self)
        self._memory = memory_reader(host.roots)

    def samples_are(self, step: int, ids: Any) -> None:
        """Store the samples of a step for its alarms."""
        if isinstance(ids, Tensor):
            if ids.is_cuda:
                raise TracerError(
                    "The ids of samples must be on the CPU: reading them here would wait for the device."
                )
            ids = ids.flatten()[:_MOST_IDS].tolist()
        text = json.dumps(list(islice(ids, _MOST_IDS)), allow_nan=False)
        while len(self._samples) >= _MOST_SAMPLES:
            del self._samples[next(iter(self._samples))]
        self._samples[step] = text[:_MOST_TEXT]

    def step_ends(self) -> None:
        if self._host is not None:
            self._numbers.step_ends(self._host.step)

    def release(self, closing: bool) -> None:
        self._numbers.close()

    def step_begins(self, step: int, untraced: bool) -> None:
        """Run, between two steps, the actions that alarms have set off, and read the memory in use."""
        self._read_memory()
        while self._waiting:
            action, alarms, at = self._waiting.popleft()
            for what in ("checkpoint", "call", "pause", "stop"):
                try:
                    self._act(action, what, alarms, at)
                except Exception as error:  # The training goes on without it.
                    self._tracer.warn(
                        f"The action {what} after an alarm of step {at} failed: {describe_error(error)}"
                    )

    def _read_memory(self) -> None:
        reader = self._memory
        if reader is None:
            return
        now = reader.read()
        self._peak = max(self._peak, now.peak)
        numbers = {MEMORY_NOW: now.allocated, MEMORY_PEAK: self._peak}
        if reader.limit:
            numbers[MEMORY_LIMIT + reader.limit_of] = reader.limit
        if self._statistics.keep_numbers(MEMORY, numbers):
            self._peak = 0

    def _act(self, action: Action, what: str, alarms: list[Any], step: int) -> None:
        if what == "checkpoint" and action.checkpoint is not None:
            path = action.checkpoint(step)
            self._tracer.checkpoint(path if isinstance(path, str) else None)
        elif what == "call" and action.call is not None:
            action.call(alarms)
        elif what == "pause" and action.pause:
            self._tracer.configure({"flags": {}, "mode": {"paused": True}})
        elif what == "stop" and action.stop and not self.stopped:
            # By a change of settings, which all ranks get at one step: if one rank ended alone, the others
            # would hang.
            first = alarms[0]
            why = f"Step {first.step}, {first.direction}, {first.name}: {first.sentence}"[:_MOST_REASON]
            self._tracer.configure({"flags": {}, "instruments": {self.name: {"stop": why}}})

    # Settings.

    def settings(self) -> Mapping[str, Any]:
        return {**self._watch.to_message(), **self._stop("")} if self._settings is None else self._settings

    def schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema of rules, parameters, mutes and, if allowed, the reason to stop."""
        schema = self._watch.schema()
        stop = {
            "type": "string",
            "maxLength": _MOST_REASON,
            "readOnly": True,
            "title": "Why the training ends",
        }
        return {**schema, "properties": {**schema["properties"], **self._stop(stop)}}

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        rules = {name: value for name, value in settings.items() if name != "stop" or not self._may_stop}
        why = settings.get("stop", "")
        if self._may_stop and not (isinstance(why, str) and len(why) <= _MOST_REASON):
            raise must_be("stop", f"a text of at most {_MOST_REASON} characters", why, "stop")
        return {**self._watch.check(rules), **self._stop(why)}

    def apply(self, step: int, settings: Mapping[str, Any]) -> None:
        """Judge ``step`` and those after it by other settings."""
        self._settings = settings
        self.stopped = self.stopped or settings.get("stop", "")
        if self._host is not None and self._host.place.rank == 0:
            self._to_follow.append((step, settings))

    def _stop(self, value: Any) -> dict[str, Any]:
        return {"stop": value} if self._may_stop else {}

    def report(self, status: Status) -> None:
        """Report how much was judged, and the size of the black box."""
        numbers = {
            "judged": self.judged,
            "alarms": self.alarms,
            "black_box": {"steps": len(self._box), "bytes": self._box.nbytes, "limit_bytes": self._box.limit},
        }
        status.setdefault("instruments", {})[self.name] = numbers
