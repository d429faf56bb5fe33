"""The clock of spans: of the host, or of a device, whose times are converted to the host's clock.

A device works on what the host has queued long before. Where a model is on one, every reading of the clock
also queues an event, which the device passes when it comes there. The step waits for none; the producer
thread reads them later::

    training thread    now() ──▶ 17 ns, event ──────────────── now() ──▶ 90 ns, event
    device             … earlier work … │▷ 410 ns  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ │▷ 980 ns
    producer thread                                                              placed: 17 → 410, 90 → 980

Until then the host's time stands for the reading, so that who notes a span needs to know nothing of devices.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import torch
from torch import nn

from ...protocol import is_whole, must_be, no_such
from ...tracer.errors import TracerError, describe_error
from ...tracer.memory import MemoryReader, MemorySizes, memory_reader

_MOST_SPARE = 4096
_MOST_MARKS = 40_000
"""Both ends of the most spans of a step."""

GRANULARITIES = ("off", "steps", "phases", "layers", "operations")

_FIELD = "instruments.timeline"


def _setting(default: Any, expected: str, fits: Callable[[Any], bool], **schema: Any) -> Any:
    return field(default=default, metadata={"expected": expected, "fits": fits, "schema": schema})


@dataclass(frozen=True)
class TimelineSettings:
    """Settings of the instrument ``timeline``.

    Attributes
    ----------
    granularity : str
        ``off``; ``steps``: one sum for each kind of span; ``phases``: forward and backward passes, optimizer,
        data, collectives and messages; ``layers``: also each layer in its passes; ``operations``: also each
        module without children.
    every : int
        Every how many steps.
    around : int
        With ``steps``: once a rank is found slow, so many steps are timed by ``phases``.
    memory : bool
        Read at both ends of each span, too, how much memory there is in use.
    """

    granularity: str = _setting(
        "off",
        f"one of {', '.join(GRANULARITIES)}",
        lambda value: value in GRANULARITIES,
        type="string",
        enum=list(GRANULARITIES),
        title="Granularity",
        description="off; steps: one sum for each kind; phases, with collectives and messages; layers; "
        "operations: every module.",
    )
    every: int = _setting(
        1,
        "a whole number of steps from 1",
        lambda value: is_whole(value, 1),
        type="integer",
        minimum=1,
        title="Every how many steps",
    )
    around: int = _setting(
        10,
        "a whole number of steps from 0",
        is_whole,
        type="integer",
        minimum=0,
        title="Steps after a slow rank",
        description="Of granularity steps: so many steps are timed by phases once a rank is found slow.",
    )
    memory: bool = _setting(
        False,
        "true or false",
        lambda value: isinstance(value, bool),
        type="boolean",
        title="Memory",
        description="Also how much memory is in use at both ends of each span.",
    )

    @classmethod
    def given(cls, asked: Any) -> TimelineSettings:
        """Return what a script asked for: a granularity, True for ``phases``, a mapping (of ``phases`` where
        it says nothing else), or nothing for ``off``.

        Raises ``TracerError`` when it is none of these.
        """
        if asked is None or isinstance(asked, bool):
            return cls("phases" if asked else "off")
        settings = {"granularity": asked} if isinstance(asked, str) else asked
        if isinstance(settings, Mapping):
            settings = {"granularity": "phases", **settings}
        if not isinstance(settings, Mapping) or settings.keys() - asdict(cls()).keys():
            raise TracerError(
                f"timeline=… must be one of {', '.join(GRANULARITIES)}, or a mapping with granularity, "
                f"every, around and memory, got {asked!r:.100}."
            )
        return cls.of(settings)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> TimelineSettings:
        """Return complete settings; raises ``ProtocolError`` with the field at fault."""
        known = asdict(cls())
        for name in settings:
            if name not in known:
                raise no_such("setting", name, known, f"{_FIELD}.{name}", "bad-parameter")
        for each in fields(cls):
            if each.name in settings and not each.metadata["fits"](settings[each.name]):
                expected = each.metadata["expected"]
                raise must_be(each.name, expected, settings[each.name], f"{_FIELD}.{each.name}")
        return cls(**settings)

    def to_message(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def schema(cls) -> dict[str, Any]:
        properties = {each.name: {**each.metadata["schema"], "default": each.default} for each in fields(cls)}
        return {"type": "object", "additionalProperties": False, "properties": properties}


_TRIES = 3
_CLOCK_BITS = 48
"""Of a machine's number: among 10,000 machines two collide in fewer than one job of a million."""
_ANCHORED_NS = 1_000_000_000
"""Longest distance of an event from its reference, plus a step: float32 milliseconds then resolve 0.1 µs."""


def clock_number() -> int:
    """Return a number shared by all processes that read the same :func:`time.perf_counter_ns`, or 0 if
    unknown.

    On Linux that clock counts since the machine booted, and can be shifted for all processes of a time
    namespace.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()
        # Kernels without time namespaces have no such file.
        space = Path("/proc/self/ns/time")
        space_id = os.stat(space).st_ino if space.exists() else 0
    except OSError:
        return 0
    digest = hashlib.sha256(f"{boot.strip()} {space_id}".encode()).digest()
    return int.from_bytes(digest, "big") % (1 << _CLOCK_BITS) or 1


class IEvent(Protocol):
    """The part of :class:`torch.cuda.Event` that is used."""

    def record(self, stream: Any = None) -> None: ...

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, end: Any) -> float:
        """Return the milliseconds from this to another event."""


Marks: TypeAlias = dict[int, IEvent]
"""Events by the time that stands for each."""


class DeviceEvents:
    """Makes and queues events of one CUDA device."""

    def __init__(self, device: torch.device) -> None:
        self.name = str(device)
        self._device = device
        self._aside: Any = None

    def event(self) -> IEvent:
        """Return a new event with timing."""
        return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]

    def queue(self, event: IEvent) -> bool:
        """Queue an event behind the calling thread's work; False during the capture of a CUDA graph."""
        if torch.cuda.is_current_stream_capturing():
            return False
        event.record(torch.cuda.current_stream(self._device))
        return True

    def pass_now(self, event: IEvent) -> None:
        """Queue an event on an idle stream of its own, and wait for it."""
        if self._aside is None:
            self._aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        event.record(self._aside)
        event.synchronize()


