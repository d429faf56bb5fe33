"""Everything of Megalens that a GPU can show, within ten minutes and in one table: exactness of its kernel and of casts, memory, what tracing costs, and statistics in code that CUDA graphs replay.

``--device cpu --quick`` goes through the same on a CPU with a tiny model, where ``torch.compile`` captures nothing: it shows that it works.
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import megalens
from megalens import Tile
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer.memory import memory_reader
from megalens.tracer.moments import kernel_name, measure
from megalens.tracer.moments.casts import FORMATS, cast_rows

from .common import in_turns, ratio, timed
from .recordings import FLAGS
from .report import Measured, Row, benchmark, cost, divided, judged

__all__ = ["gpu"]

_STATISTICS = {"activation": 1, "dgrad": 1, "residual": 1}
_TARGET = 1.0
_STEPS = 3

Step = Callable[[], None]


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
        blocks = _blocks({"measure": partial(measure, [tensor]), "read": tensor.sum}, device, rounds)
        rows.append(divided(f"moments of {name} ÷ one read", ratio(blocks["measure"], blocks["read"])))
    return rows


def _blocks(ways: dict[str, Step], device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Return seconds a step of blocks, all ways in random order."""

    def steps(step: Step) -> None:
        timed(step, _STEPS)
        _settled(device)

    def block(step: Step) -> float:
        step()
        _settled(device)
        return timed(partial(steps, step)) / _STEPS

    for step in ways.values():
        timed(step, 3)
    return in_turns({name: partial(block, step) for name, step in ways.items()}, rounds)


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


def _train(
    run: Any, ids: Tensor, optimizer: torch.optim.Optimizer, around: AbstractContextManager[Any]
) -> Tensor:
    with around:
        with torch.autocast(ids.device.type, torch.bfloat16):
            logits = run(ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return loss.detach()


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
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    missing, most = len(eager.keys() - replayed.keys()), max(apart, default=float("nan"))
    return [
        judged("captured code: rows of statistics that are missing", missing, "", "≤ 0"),
        judged("captured code: largest relative difference from hooks", most, "", "≤ 1e-2"),
        Row("captured code: graphs of six steps", float(graphs), "", target="1"),
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
        losses: dict[str, list[float]] = {"plain": [], "traced": []}
        ways: dict[str, Step] = {}
        with tempfile.TemporaryDirectory() as folder:
            tracer: Any = None
            for way in losses:
                torch.manual_seed(0)
                model = GPT(sizes).to(device)
                run: Any = model if kind == "flags" else _compiled(model, device)
                around: Callable[[], AbstractContextManager[Any]] = nullcontext
                if way == "traced" and kind == "flags":
                    tracer = megalens.trace(
                        model, flags=dict.fromkeys(FLAGS, Tile(96)), record=folder, linger=0.1
                    )
                elif way == "traced":
                    tracer = megalens.log_statistics(
                        run, record=folder, linger=0.1, compiled="captured", **_STATISTICS
                    )
                if way == "traced":
                    around = tracer.step
                ways[way] = _stepper(
                    run, ids, torch.optim.AdamW(model.parameters(), 1e-4), around, losses[way]
                )
            blocks = _blocks(ways, device, rounds)
            tracer.close()
        rows.append(cost(f"{title}: a step", ratio(blocks["traced"], blocks["plain"]), _TARGET))
        both = list(zip(*losses.values(), strict=False))
        same = sum(a == b for a, b in both)
        rows.append(Row(f"{title}: losses that are the same to the bit", same, f"of {len(both)}"))
    return rows


def _stepper(
    run: Any,
    ids: Tensor,
    optimizer: torch.optim.Optimizer,
    around: Callable[[], AbstractContextManager[Any]],
    losses: list[float],
) -> Step:
    def step() -> None:
        loss = _train(run, ids, optimizer, around())
        if len(losses) < 3:
            # Read once in a while: the host waits for it.
            losses.append(float(loss))

    return step
