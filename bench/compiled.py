"""What the tracer costs compiled code and the first pass that is watched, and everything of Megalens that a GPU can show: exactness of its kernel and of casts, memory, what tracing costs, and statistics in code that CUDA graphs replay.

``gpu --device cpu --quick`` goes through the same on a CPU with a tiny model, where ``torch.compile`` captures nothing: it shows that it works.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import megalens
from megalens import Tile
from megalens.adapters import find_points
from megalens.api.trace import model_points
from megalens.demo import GPT, GPTConfig
from megalens.demo import model as demo_model
from megalens.tracer.first_pass import FirstPass
from megalens.tracer.memory import memory_reader
from megalens.tracer.moments import kernel_name, measure
from megalens.tracer.moments.casts import FORMATS, cast_rows

from .common import Measured, Row, benchmark, cost, divided, in_turns, judged, ratio, timed, verdict
from .recordings import FLAGS

__all__ = ["compiled", "gpu", "watching"]

_BATCH = 16
_TARGET = 1.0
_TITLES = {
    "again": "A/A: the same without a tracer, compiled once more",
    "armed": "probes in the graph, forward and backward, nothing chosen",
    "state": "the other way: an operator that writes to a state tensor, nothing chosen",
    "traced": "QKV, MLP1, MLP2 of all layers, Tile(96), recorded",
}
Step = Callable[[], object]


@benchmark(
    "Probes in compiled code",
    "6 rounds",
    rounds=(100, 6, "blocks of each way"),
    steps=(4, "steps a block"),
)
def compiled(options: argparse.Namespace) -> Measured:
    """What probes in compiled code cost: steps of the compiled demo model without a tracer, with probes that nobody asks for, and traced; and the other way to put probes into a graph."""
    tracers: list[Any] = []
    ways = {name: _training(name, options.folder, tracers) for name in ("without", *_TITLES)}
    for way in ways.values():
        way()
    graphs = _graphs()
    blocks = _blocks(ways, options.rounds, options.steps)
    again = _graphs() - graphs
    base = blocks["without"]
    rows = [Row("step of the compiled model without a tracer", median(base) * 1e3, "ms")]
    for name, title in _TITLES.items():
        found = ratio(blocks[name], base, middle=median)
        rows.append(cost(title, found, _TARGET if name == "armed" else None, unit="%"))
    rows.append(judged("graphs that were recompiled meanwhile", again, "", "0"))
    time.sleep(1.5)
    for tracer in tracers:
        if probes := tracer.status().get("probes"):
            rows.append(Row("probes that fired in the last traced step", probes["fired"], ""))
            rows.append(Row("of", probes["expected"], ""))
        tracer.close()
    how = f"The demo model under torch.compile(fullgraph=True), batches of {_BATCH}, {options.rounds} blocks of {options.steps} steps each way, in random order, in one process; medians of blocks measured beside one another."
    return Measured(rows, how)


def _blocks(
    ways: Mapping[str, Step], rounds: int, steps: int, settled: Step = lambda: None
) -> dict[str, list[float]]:
    """Return seconds a step of blocks, all ways in random order; ``settled`` waits for the device."""

    def every(step: Step) -> None:
        timed(step, steps)
        settled()

    def block(step: Step) -> float:
        step()
        settled()
        return timed(partial(every, step)) / steps

    for step in ways.values():
        timed(step, 3)
    return in_turns({name: partial(block, step) for name, step in ways.items()}, rounds)


def _graphs() -> float:
    return float(torch._dynamo.utils.counters["stats"]["unique_graphs"])


class _Training:
    """Steps of a model on the same text; ``run`` is the model or its compiled code, ``around`` what each step is in, such as a tracer's."""

    def __init__(
        self,
        model: nn.Module,
        run: Any,
        ids: Tensor,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        dtype: torch.dtype | None = None,
    ) -> None:
        self._run, self._ids, self._around, self._dtype = run, ids, around, dtype
        self._optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
        self.losses: list[float] = []

    def __call__(self, mode: AbstractContextManager[Any] | None = None) -> None:
        """Take a step, its forward pass in ``mode``."""
        with self._around():
            mixed = torch.autocast(self._ids.device.type, self._dtype, enabled=self._dtype is not None)
            with mode or nullcontext(), mixed:
                logits = self._run(self._ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), self._ids[:, 1:].flatten())
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
        if self._dtype is not None and len(self.losses) < 3:
            # Read once in a while: the host waits for it.
            self.losses.append(float(loss))

    def processor(self, mode: AbstractContextManager[Any] | None = None) -> float:
        """Take a step; return its processor time, which other processes change less than they do the time."""
        began = time.process_time()
        self(mode)
        return time.process_time() - began