class StepClock:
    """Reads the time in the training thread, and in those of the backward pass.

    ``now`` returns the host's time in ns, which stands for when the device of ``events``, if any, comes here,
    and for how much ``memory`` there was in use then; while nothing is ``on``, no event is queued and no
    memory is read. ``failed`` takes what went wrong with a device, ``lost_memory`` why memory is not read,
    and neither must raise; from then on times are of the host, or there is no memory.
    """

    def __init__(
        self, failed: Callable[[Exception], None], lost_memory: Callable[[str], None] = lambda _: None
    ) -> None:
        self._failed, self._lost_memory = failed, lost_memory
        self.events: DeviceEvents | None = None
        self.memory: MemoryReader | None = None
        self.on = False
        self._spare: deque[IEvent] = deque(maxlen=_MOST_SPARE)
        self._marks: Marks = {}
        self._readings: dict[int, MemorySizes] = {}
        self.now: Callable[[], int] = time.perf_counter_ns

    def follow(self, roots: Iterable[nn.Module]) -> None:
        """Read the clock of the model's CUDA device, or the host's."""
        devices = {each.device for root in roots for each in root.parameters() if each.is_cuda}
        # With several devices no single one shows what the process waits for.
        device = devices.pop() if len(devices) == 1 else None
        if device is None:
            self.read(None)
        elif self.events is None or self.events.name != str(device):
            self.read(DeviceEvents(device))

    def watch_memory(self, roots: Iterable[nn.Module], wanted: bool) -> None:
        """Read the memory of the model's training from now on, or none."""
        try:
            self.memory = memory_reader(roots) if wanted else None
            if wanted and self.memory is None:
                self._lost_memory("of a model on a CPU it is read on Linux only.")
            self._choose()
        except Exception as error:
            self._without_memory(error)

    def read(self, events: DeviceEvents | None) -> None:
        """Read the clock of a device from now on, or the host's."""
        self.events = events
        self._choose()
        self._marks = {}
        self._spare.clear()

    def _choose(self) -> None:
        alone = self.events is None and self.memory is None
        self.now = time.perf_counter_ns if alone else self._read_all

    def _read_all(self) -> int:
        now = time.perf_counter_ns()
        if self.on and len(self._marks) < _MOST_MARKS and len(self._readings) < _MOST_MARKS:
            while now in self._marks or now in self._readings:
                now += 1
            if self.events is not None:
                try:
                    self._mark(now, self.events)
                except Exception as error:  # The training goes on.
                    self.give_up(error)
            if self.memory is not None:
                try:
                    self._readings[now] = self.memory.read()
                except Exception as error:
                    self._without_memory(error)
        return now

    def _without_memory(self, error: Exception) -> None:
        self.memory = None
        self._choose()
        self._lost_memory(describe_error(error))

    def _mark(self, now: int, events: DeviceEvents) -> None:
        try:
            event = self._spare.pop()
        except IndexError:
            event = events.event()
        if events.queue(event):
            self._marks[now] = event
        else:
            self._spare.append(event)

    def give_up(self, error: Exception) -> None:
        """Read the host's clock from now on. Any thread."""
        events = self.events
        self.read(None)
        if events is not None:
            self._failed(error)

    def take(self) -> tuple[Marks, dict[int, MemorySizes]]:
        """Return the events and the readings of memory since the last call, by the time that stands for
        them.
        """
        marks, self._marks = self._marks, {}
        readings, self._readings = self._readings, {}
        return marks, readings

    def forget(self) -> None:
        """Reuse the events that nobody has taken."""
        self.give(self.take()[0])

    def passed(self, marks: Marks) -> bool:
        """Return whether the device has passed all of them."""
        try:
            return all(event.query() for event in reversed(marks.values()))
        except Exception as error:
            self.give_up(error)
            return True

    def give(self, marks: Marks) -> None:
        """Take events back for reuse. Any thread."""
        self._spare.extend(marks.values())


class DeviceTimes:
    """Converts the times of a device to the host's clock, in the producer thread."""

    def __init__(self, events: DeviceEvents) -> None:
        self.events = events
        self._set_anchor()

    def read(self, marks: Marks) -> dict[int, int]:
        """Return when the device passed each event, host ns, by the time that stands for it. Waits for it."""
        for event in marks.values():
            event.synchronize()
        anchor, at = self._anchor, self._anchor_at
        passed = {mark: at + round(1e6 * anchor.elapsed_time(event)) for mark, event in marks.items()}
        if time.perf_counter_ns() - at > _ANCHORED_NS:
            self._set_anchor()
        return passed

    def _set_anchor(self) -> None:
        # An event on its own stream is passed between two readings of the host's clock; the closest pair is
        # the best.
        narrowest = 1 << 62
        for _ in range(_TRIES):
            event = self.events.event()
            before = time.perf_counter_ns()
            self.events.pass_now(event)
            after = time.perf_counter_ns()
            if after - before < narrowest:
                narrowest = after - before
                self._anchor, self._anchor_at = event, (before + after) // 2
