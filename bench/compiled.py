"""What probes in compiled code cost, and what it costs that the first forward pass is watched."""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import megalens
from megalens import Tile
from megalens.adapters import find_points
from megalens.demo import GPT, GPTConfig
from megalens.demo import model as demo_model
from megalens.tracer.first_pass import FirstPass

from .common import in_turns, ratio, timed
from .recordings import FLAGS
from .report import Measured, Row, benchmark, cost, verdict

__all__ = ["compiled", "watching"]

_BATCH = 16
_TARGET = 1.0
TITLES = {
    "again": "A/A: the same without a tracer, compiled once more",
    "armed": "probes in the graph, forward and backward, nothing chosen",
    "state": "the other way: an operator that writes to a state tensor, nothing chosen",
    "traced": "QKV, MLP1, MLP2 of all layers, Tile(96), recorded",
}


@benchmark(
    "Probes in compiled code",
    "6 rounds",
    rounds=(100, 6, "blocks of each way"),
    steps=(4, "steps a block"),
)
def compiled(options: argparse.Namespace) -> Measured:
    """What probes in compiled code cost: steps of the compiled demo model without a tracer, with probes that nobody asks for, and traced; and the other way to put probes into a graph."""
    ways = {name: _Way(name, options.folder) for name in ("without", *TITLES)}
    for way in ways.values():
        timed(way.step, 3)
    counted = torch._dynamo.utils.counters["stats"]
    graphs = counted["unique_graphs"]

    def block(way: _Way) -> float:
        way.step()
        return timed(way.step, options.steps)

    blocks = in_turns({name: lambda way=way: block(way) for name, way in ways.items()}, options.rounds)
    again = float(counted["unique_graphs"] - graphs)
    base = blocks["without"]
    rows = [Row("step of the compiled model without a tracer", median(base) * 1e3, "ms")]
    for name, title in TITLES.items():
        found = ratio(blocks[name], base, middle=median)
        rows.append(cost(title, found, _TARGET if name == "armed" else None, unit="%"))
    rows.append(Row("graphs that were recompiled meanwhile", again, "", target="0"))
    rows += [Row(what, value, "") for way in ways.values() for what, value in way.close().items()]
    how = f"The demo model under torch.compile(fullgraph=True), batches of {_BATCH}, {options.rounds} blocks of {options.steps} steps each way, in random order, in one process; medians of blocks measured beside one another."
    return Measured(rows, how)


