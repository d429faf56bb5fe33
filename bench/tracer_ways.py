"""The ways to train that ``bench.tracer`` compares, each ready for the whole run and at rest while another is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import megalens
from megalens import Tile
from megalens.demo import Trainer
from megalens.demo.train import Untraced

from .common import percentile
from .peer import PeerTracer

__all__ = ["Ways"]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
VIEWER = """
import sys
from megalens.client import connect
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
    traced : bool
        Whether the way with flags and a viewer is wanted.
    """

    def __init__(self, trainer: Trainer, stack: ExitStack, *, traced: bool) -> None:
        self._trainer = trainer
        self._backlog: dict[str, list[float]] = {}
        self._off = stack.enter_context(megalens.trace(trainer.model, hub=None))
        self._idle = _Standing(trainer, stack)
        self._traced = _Standing(trainer, stack, FLAGS) if traced else None

    @contextmanager
    def way(self, name: str) -> Iterator[None]:
        """Train in one way inside of the ``with`` block."""
        trainer = self._trainer
        if name == "without":
            yield
        elif name == "off":
            trainer.tracer = self._off
            yield
        elif name in ("idle", "traced"):
            standing = self._idle if name == "idle" else self._traced
            assert standing is not None
            with standing.awake():
                yield
        else:
            peer = PeerTracer(trainer.model, samples=1 if name.endswith("one sample") else None)
            trainer.tracer = peer
            try:
                yield
                self._backlog.setdefault(name, []).append(peer.backlog)
            finally:
                peer.close()
        trainer.tracer = Untraced()

    def notes(self) -> dict[str, str]:
        """Return what else was seen, by way."""
        notes = {
            name: f"{percentile(sizes, 50):.0f} tensors still unsent at the end of a block, 20 came with each step"
            for name, sizes in self._backlog.items()
        }
        if self._traced is not None:
            notes["traced"] = (
                f"the viewer received {self._traced.received():.2f} frames a step, {self._traced.bytes_per_step() / 1e3:.0f} kB a step"
            )
        return notes


class _Standing:
    """A tracer with its hub, and with a viewer where flags are given; the processes are stopped unless it is awake."""

    def __init__(self, trainer: Trainer, stack: ExitStack, flags: tuple[str, ...] = ()) -> None:
        self._trainer = trainer
        self._flags = flags
        self._steps = 0
        self._tracer = stack.enter_context(megalens.trace(trainer.model, name="bench", linger=0))
        if not self._tracer.connected(30) or self._tracer.run_id is None:
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
        hub = self._tracer.hub_pid
        assert hub is not None
        self._pids = [hub]
        self._viewer: subprocess.Popen[str] | None = None
        if flags:
            self._viewer = stack.enter_context(_viewer(self._tracer.run_id))
            self._pids.append(self._viewer.pid)
        # A stopped process would not see that its run has ended.
        stack.callback(self._signal, signal.SIGCONT)
        self._before = self._count()
        self._signal(signal.SIGSTOP)

    @contextmanager
    def awake(self) -> Iterator[None]:
        self._signal(signal.SIGCONT)
        self._tracer.configure({flag: Tile(96) for flag in self._flags})
        self._trainer.tracer = self._tracer
        began = self._trainer.progress.step
        yield
        self._steps += self._trainer.progress.step - began
        self._tracer.configure(dict.fromkeys(self._flags))
        with self._tracer.step():
            pass  # The hooks go now.
        # What is on its way arrives before the next block.
        time.sleep(0.05)
        self._signal(signal.SIGSTOP)

    def received(self) -> float:
        """Return the frames that the viewer received for each step."""
        self._signal(signal.SIGCONT)
        return (self._count() - self._before) / max(1, self._steps)

    def bytes_per_step(self) -> float:
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