def _training(name: str, folder: Path, tracers: list[Any]) -> _Training:
    """Return a training of one copy of the demo model, and of its code: graphs are kept by code, and one model's would serve another."""
    torch.manual_seed(0)
    model: nn.Module = _copied(demo_model, name).GPT()
    run: Any = torch.compile(model, fullgraph=True)
    around: Any = nullcontext
    if name == "state":
        _hook_states(model)
    elif name in ("armed", "traced"):
        more: dict[str, Any] = {"flags": dict.fromkeys(FLAGS, Tile(96)), "record": folder}
        tracers.append(megalens.trace(run, linger=0.1, **(more if name == "traced" else {})))
        around = tracers[-1].step
    return _Training(model, run, torch.randint(0, 256, (_BATCH, 128)), around)


def _copied(module: ModuleType, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{module.__package__}._{name}", str(module.__file__))
    copy = importlib.util.module_from_spec(spec)
    # Its dataclasses look their module up.
    sys.modules[spec.name] = copy
    spec.loader.exec_module(copy)
    return copy


def _hook_states(model: nn.Module) -> None:
    """Place probes at the modules where the tracer has them, forward only, as an operator that changes a state."""
    library: Any = torch.library.Library("megalens_bench", "FRAGMENT")
    library.define("seen(Tensor tensor, Tensor(a!) state, int number) -> ()")
    library.impl("seen", lambda tensor, state, number: None, "CompositeExplicitAutograd")
    torch.library.register_fake("megalens_bench::seen", lambda tensor, state, number: None, lib=library)
    model.library, state = library, torch.zeros(1)

    def seen(number: int, module: nn.Module, given: Any, output: Any) -> None:
        torch.ops.megalens_bench.seen(output, state, number)

    flags = model_points(model, None).flags.values()
    sources = [each for flag in flags for layer in flag.layers.values() for each in layer]
    outputs = [each for each in sources if each.computed is None and each.side == "output"]
    for number, source in enumerate(outputs, 1):
        source.module.register_forward_hook(partial(seen, number))


class _PassOn(TorchDispatchMode):
    """Sees every operation and does nothing: the least that following a pass takes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


_LOADS = {
    # Batch, length, and whether it is compiled.
    "2 layers, hidden 32, batch 2 × 16": (GPTConfig(layers=2, hidden=32, heads=2), 2, 16, False),
    "2 layers, hidden 128, batch 16 × 128": (GPTConfig(layers=2), 16, 128, False),
    "12 layers, hidden 128, batch 4 × 128": (GPTConfig(layers=12), 4, 128, False),
    "2 layers, compiled, batch 16 × 128": (GPTConfig(layers=2), 16, 128, True),
}


@benchmark("What it costs to watch the first pass", "4 rounds", rounds=(40, 4, "rounds of each model"))
def watching(options: argparse.Namespace) -> Measured:
    """What it costs that the first forward pass is watched, in further steps, and that it costs later steps nothing."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for title, (config, batch, length, is_compiled) in _LOADS.items():
        torch.manual_seed(0)
        model = GPT(config)
        run: Any = torch.compile(model, fullgraph=True) if is_compiled else model
        training = _Training(model, run, torch.randint(0, 256, (batch, length)))
        step, watched = training.processor, partial(_watched, training, run)
        for each in (step, step, watched, step):
            each()
        # Of a compiled model another mode would have the pass compiled anew.
        least = nullcontext if is_compiled else _PassOn
        took = [(step(), watched(), step(), step(least())) for _ in range(options.rounds)]
        before, seen, after, passed = zip(*took, strict=True)
        rows += [
            Row(f"{title}: a step", median(before) * 1e3, "ms"),
            _more(f"{title}: further steps for one that is watched", seen, before, 1.0),
            _more(f"{title}: of a step for the one after it", after, before, 0.02),
        ]
        if not is_compiled:
            what = f"{title}: · of these for a dispatch mode that only calls each operation"
            rows.append(_more(what, passed, before))
    how = f"The demo model on one thread. {options.rounds} rounds; in each a step, one of which the forward pass is watched, and one more. Processor time; medians beside one another, 95 % bootstrap intervals. Of a compiled model the pass that is watched is one more, by the interpreter."
    return Measured(rows, how)


def _watched(training: _Training, run: Any) -> float:
    """Take a step of which the pass is watched, as after ``megalens.trace``."""
    points, said = find_points(run), list[str]()
    first = FirstPass(points, said.append, lambda changed: None, nullcontext)
    first.open()
    took = training.processor()
    if said or points.watch is not None:
        raise RuntimeError(f"The pass was not watched: {said}")
    first.close()
    return took


def _more(what: str, times: Sequence[float], before: Sequence[float], most: float | None = None) -> Row:
    found = ratio(times, before, middle=median)
    value, low, high = (each - 1 for each in (found.value, found.low, found.high))
    return Row(what, value, "", low, high, "" if most is None else f"≤ {most:g}", verdict(low, high, most))


_STATISTICS = {"activation": 1, "dgrad": 1, "residual": 1}
_STEPS = 3


@benchmark(
    "On a GPU",
    "few rounds of a tiny model",
    device=("cuda", "where it runs"),
    rounds=(40, 4, "blocks of each way"),
)
def gpu(options: argparse.Namespace) -> Measured | None:
    """Everything of Megalens that a GPU can show, within ten minutes and in one table."""
    device = torch.device(options.device)
    if device.type == "cuda" and not torch.cuda.is_available():
        print("There is no GPU here. --device cpu --quick shows that it works.", file=sys.stderr)
        return None
    rounds = options.rounds
    # 24 × 1024: some 350 million parameters with GPT-2's vocabulary.
    sizes = (
        GPTConfig(vocabulary=64, layers=2, hidden=32, heads=2, sequence=16)
        if options.quick
        else GPTConfig(vocabulary=50304, layers=24, hidden=1024, heads=16, sequence=1024)
    )
    rows = [
        *_kernel(device, rounds, options.quick),
        *_casts(device),
        *_memory(device),
        *_captured(device),
        *_costs(device, sizes, rounds),
    ]
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else "a CPU"
    millions = sum(each.numel() for each in GPT(sizes).parameters()) / 1e6
    how = f"On {where}, torch {torch.__version__}. The kernel for moments is {kernel_name(device)}, held against float64 numpy. Costs are of steps of a GPT of {millions:.0f} million parameters in bfloat16 autocast, {rounds} blocks of {_STEPS} steps each way in random order, with the device waited for at the end of each block."
    return Measured(rows, how)


def _settled(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _kernel(device: torch.device, rounds: int, quick: bool) -> list[Row]:
    """Hold the kernel against numpy, and its time against one read of the same memory."""
    rows = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        tensor = (torch.randn(1 << (16 if quick else 26)) * 3 + 1).to(device, dtype)
        found = measure([tensor])[0].cpu().numpy()
        x = tensor.double().cpu().numpy()
        apart = x - x.mean()
        truth = np.array([x.size, x.mean(), *((apart**power).sum() for power in (2, 3, 4)), x.min(), x.max()])
        # A third moment nearly cancels: it is held against the sum of what cancels.
        size = np.maximum(np.abs(truth), [0, 0, 0, (np.abs(apart) ** 3).sum(), 0, 0, 0])
        error = float(np.max(np.abs(found[:7] - truth) / size))
        name = str(dtype).removeprefix("torch.")
        rows.append(judged(f"moments of {name}: largest relative error", error, "", "≤ 1e-5"))
        blocks = _blocks(
            {"measure": partial(measure, [tensor]), "read": tensor.sum},
            rounds,
            _STEPS,
            partial(_settled, device),
        )
        rows.append(divided(f"moments of {name} ÷ one read", ratio(blocks["measure"], blocks["read"])))
    return rows


def _casts(device: torch.device) -> list[Row]:
    """Count what casts lose on the device and on a CPU."""
    values = torch.randn(512, 512) * torch.logspace(-6, 4, 512)
    apart = [0.0]
    for form in FORMATS.values():
        here, there = cast_rows(values, form), cast_rows(values.to(device), form)
        for stat, row in here.items():
            off = (row - there[stat].cpu()).nan_to_num().abs()[0]
            apart += [float(off[0])] if stat == "cast_error" else off[:2].tolist()
    return [
        judged(f"casts to {len(FORMATS)} formats: largest difference from a CPU", max(apart), "", "≤ 1e-12")
    ]


def _memory(device: torch.device) -> list[Row]:
    """Hold what is read of the allocator against what is allocated."""
    mib = 64
    reader = memory_reader([nn.Linear(4, 4).to(device)])
    if reader is None:
        return []
    before = reader.read()
    kept = torch.ones(mib << 18, device=device)
    passing = torch.ones(2 * mib << 18, device=device)
    del passing
    after = reader.read()
    del kept
    grown, peak = ((now - before.allocated) / 2**20 for now in (after.allocated, after.peak))
    return [
        Row("memory: MiB that are read as kept", grown, "MiB", target=str(mib)),
        Row("memory: MiB at the peak", peak, "MiB", target=str(3 * mib)),
    ]


def _compiled(model: nn.Module, device: torch.device) -> Any:
    # A function of its own for each: code of one class is shared, with the probes of whoever compiled first.
    return torch.compile(model, mode="reduce-overhead" if device.type == "cuda" else None)


def _captured(device: torch.device) -> list[Row]:
    """Hold statistics that captured code measures by itself against those of hooks on the model uncompiled."""
    torch.manual_seed(0)
    first = GPT(GPTConfig(vocabulary=64, layers=2, hidden=64, heads=2, sequence=32)).to(device)
    ids = torch.randint(0, 64, (4, 32), device=device)
    found: list[dict[tuple[int, str, str], dict[str, float]]] = []
    for captured in (False, True):
        model = copy.deepcopy(first)
        run = _compiled(model, device) if captured else model
        with tempfile.TemporaryDirectory() as folder:
            with megalens.log_statistics(
                run, jsonl=folder, hub=None, compiled="captured" if captured else None, **_STATISTICS
            ) as logger:
                for _ in range(6):
                    with logger.step():
                        run(ids).square().mean().backward()
                        model.zero_grad()
            found.append(_read(Path(folder)))
    eager, replayed = found
    apart = [
        abs(replayed[key][name] - row[name]) / max(abs(row[name]), 1e-6)
        for key, row in eager.items()
        if key in replayed
        for name in ("sum_2", "sum_4")
        if name in row
    ]
    missing, most = len(eager.keys() - replayed.keys()), max(apart, default=float("nan"))
    return [
        judged("captured code: rows of statistics that are missing", missing, "", "≤ 0"),
        judged("captured code: largest relative difference from hooks", most, "", "≤ 1e-2"),
        Row("captured code: graphs of six steps", _graphs(), "", target="1"),
    ]


def _read(folder: Path) -> dict[tuple[int, str, str], dict[str, float]]:
    rows = {}
    for file in folder.rglob("*.jsonl"):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            for name, sums in record["values"].items():
                rows[record["iter"], record["stat"], name] = sums
    return rows


def _costs(device: torch.device, sizes: GPTConfig, rounds: int) -> list[Row]:
    """Return what tracing costs steps, uncompiled and captured, and whether losses stay as they were."""
    ids = torch.randint(0, sizes.vocabulary, (8, sizes.sequence), device=device)
    rows = []
    for kind, title in (
        ("flags", "three flags, Tile(96), recorded"),
        ("captured", "statistics of activations and gradients in captured code"),
    ):
        ways: dict[str, _Training] = {}
        with tempfile.TemporaryDirectory() as folder:
            for way in ("plain", "traced"):
                torch.manual_seed(0)
                model = GPT(sizes).to(device)
                run: Any = model if kind == "flags" else _compiled(model, device)
                tracer: Any = None
                if way == "traced" and kind == "flags":
                    flags = dict.fromkeys(FLAGS, Tile(96))
                    tracer = megalens.trace(model, flags=flags, record=folder, linger=0.1)
                elif way == "traced":
                    tracer = megalens.log_statistics(
                        run, record=folder, linger=0.1, compiled="captured", **_STATISTICS
                    )
                ways[way] = _Training(model, run, ids, tracer.step if tracer else nullcontext, torch.bfloat16)
            blocks = _blocks(ways, rounds, _STEPS, partial(_settled, device))
            tracer.close()
        rows.append(cost(f"{title}: a step", ratio(blocks["traced"], blocks["plain"]), _TARGET))
        both = list(zip(*(each.losses for each in ways.values()), strict=False))
        same = sum(a == b for a, b in both)
        rows.append(Row(f"{title}: losses that are the same to the bit", same, f"of {len(both)}"))
    return rows
