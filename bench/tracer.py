"""What the tracer costs a training step, and where each microsecond of it goes: steps that are traced or not by chance, with a core free and with none."""

from __future__ import annotations

import argparse
import json
import os
import queue
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.hooks import RemovableHandle
from websockets.sync.client import connect
from websockets.sync.server import Server, ServerConnection, serve

import megalens
from megalens import Tile
from megalens.demo import GPT, GPTConfig, TrainConfig, Trainer, load_corpus
from megalens.demo.train import Untraced
from megalens.tracer.moments.native.library import NativeKernel
from megalens.tracer.sending.hub_connection import HubConnection
from megalens.tracer.sending.hub_link import HubLink
from megalens.tracer.sending.producer import Producer
from megalens.tracer.tensors.sender import LeaderSender

from .common import (  # fmt: skip
    Measured,
    Row,
    Tossed,
    benchmark,
    cost,
    in_turns,
    processor_seconds,
    ratio,
    timed,
    tossed,
    trimmed_mean,
)
from .live import Child, call, traced
from .recordings import FLAGS

__all__ = ["TILES", "PeerTracer", "Sender", "tiled", "tracer", "update"]


class _Way(NamedTuple):
    title: str
    hub: bool = True
    """Whether it has a tracer with its hub, whose time is looked into."""
    flags: tuple[str, ...] = ()
    watched: bool = False
    logs: bool = False


_WAYS = {
    "again": _Way("nothing, measured again (A/A)", hub=False),
    "armed": _Way("armed: hub and producer run, nothing chosen"),
    "recorded": _Way("QKV, MLP1, MLP2 of all layers, Tile(96), recorded, nobody looks", flags=FLAGS),
    "viewed": _Way("the same, recorded, with one viewer", flags=FLAGS, watched=True),
    "read": _Way(
        "floor: the values of the same tensors added up by plain hooks, nothing kept or sent", hub=False
    ),
    "statistics": _Way("parameters and gradients every step, recorded, nobody looks", logs=True),
}
_PEER = "baseline: JSON text per tensor, the same sample"
_PEER_ROUNDS = 12
"""The baseline takes ten times as long and needs no small interval."""
_BLOCK = 8
_COUNTED = 40
"""Steps of which it is counted where the time goes, at most."""


class _Load(NamedTuple):
    """A training that is measured, on so many of torch's threads: per cent of a step that each way may cost, and its share of the steps of the first load."""

    title: str
    threads: int
    most: dict[str, float]
    config: GPTConfig = GPTConfig()
    batch: int = 16
    share: float = 1.0


def _loads(cores: int) -> list[_Load]:
    none = {"armed": 0.2, "recorded": 2.0, "viewed": 4.0, "statistics": 1.0}
    free = {"armed": 0.2, "recorded": 1.0, "viewed": 1.5, "statistics": 0.5}
    large = GPTConfig(layers=12, hidden=512, heads=8)
    return [
        _Load("no core free", cores, none),
        _Load("a core free", max(1, cores - 1), free, share=0.7),
        _Load("12 layers, hidden 512, one thread", 1, dict.fromkeys(none, 0.5), large, 4, share=0.15),
    ]


@benchmark(
    "What tracing costs a step",
    "9 steps",
    steps=(1500, 9, "steps of each way"),
    loads=(3, 1, "how many trainings, the smallest first"),
)
def tracer(options: argparse.Namespace) -> Measured:
    """What the tracer costs a training step, and where each microsecond of it goes."""
    rows: list[Row] = []
    for each in _loads(len(os.sched_getaffinity(0)))[: options.loads]:
        rows += _rows(each, max(9, round(options.steps * each.share)), options.folder)
    how = (
        f"One way after another; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) with no core free, fewer of the others. Whether a step is traced or runs without any tracer is decided by chance for each, and what tracing adds to it and to the step after it is "
        "estimated in stretches of 8 steps (bench/common.py), with a 95 % bootstrap interval over stretches. With no core free, the processor time of producer and hub is added in full where nobody looks, since they then work up to a second later: that is too much rather than too little. "
        f"The baseline has {_PEER_ROUNDS} blocks of {_BLOCK} steps, each beside one without. Rows with a dot say where the time of a way goes, in microseconds of a processor a step, in blocks in which every step is traced; "
        "of parts of the code, measured in steps of their own, what their calls take."
    )
    return Measured(rows, how, {"steps": options.steps})


