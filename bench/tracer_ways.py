"""The ways to train that ``bench.tracer`` compares, each ready for the whole run and at rest while another is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from glob import glob
from pathlib import Path
from typing import Any

import megalens
from megalens import Tile
from megalens.demo import Trainer
from megalens.demo.train import Untraced

from .common import processor_seconds
from .peer import PeerTracer

__all__ = ["Standing", "Ways"]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
VIEWER = """
import sys
from megalens.runs import connect
run = connect(sys.argv[1])
print("attached", flush=True)
for line in sys.stdin:
    print(run.received_frames, flush=True)
run.close()
"""


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
        tasks += [task for pid in (self.hub, self.viewer) if pid for task in glob(f"/proc/{pid}/task/*")]
        return sum(map(processor_seconds, tasks))


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
        self._viewer: subprocess.Popen[str] | None = None
        if watched:
            self._viewer = stack.enter_context(_viewer(self._tracer.run_id))
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
        if self._viewer is None:
            return 0
        assert self._viewer.stdin is not None
        assert self._viewer.stdout is not None
        self._viewer.stdin.write("\n")
        self._viewer.stdin.flush()
        return int(self._viewer.stdout.readline())

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._pids:
            os.kill(pid, number)


@contextmanager
def _viewer(run_id: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", VIEWER, run_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "attached":
            raise RuntimeError("The viewer could not attach.")
        yield process
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
