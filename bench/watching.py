"""What it costs that the first forward pass is watched, in further steps, and that it costs later steps nothing: ``python -m bench.watching``."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from megalens.adapters import find_points
from megalens.demo import GPT, GPTConfig
from megalens.tracer.first_pass import FirstPass

from .common import Row, ratio, report, verdict

__all__ = ["main"]


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


class _Training:
    def __init__(self, load: _Load) -> None:
        torch.manual_seed(0)
        self._model = GPT(load.config)
        self._run: Any = torch.compile(self._model, fullgraph=True) if load.compiled else self._model
        self._ids = torch.randint(0, 256, (load.batch, load.length))
        self._optimizer = torch.optim.AdamW(self._model.parameters(), 1e-4)

    def step(self, mode: AbstractContextManager[Any] | None = None) -> float:
        """Take a step, its forward pass in ``mode``; return its processor time, which other processes change
        less than they do the time.
        """
        began = time.process_time()
        with mode or nullcontext():
            logits = self._run(self._ids[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), self._ids[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._optimizer.zero_grad()
        return time.process_time() - began

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


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/watching.json``; return the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m bench.watching", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40, help="rounds of each model (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="4 rounds: shows that it works")
    options = parser.parse_args(arguments)
    rounds = 4 if options.quick else options.rounds
    torch.set_num_threads(1)
    rows: list[Row] = []
    for load in LOADS:
        training = _Training(load)
        for _ in range(2):
            training.step()
        training.watched()
        training.step()
        # Of a compiled model another mode would have the pass compiled anew.
        least = nullcontext if load.compiled else _PassOn
        took = [
            (training.step(), training.watched(), training.step(), training.step(least()))
            for _ in range(rounds)
        ]
        before, watched, after, passed = zip(*took, strict=True)
        rows.append(Row(f"{load.title}: a step", statistics.median(before) * 1e3, "ms"))
        for what, these, most in (
            ("further steps for one that is watched", watched, 1.0),
            ("of a step for the one after it", after, 0.02),
        ):
            found = ratio(these, before, middle=statistics.median)
            low, high = found.low - 1, found.high - 1
            met = verdict(low, high, most)
            rows.append(Row(f"{load.title}: {what}", found.value - 1, "", low, high, f"≤ {most:g}", met))
        if not load.compiled:
            found = ratio(passed, before, middle=statistics.median)
            what = "· of these for a dispatch mode that only calls each operation"
            rows.append(Row(f"{load.title}: {what}", found.value - 1, "", found.low - 1, found.high - 1))
    return report(
        "watching",
        "What it costs to watch the first pass",
        rows,
        how=f"The demo model on one thread. {rounds} rounds; in each a step, one of which the forward pass is watched, and one more. Processor time; medians beside one another, 95 % bootstrap intervals. Of a compiled model the pass that is watched is one more, by the interpreter.",
        quick=options.quick,
    )


if __name__ == "__main__":
    main()