def _rows(load: _Load, steps: int, folder: Path) -> list[Row]:
    print(f"{load.title}: {steps} steps a way", file=sys.stderr)
    torch.set_num_threads(load.threads)
    torch.manual_seed(0)
    config = TrainConfig(steps=10**9, batch=load.batch)
    trainer = Trainer(GPT(load.config), load_corpus(300_000), config=config)
    trainer.step()
    rows: list[Row] = []
    base = 0.0
    for name, way in _WAYS.items():
        with _standing(trainer, name, folder / f"{load.title}-{name}".replace(" ", "-")) as standing:
            found = tossed(partial(_at_some, trainer, trainer.tracer), standing.seconds, steps)
            spent = _counted(trainer, standing, min(_COUNTED, steps)) if way.hub else {}
        print(f"{name}: {100 * found.cost:.2f} %", file=sys.stderr)
        base = base or found.step
        if not rows:
            note = "the others are relative to this"
            rows.append(Row(f"**{load.title}**: a step", 1e3 * base, "ms", note=note))
        # Where nobody looks they work later, and take the time of steps that are not traced as well.
        aside = found.aside[0] if load.threads > 1 and way.hub and not way.watched else 0.0
        parts = f"elapsed {100 * found.cost:.2f} %, processor time of producer and hub {100 * aside:.2f} %"
        notes = [*([parts] if aside > 0 else []), *standing.notes]
        rows.append(cost(way.title, found.over(aside), load.most.get(name), *notes))
        rows += [
            Row(f"· {what}", each, "a step" if what == _WAKE_UPS else "µs")
            for what, each in spent.items()
            if each
        ]
        if name in ("recorded", "viewed", "statistics"):
            rows.append(_told(spent, base, found, aside))
    if load.threads > 1:
        rows.append(_baseline(trainer))
    return rows


def _at_some(trainer: Trainer, tracer: Any, pays: bool) -> None:
    """Take a step, which is traced where it pays."""
    trainer.tracer = tracer if pays else Untraced()
    trainer.step()
    trainer.tracer = tracer


def _baseline(trainer: Trainer) -> Row:
    def train(peer: bool) -> float:
        trainer.tracer = PeerTracer(trainer.model, samples=1) if peer else Untraced()
        try:
            trainer.step()
            return timed(trainer.step, _BLOCK)
        finally:
            if isinstance(trainer.tracer, PeerTracer):
                trainer.tracer.close()
            trainer.tracer = Untraced()

    took = in_turns({str(peer): partial(train, peer) for peer in (False, True)}, _PEER_ROUNDS)
    quotients = [one / other for one, other in zip(took["True"], took["False"], strict=True)]
    return cost(_PEER, ratio(quotients, middle=trimmed_mean), None)


