"""Where the time of a traced step goes: processor time by thread and process, wake-ups, and the calls of the parts of the code."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path
from typing import Any
from unittest import mock

from megalens.tracer.moments.native.library import NativeKernel
from megalens.tracer.sending.hub_connection import HubConnection
from megalens.tracer.sending.hub_link import HubLink
from megalens.tracer.sending.producer import Producer
from megalens.tracer.tensors.sender import LeaderSender

from .common import Row, processor_seconds
from .tracer_ways import Standing

__all__ = ["Costs"]

_PRODUCER = "megalens-producer"
_PLACES = {
    "tracer": "within the tracer, training thread (elapsed)",
    "training": "more in the training's own threads: hooks, caches, waiting in a parallel region",
    "producer": "producer thread",
    "connection": "threads of the connection",
    "hub": "hub: receive, check, pass on",
    "recorder": "hub: recorder",
    "viewer": "viewer",
}
_WAKE_UPS = "wake-ups of the producer thread and the hub"
_PARTS: dict[str, tuple[type, str]] = {
    "tiles and moments": (NativeKernel, "read"),
    "moments": (NativeKernel, "measure"),
    "· rows and their frame": (LeaderSender, "send_ready"),
    "· · frame and sending": (HubConnection, "send_made"),
    "· · · sending": (HubLink, "send"),
    "· numbers of the loop": (Producer, "_send_scalars"),
    "· what steps cost": (Producer, "_count"),
}
_Reading = dict[str, float]


class Costs:
    """Adds up, by way and place, what steps cost."""

    def __init__(self) -> None:
        self._spent: dict[str, _Reading] = defaultdict(lambda: defaultdict(float))
        self._steps: dict[str, int] = defaultdict(int)
        self._parts: dict[str, dict[tuple[str, str], float]] = {}

    def read(self, standing: Standing) -> _Reading:
        """Return seconds of a processor so far, by place, and wake-ups."""
        names = {str(each.native_id): each.name for each in threading.enumerate()}
        found: _Reading = defaultdict(float)
        for task in glob("/proc/self/task/*"):
            name = names.get(Path(task).name, "")
            place = "training"
            if Path(task).name == str(standing.producer):
                place = "producer"
                found["wake-ups"] += _switches(task)
            elif name == _PRODUCER:
                continue
            elif name.startswith("megalens") or "recv_events" in name:
                place = "connection"
            found[place] += processor_seconds(task)
        for task in glob(f"/proc/{standing.hub}/task/*"):
            main = Path(task).name == str(standing.hub)
            found["hub" if main else "recorder"] += processor_seconds(task)
            found["wake-ups"] += _switches(task)
        if standing.viewer:
            found["viewer"] = sum(processor_seconds(task) for task in glob(f"/proc/{standing.viewer}/task/*"))
        found["tracer"] = standing.spent_ns * 1e-9
        return found

    def add(self, way: str, before: _Reading, after: _Reading, steps: int) -> None:
        """Add what a block took."""
        for place in {*before, *after}:
            self._spent[way][place] += after[place] - before[place]
        self._steps[way] += steps

    @contextmanager
    def parts(self, way: str, steps: int) -> Iterator[None]:
        """Measure the calls of parts of the code, inside."""
        spent: dict[tuple[str, str], float] = defaultdict(float)
        with ExitStack() as stack:
            for part, (owner, name) in _PARTS.items():
                stack.enter_context(mock.patch.object(owner, name, _timed(getattr(owner, name), part, spent)))
            yield
        self._parts[way] = {key: seconds / steps for key, seconds in spent.items()}

    def rows(self, way: str) -> list[Row]:
        """Return the lines of a way."""
        if way not in ("armed", "recorded", "viewed", "statistics"):
            return []
        spent, steps = self._spent[way], self._steps[way]
        base = sum(self._spent[name]["training"] for name in ("without", "again")) / sum(
            self._steps[name] for name in ("without", "again")
        )
        rows = []
        parts = self._parts.get(way, {})
        for place, title in _PLACES.items():
            seconds = spent[place] / steps - (base if place == "training" else 0.0)
            if spent[place]:
                rows.append(Row(f"· {title}", 1e6 * seconds, "µs"))
            for (thread, part), each in parts.items():
                if thread == {"tracer": "training", "producer": "producer"}.get(place):
                    rows.append(Row(f"· · {part}", 1e6 * each, "µs"))
        rows.append(Row(f"· {_WAKE_UPS}", spent["wake-ups"] / steps, "a step"))
        return rows


def _timed(call: Callable[..., Any], part: str, spent: dict[tuple[str, str], float]) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*args, **options)
        finally:
            place = "producer" if threading.current_thread().name == _PRODUCER else "training"
            spent[place, part] += time.thread_time() - began

    return timed


def _switches(task: str) -> int:
    lines = Path(task, "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))
