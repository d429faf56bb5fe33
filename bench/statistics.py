"""What logging statistics costs a training step: blocks of steps of the demo model, with and without, in random order, in one run."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import megalens
from megalens.demo import GPT, TrainConfig, Trainer, load_corpus
from megalens.tracer import Tracer
from megalens.tracer.moments import kernel_name

from .common import Row, ratio, write_results

__all__ = ["main"]

WAYS: dict[str, tuple[str, dict[str, int], int, float | None]] = {
    "param and grad": ("parameters and gradients every step", {"param": 1, "grad": 1}, 1, 0.5),
    "activation": ("activations every 10 steps", {"activation": 1}, 10, 1.0),
    "all": (
        "all six in one step",
        dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1),
        1,
        None,
    ),
}
"""Title, what is logged in each measured step, over how many steps that is spread, and the most that it may cost, in per cent."""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/statistics.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.statistics", description=__doc__)
    parser.add_argument("--rounds", type=int, default=150, help="blocks of each kind (%(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps a block (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="6 rounds: shows that it works")
    options = parser.parse_args(arguments)
    rounds = 6 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEGALENS_RUNTIME_DIR"] = folder
        blocks = _measure(rounds, options.steps, Path(folder) / "run")
    rows = [
        Row(
            "step, traced by nobody and nothing logged",
            _trimmed_mean(blocks["off"]) * 1e3,
            "ms",
            note="hub and producer are there; the others are relative to this",
        )
    ]
    for name, (title, _, spread, target) in WAYS.items():
        # Each block over the one beside it: a machine that is slow for a while is slow for both.
        quotients = [block / off for block, off in zip(blocks[name], blocks["off"], strict=True)]
        found = ratio(quotients, [1.0] * len(quotients), middle=_trimmed_mean)
        cost, low, high = (100 * (value - 1) / spread for value in (found.value, found.low, found.high))
        undecided = target is not None and low <= target < high
        note = "**undecided**: the interval holds the target" if undecided else ""
        if spread > 1:
            note = " · ".join(filter(None, (note, f"{spread * cost:.3g} % of a step that is logged")))
        rows.append(
            Row(
                title,
                cost,
                "% of a step",
                low,
                high,
                "" if target is None else f"≤ {target} %",
                None if target is None or undecided else high <= target,
                note,
            )
        )
    how = (
        f"{rounds} rounds; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, in random order, after one "
        "step that is not measured. Every measured step is logged; what is logged seldom is divided by its interval. A hub records it all. Time of a block over that of "
        "the block without statistics in the same round; mean without the smallest and largest tenth; 95 % bootstrap interval over rounds."
    )
    facts = {"rounds": rounds, "torch_threads": torch.get_num_threads(), "kernel": kernel_name()}
    return write_results(
        "statistics", "What logging statistics costs a step", rows, how=how, quick=options.quick, facts=facts
    )


def _measure(rounds: int, steps: int, record: Path) -> dict[str, list[float]]:
    torch.manual_seed(0)
    corpus = load_corpus(300_000)
    model = GPT()
    with megalens.trace(model, name="bench-statistics", record=record, linger=0.1) as tracer:
        trainer = Trainer(model, corpus, tracer, TrainConfig(steps=10**9))
        for _ in range(10):
            trainer.step()
        dice = random.Random(0)
        blocks: dict[str, list[float]] = {name: [] for name in ("off", *WAYS)}
        for number in range(rounds):
            for name in dice.sample(list(blocks), len(blocks)):
                blocks[name].append(_block(trainer, tracer, name, steps))
            if number % 10 == 9:
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return blocks


def _block(trainer: Trainer, tracer: Tracer, name: str, steps: int) -> float:
    logged: dict[str, Any] = {} if name == "off" else dict(WAYS[name][1])
    with megalens.log_statistics(trainer.model, trainer._optimizer, tracer=tracer, **logged):
        # What hooks cost once, and caches that another way left, are no part of a step.
        trainer.step()
        began = time.perf_counter()
        for _ in range(steps):
            trainer.step()
        return (time.perf_counter() - began) / steps


def _trimmed_mean(values: Sequence[float]) -> float:
    cut = len(values) // 10
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