class _Reads(Untraced):
    """Plain hooks that read what is traced, once: any way that looks at all values takes as long."""

    def __init__(self, model: nn.Module) -> None:
        self._active = False
        self._hooks = [
            block.get_submodule(name).register_forward_hook(self._read)
            for block in model.get_submodule("blocks").children()
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


class _Standing:
    """What stands beside a training: the worker of a tracer, its hub, and a viewer where it is watched; nothing at first."""

    def __init__(self) -> None:
        self.tracer: Any = None
        self.viewer: Child | None = None
        self.producer = self.hub = 0
        self.spent_ns = 0
        """Time of the training thread inside of the tracer."""
        self.notes: list[str] = []

    def stand(self, tracer: Any) -> None:
        (thread,) = (each for each in threading.enumerate() if each.name == _PRODUCER)
        self.tracer, self.producer, self.hub = tracer, thread.native_id or 0, tracer.hub_pid or 0
        worker = tracer._coordinator.worker
        step_ended, self.flush = worker.step_ended, worker.wake

        def noted(cost: Any) -> None:
            self.spent_ns += cost.spent_ns
            step_ended(cost)

        worker.step_ended = noted

    def flush(self) -> None:
        """Have sent what waits."""

    def seconds(self) -> list[float]:
        """Return what producer, hub and viewer have had of a processor."""
        pids = [self.hub, *([self.viewer.pid] if self.viewer else [])]
        tasks = [f"/proc/self/task/{self.producer}", *(f"/proc/{pid}/task/*" for pid in pids)]
        return [processor_seconds(*tasks) if self.hub else 0.0]


@contextmanager
def _standing(trainer: Trainer, name: str, folder: Path) -> Iterator[_Standing]:
    """Have a trainer traced in one way inside of the ``with`` block."""
    way, standing = _WAYS[name], _Standing()
    with ExitStack() as stack:
        stack.callback(setattr, trainer, "tracer", Untraced())
        if name == "read":
            trainer.tracer = hooks = _Reads(trainer.model)
            stack.callback(hooks.close)
        elif way.hub:
            tracer = stack.enter_context(traced(trainer.model, name="bench", record=folder, linger=0))
            standing.stand(tracer)
            if way.watched:
                standing.viewer = stack.enter_context(Child(call("live:viewer", run=tracer.run_id)))
                standing.viewer.read()
            # Its producer thread is told who looks.
            time.sleep(2.5)
            if way.flags:
                tracer.configure({flag: Tile(96) for flag in way.flags})
            if way.logs:
                logged = megalens.log_statistics(
                    trainer.model, trainer.optimizer, tracer=tracer, param=1, grad=1
                )
                stack.enter_context(logged)
            trainer.tracer = tracer
        yield standing


_PRODUCER = "megalens-producer"
_INSIDE, _SENDS, _TALKS = "within the tracer, training thread (elapsed)", "producer thread", "threads of the connection"  # fmt: skip
_HUB, _RECORDER, _VIEWER = "hub: receive, check, pass on", "hub: recorder", "viewer"
_WAKE_UPS = "wake-ups of the producer thread and the hub"
_PARTS: dict[str, dict[str, tuple[type, str]]] = {
    _INSIDE: {"· tiles and moments": (NativeKernel, "read"), "· moments": (NativeKernel, "measure")},
    _SENDS: {
        "· · rows and their frame": (LeaderSender, "send_ready"),
        "· · · frame and sending": (HubConnection, "send_made"),
        "· · · · sending": (HubLink, "send"),
        "· · numbers of the loop": (Producer, "_send_scalars"),
        "· · what steps cost": (Producer, "_count"),
    },
}


def _counted(trainer: Trainer, standing: _Standing, steps: int) -> dict[str, float]:
    """Return where the time of traced steps goes, µs a step, by place and by part of the code, and wake-ups."""
    # What a change of hooks costs once is no part of a step.
    trainer.step()
    frames = int(standing.viewer.ask("count")) if standing.viewer else 0
    before = _read(standing)
    timed(trainer.step, steps - 1)
    # As many steps are sent as are trained: the one before came along, the last one stays.
    standing.flush()
    trainer.step()
    spent = {what: (each - before[what]) / steps for what, each in _read(standing).items()}
    if standing.viewer:
        time.sleep(0.5)
        seen = (int(standing.viewer.ask("count")) - frames) / steps
        size = float(standing.tracer.status().get("bytes_per_step", 0))
        standing.notes.append(f"the viewer received {seen:.2f} frames a step, {size / 1e3:.0f} kB a step")
    parts: dict[str, float] = defaultdict(float)
    with ExitStack() as stack:
        for part, (owner, name) in (each for of in _PARTS.values() for each in of.items()):
            stack.enter_context(mock.patch.object(owner, name, _timed(getattr(owner, name), part, parts)))
        timed(trainer.step, steps)
        standing.flush()
        time.sleep(1.5)
    told = {}
    for what, each in spent.items():
        told[what] = each if what == _WAKE_UPS else 1e6 * each
        told |= {part: 1e6 * parts[part] / steps for part in _PARTS.get(what, ()) if parts[part]}
    return told


def _read(standing: _Standing) -> dict[str, float]:
    """Return seconds of a processor so far, by place, and wake-ups."""
    found = dict.fromkeys((_INSIDE, _SENDS, _TALKS, _HUB, _RECORDER), 0.0)
    found[_INSIDE] = standing.spent_ns * 1e-9
    wakes = 0
    names = {str(each.native_id): each.name for each in threading.enumerate()}
    for task in [*glob("/proc/self/task/*"), *glob(f"/proc/{standing.hub}/task/*")]:
        number, of_hub = Path(task).name, task.startswith(f"/proc/{standing.hub}/")
        name = names.get(number, "")
        if of_hub:
            place = _HUB if number == str(standing.hub) else _RECORDER
        elif name == _PRODUCER:
            place = _SENDS
        elif name.startswith("megalens") or "recv_events" in name:
            place = _TALKS
        else:
            continue
        found[place] += processor_seconds(task)
        wakes += 0 if place == _TALKS else _switches(task)
    if standing.viewer:
        found[_VIEWER] = processor_seconds(f"/proc/{standing.viewer.pid}/task/*")
    return found | {_WAKE_UPS: wakes}


def _told(spent: dict[str, float], step: float, found: Tossed, aside: float) -> Row:
    """Return what ``status.overhead`` comes to: time in the training thread, and all of a processor that producer and hub took."""
    percent = 100e-6 * sum(spent[place] for place in (_INSIDE, _SENDS, _HUB, _RECORDER)) / step
    over = found.over(aside)
    low, high = (100 * (each - 1) for each in (over.low, over.high))
    what, target = "· what status.overhead says, beside that interval", f"{low:.2f} to {high:.2f}"
    return Row(what, percent, "% of a step", target=target, met=low <= percent <= high)


def _timed(call: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*args: Any, **options: Any) -> Any:
        began = time.thread_time()
        try:
            return call(*args, **options)
        finally:
            spent[part] += time.thread_time() - began

    return timed


def _switches(task: str) -> int:
    lines = Path(task, "status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt"))