class _Training:
    """Steps of a model on the same text; ``run`` is the model or its compiled code."""

    def __init__(self, model: nn.Module, run: Any, ids: Tensor) -> None:
        self._run, self._ids = run, ids
        self._optimizer = torch.optim.AdamW(model.parameters(), 1e-4)

    def __call__(self, mode: AbstractContextManager[Any] | None = None) -> float:
        """Take a step, its forward pass in ``mode``; return its processor time, which other processes change less than they do the time."""
        began = time.process_time()
        with mode or nullcontext():
            logits = self._run(self._ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self._ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.process_time() - began


class _Way:
    """One copy of the demo model, and of its code: graphs are kept by code, and one model's would serve another."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        code = _copied(demo_model, name)
        torch.manual_seed(0)
        self.model: nn.Module = code.GPT()
        self._run: Callable[[Tensor], Tensor] = torch.compile(self.model, fullgraph=True)
        self._train = _Training(self.model, self._run, torch.randint(0, 256, (_BATCH, 128)))
        self._tracer: Any = None
        if name in ("armed", "traced"):
            flags = dict.fromkeys(FLAGS, Tile(96)) if name == "traced" else None
            self._tracer = megalens.trace(
                self._run, flags=flags, record=folder if flags else None, linger=0.1
            )  # type: ignore[arg-type]
        elif name == "state":
            _hook_states(self.model)

    def step(self) -> None:
        """Take one step."""
        with self._tracer.step() if self._tracer else nullcontext():
            self._train()

    def close(self) -> dict[str, float]:
        """End it; return how many of its probes fired."""
        if self._tracer is None:
            return {}
        time.sleep(1.5)
        probes = self._tracer.status().get("probes")
        self._tracer.close()
        if probes is None:
            return {}
        return {"probes that fired in the last traced step": probes["fired"], "of": probes["expected"]}


def _copied(module: ModuleType, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{module.__package__}._{name}", str(module.__file__))
    assert spec is not None
    assert spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = copy
    spec.loader.exec_module(copy)
    return copy


def _hook_states(model: nn.Module) -> None:
    """Place probes at the modules where the tracer has them, forward only, as an operator that changes a state."""
    library: Any = torch.library.Library("megalens_bench", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("seen(Tensor tensor, Tensor(a!) state, int number) -> ()")
    library.impl("seen", lambda tensor, state, number: None, "CompositeExplicitAutograd")
    torch.library.register_fake("megalens_bench::seen", lambda tensor, state, number: None, lib=library)
    state = torch.zeros(1)
    points = megalens.api.trace.model_points(model, None)
    number = 0
    for flag in points.flags.values():
        for sources in flag.layers.values():
            for source in sources:
                if source.computed is None and source.side == "output":
                    number += 1

                    def seen(module: nn.Module, given: Any, output: Any, number: int = number) -> None:
                        torch.ops.megalens_bench.seen(output, state, number)

                    source.module.register_forward_hook(seen)
    model.library = library  # type: ignore[assignment]


@dataclass(frozen=True)
class _Load:
    title: str
    config: GPTConfig
    batch: int
    length: int
    compiled: bool = False


LOADS = (
    _Load("2 layers, hidden 32, batch 2 × 16", GPTConfig(layers=2, hidden=32, heads=2), 2, 16),
    _Load("2 layers, hidden 128, batch 16 × 128", GPTConfig(layers=2), 16, 128),
    _Load("12 layers, hidden 128, batch 4 × 128", GPTConfig(layers=12), 4, 128),
    _Load("2 layers, compiled, batch 16 × 128", GPTConfig(layers=2), 16, 128, compiled=True),
)


class _PassOn(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees every operation and does nothing: the least that following a pass takes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Watched:
    """A training of which each step may be watched."""

    def __init__(self, load: _Load) -> None:
        torch.manual_seed(0)
        model = GPT(load.config)
        self._run: Any = torch.compile(model, fullgraph=True) if load.compiled else model
        self.step = _Training(model, self._run, torch.randint(0, 256, (load.batch, load.length)))

    def watched(self) -> float:
        """Take a step of which the pass is watched, as after ``megalens.trace``."""
        points, said = find_points(self._run), list[str]()
        first = FirstPass(points, said.append, lambda changed: None, nullcontext)
        first.open()
        took = self.step()
        if said or points.watch is not None:
            raise RuntimeError(f"The pass was not watched: {said}")
        first.close()
        return took


@benchmark("What it costs to watch the first pass", "4 rounds", rounds=(40, 4, "rounds of each model"))
def watching(options: argparse.Namespace) -> Measured:
    """What it costs that the first forward pass is watched, in further steps, and that it costs later steps nothing."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for load in LOADS:
        training = _Watched(load)
        training.step()
        training.step()
        training.watched()
        training.step()
        # Of a compiled model another mode would have the pass compiled anew.
        least = nullcontext if load.compiled else _PassOn
        took = [
            (training.step(), training.watched(), training.step(), training.step(least()))
            for _ in range(options.rounds)
        ]
        before, watched, after, passed = zip(*took, strict=True)

        def more(
            what: str,
            times: tuple[float, ...],
            most: float | None,
            load: _Load = load,
            before: tuple[float, ...] = before,
        ) -> Row:
            found = ratio(times, before, middle=median)
            value, low, high = found.value - 1, found.low - 1, found.high - 1
            target = "" if most is None else f"≤ {most:g}"
            return Row(f"{load.title}: {what}", value, "", low, high, target, verdict(low, high, most))

        rows += [
            Row(f"{load.title}: a step", median(before) * 1e3, "ms"),
            more("further steps for one that is watched", watched, 1.0),
            more("of a step for the one after it", after, 0.02),
        ]
        if not load.compiled:
            rows.append(more("· of these for a dispatch mode that only calls each operation", passed, None))
    how = f"The demo model on one thread. {options.rounds} rounds; in each a step, one of which the forward pass is watched, and one more. Processor time; medians beside one another, 95 % bootstrap intervals. Of a compiled model the pass that is watched is one more, by the interpreter."
    return Measured(rows, how)
