"""The ways to train that ``bench.tracer`` compares, each ready for the whole run and at rest while another is measured.

Where the time of a traced step goes: processor time by thread and process, wake-ups, and the calls of the parts of the code.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

import megalens
from megalens import Tile
from megalens.demo import Trainer
from megalens.demo.train import Untraced
from megalens.tracer.moments.native.library import NativeKernel
from megalens.tracer.sending.hub_connection import HubConnection
from megalens.tracer.sending.hub_link import HubLink
from megalens.tracer.sending.producer import Producer
from megalens.tracer.tensors.sender import LeaderSender

from .children import Child, call
from .common import Ratio, processor_seconds
from .peer import PeerTracer
from .recordings import FLAGS
from .report import Row

__all__ = ["Costs", "Standing", "Ways"]


class Ways:
    """The trainer's tracer, chosen for a block at a time.

    Parameters
    ----------
    trainer : Trainer
        Its tracer is set.
    stack : ExitStack
        Ends what was started.
    folder : Path
        Where it is recorded.
    """

    def __init__(self, trainer: Trainer, stack: ExitStack, folder: Path) -> None:
        self._trainer = trainer
        self._standing = {
            "armed": _Traced(trainer, stack, folder / "armed"),
            "recorded": _Traced(trainer, stack, folder / "recorded", FLAGS),
            "viewed": _Traced(trainer, stack, folder / "viewed", FLAGS, watched=True),
            "statistics": _Traced(trainer, stack, folder / "statistics", logs=True),
        }

    @contextmanager
    def way(self, name: str) -> Iterator[Standing]:
        """Train in one way inside of the ``with`` block."""
        trainer = self._trainer
        standing = self._standing.get(name)
        try:
            if standing is not None:
                with standing.awake():
                    yield standing
            elif name == "read":
                hooks = _Reads(trainer.model)
                trainer.tracer = hooks
                try:
                    yield Standing()
                finally:
                    hooks.close()
            elif name == "peer":
                trainer.tracer = peer = PeerTracer(trainer.model, samples=1)
                try:
                    yield Standing()
                finally:
                    peer.close()
            else:
                yield Standing()
        finally:
            trainer.tracer = Untraced()

    def notes(self) -> dict[str, list[str]]:
        """Return what else was seen, by way."""
        viewed = self._standing["viewed"]
        return {
            "viewed": [
                f"the viewer received {viewed.received():.2f} frames a step, {viewed.bytes_per_step() / 1e3:.0f} kB a step"
            ]
        }


class _Reads(Untraced):
    """Plain hooks that read what is traced, once: any way that looks at all values takes as long."""

    def __init__(self, model: nn.Module) -> None:
        blocks = model.get_submodule("blocks").children()
        self._active = False
        self._hooks = [
            block.get_submodule(name).register_forward_hook(self._read)
            for block in blocks
            for name in ("attention.qkv", "mlp.fc1", "mlp.fc2")
        ]

    @contextmanager
    def step(self) -> Iterator[None]:
        self._active = True
        try:
            yield
        finally:
            self._active = False

    def _read(self, module: nn.Module, given: Any, output: Tensor) -> None:
        if self._active and module.training:
            with torch.no_grad():
                output.sum()

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()


class Standing:
    """What stands beside a training; nothing, as it is."""

    producer = hub = viewer = 0
    """The producer thread and the processes."""
    spent_ns = 0
    """Time of the training thread inside of the tracer."""

    def flush(self) -> None:
        """Have sent what waits."""

    def seconds(self) -> float:
        """Return what producer, hub and viewer have had of a processor."""
        tasks = [f"/proc/self/task/{self.producer}"] if self.producer else []
        tasks += [f"/proc/{pid}/task/*" for pid in (self.hub, self.viewer) if pid]
        return processor_seconds(*tasks)


class _Traced(Standing):
    """A tracer with its hub, and with a viewer where it is watched; the processes are stopped unless it is awake."""

    def __init__(
        self,
        trainer: Trainer,
        stack: ExitStack,
        folder: Path,
        flags: tuple[str, ...] = (),
        *,
        watched: bool = False,
        logs: bool = False,
    ) -> None:
        self._trainer, self._flags, self._logs = trainer, flags, logs
        self._steps = 0
        before = set(threading.enumerate())
        self._tracer = stack.enter_context(
            megalens.trace(trainer.model, name="bench", record=folder, linger=0)
        )
        if not self._tracer.connected(30) or self._tracer.run_id is None:
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
        (thread,) = (each for each in {*threading.enumerate()} - before if each.name == "megalens-producer")
        self.producer, self.hub = thread.native_id or 0, self._tracer.hub_pid or 0
        self._pids = [self.hub]
        self._viewer: Child | None = None
        if watched:
            self._viewer = stack.enter_context(Child(call("children:viewer", run=self._tracer.run_id)))
            self._viewer.read()
            self.viewer = self._viewer.pid
            self._pids.append(self.viewer)
        # Its producer thread is told who looks.
        time.sleep(2.5)
        self._worker: Any = self._tracer._coordinator.worker
        step_ended = self._worker.step_ended

        def noted(cost: Any) -> None:
            self.spent_ns += cost.spent_ns
            self._steps += cost.wall_ns > 0
            step_ended(cost)

        self._worker.step_ended = noted
        # A stopped process would not see that its run has ended.
        stack.callback(self._signal, signal.SIGCONT)
        self._before = self._count()
        self._signal(signal.SIGSTOP)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Trace inside of the ``with`` block."""
        self._signal(signal.SIGCONT)
        trainer = self._trainer
        with ExitStack() as stack:
            if self._flags:
                self._tracer.configure({flag: Tile(96) for flag in self._flags})
            if self._logs:
                stack.enter_context(
                    megalens.log_statistics(
                        trainer.model, trainer.optimizer, tracer=self._tracer, param=1, grad=1
                    )
                )
            trainer.tracer = self._tracer
            yield
        if self._flags:
            self._tracer.configure(dict.fromkeys(self._flags))
        with self._tracer.step():
            pass  # The hooks go now.
        self.flush()
        # What is on its way arrives before the next block.
        time.sleep(0.1)
        self._signal(signal.SIGSTOP)

    def flush(self) -> None:
        """Have sent what waits."""
        self._worker.wake()

    def received(self) -> float:
        """Return the frames that the viewer received for each step."""
        self._signal(signal.SIGCONT)
        return (self._count() - self._before) / max(1, self._steps)

    def bytes_per_step(self) -> float:
        """Return the bytes that a step sends."""
        return float(self._tracer.status().get("bytes_per_step", 0))

    def _count(self) -> int:
        return 0 if self._viewer is None else int(self._viewer.ask("count"))

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            os.kill(pid, number)


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
            found["viewer"] = processor_seconds(f"/proc/{standing.viewer}/task/*")
        found["tracer"] = standing.spent_ns * 1e-9
        return found

    def add(self, way: str, before: _Reading, after: _Reading, steps: int) -> None:
        """Add what a block took."""
        for place in {*before, *after}:
            self._spent[way][place] += after[place] - before[place]
        self._steps[way] += steps

    def told(self, way: str, step: float, over: Ratio) -> Row:
        """Return what ``status.overhead`` comes to: time in the training thread, and all of a processor that producer and hub took."""
        spent = sum(self._spent[way][place] for place in ("tracer", "producer", "hub", "recorder"))
        percent = 100 * spent / self._steps[way] / step
        low, high = (100 * (each - 1) for each in (over.low, over.high))
        return Row(
            "· what status.overhead says, beside that interval",
            percent,
            "% of a step",
            target=f"{low:.2f} to {high:.2f}",
            met=low <= percent <= high,
        )

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