# The baseline to beat: hooks that copy each tensor synchronously and send it as JSON text, one message a tensor.
TILES = 96


class Sender:
    """An unbounded queue, of which one thread sends everything as text to the one viewer, which here is a thread that reads and forgets."""

    def __init__(self, text: Callable[[Any], str]) -> None:
        self._queue: queue.Queue[Any] = queue.Queue()
        self.put: Callable[[Any], None] = self._queue.put
        self._text = text
        self._connected = threading.Event()
        self._viewer: ServerConnection | None = None
        self._server: Server = serve(self._accept, "127.0.0.1", 0, max_size=None, ping_interval=None)
        self._threads = [
            threading.Thread(target=work, daemon=True)
            for work in (self._server.serve_forever, self._watch, self._send)
        ]
        for thread in self._threads:
            thread.start()
        if not self._connected.wait(20):
            raise TimeoutError("The baseline's viewer did not connect within 20 s.")

    def close(self) -> None:
        """Throw away what waits, and stop."""
        while not self._queue.empty():
            self._queue.get_nowait()
        self._queue.put(None)
        self._threads[2].join(30)
        self._server.shutdown()
        for thread in self._threads[:2]:
            thread.join(10)

    def _send(self) -> None:
        while (item := self._queue.get()) is not None:
            text = self._text(item)
            if self._viewer is not None:
                self._viewer.send(text)

    def _accept(self, viewer: ServerConnection) -> None:
        self._viewer = viewer
        self._connected.set()
        for _ in viewer:
            pass

    def _watch(self) -> None:
        address = f"ws://127.0.0.1:{self._server.socket.getsockname()[1]}"
        with connect(address, max_size=None, ping_interval=None) as socket:
            for _ in socket:
                pass


class PeerTracer(Untraced):
    """Traces QKV, MLP1 and MLP2 of the demo model the way that exists elsewhere, written small.

    Each hook reduces the tensor to tiles over the features, copies it to the CPU and puts it on the queue; the sender turns each into a list, and the list into JSON text. Of the batch it traces the
    first ``samples``, or all as the original does; passes in evaluation mode, those of a model that writes, only where it ``evaluates``.
    """

    def __init__(self, model: nn.Module, samples: int | None = None, *, evaluates: bool = False) -> None:
        self._evaluates = evaluates
        self._samples = samples
        self._sender = Sender(_text)
        self.say: Callable[[str], None] = self._sender.put
        """Sends a message after the tensors that wait."""
        self._hooks = list(self._install(model))

    def close(self) -> None:
        """Remove the hooks, throw away what waits, and stop."""
        for hook in self._hooks:
            hook.remove()
        self._sender.close()

    def _install(self, model: nn.Module) -> Iterator[RemovableHandle]:
        for layer, block in enumerate(model.get_submodule("blocks").children(), 1):
            for kind, name in ((1, "attention.qkv"), (4, "mlp.fc1"), (5, "mlp.fc2")):
                yield block.get_submodule(name).register_forward_hook(self._hook(kind, layer))

    def _hook(self, kind: int, layer: int) -> Any:
        def report(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            if not (module.training or self._evaluates):
                return
            with torch.no_grad():
                parts = output[: self._samples].chunk(3, dim=-1) if kind == 1 else (output[: self._samples],)
                for part in parts:
                    self._sender.put((kind, layer, tiled(part).to("cpu", copy=True)))

        return report


def _text(item: tuple[int, int, Tensor] | str) -> str:
    if isinstance(item, str):
        return item
    kind, layer, tensor = item
    return update(tensor, update_type=kind, layer_id=layer)


def update(values: Tensor, **of: Any) -> str:
    return json.dumps(
        {"type": "update", **of, "args": list(values.shape), "result": values.flatten().tolist()}
    )


def tiled(tensor: Tensor) -> Tensor:
    width = -(-tensor.shape[-1] // TILES)
    return functional.pad(tensor, (0, -tensor.shape[-1] % width)).unflatten(-1, (-1, width)).mean(-1)
