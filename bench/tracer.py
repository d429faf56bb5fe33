"""What the tracer costs a training step: blocks of steps of the demo model, in random order, in one run."""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from megalens.demo import GPT, TrainConfig, Trainer, load_corpus

from .common import Row, ratio, write_results
from .tracer_ways import Ways

__all__ = ["main"]

TARGETS = {"off": 0.1, "idle": 0.2, "traced": 1.0}
TITLES = {
    "off": "tracer there, no hub, nothing chosen",
    "idle": "armed: hub and producer run, nothing chosen",
    "traced": "QKV, MLP1, MLP2 of all layers, Tile(96), one viewer",
    "peer, one sample": "baseline: JSON text per tensor, one sample as above",
    "peer": "baseline: JSON text per tensor, whole batch",
}
PEER_ROUNDS = 12
"""The baselines take ten times as long and need no small interval."""


def main(arguments: Sequence[str] | None = None) -> Path | None:
    """Measure and write ``results/tracer.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.tracer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=120, help="blocks of each kind (%(default)s)")
    parser.add_argument("--steps", type=int, default=4, help="steps a block (%(default)s)")
    parser.add_argument(
        "--only", nargs="*", choices=list(TITLES), help="leave the other ways out; writes no results"
    )
    parser.add_argument("--quick", action="store_true", help="6 rounds: shows that it works")
    options = parser.parse_args(arguments)
    rounds = 6 if options.quick else options.rounds
    titles = {name: title for name, title in TITLES.items() if not options.only or name in options.only}

    # Ended from outside, it still wakes the processes that it has stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory() as runtime:
        os.environ["MEGALENS_RUNTIME_DIR"] = runtime
        blocks, facts = _measure(list(titles), rounds, options.steps)
    base = blocks["without"]
    beside = {name: [base[i] for i in _rounds_of(name, rounds)] for name in titles}
    rows = [
        Row(
            "step without the tracer", _trimmed_mean(base) * 1e3, "ms", note="all others are relative to this"
        ),
    ]
    for name, title in titles.items():
        # Each block over the one beside it: a machine that is slow for a while is slow for both.
        quotients = [block / other for block, other in zip(blocks[name], beside[name], strict=True)]
        found = ratio(quotients, [1.0] * len(quotients), middle=_trimmed_mean)
        cost, low, high = (100 * (value - 1) for value in (found.value, found.low, found.high))
        target = TARGETS.get(name)
        rows.append(
            Row(
                title,
                cost,
                "% of a step",
                low,
                high,
                "" if target is None else f"≤ {target} %",
                _verdict(low, high, target),
                " · ".join(_notes(low, high, target, facts["notes"].get(name, ""))),
            )
        )
    how = (
        f"{rounds} rounds; in each, {options.steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, in "
        f"random order, after one step that is not measured (the two baselines in {min(PEER_ROUNDS, rounds)} of the rounds). Hubs and viewer "
        "are there for the whole run, and stopped (SIGSTOP) while another way is measured. Time of a block over that of the block without the "
        "tracer in the same round; mean without the smallest and largest tenth; 95 % bootstrap interval over rounds."
    )
    facts.pop("notes")
    if options.only:
        for row in rows:
            print(
                f"{row.what}: {row.value:.2f} {row.unit} [{row.low or 0:.2f}, {row.high or 0:.2f}] {row.note}"
            )
        return None
    return write_results(
        "tracer", "What tracing costs a step", rows, how=how, quick=options.quick, facts=facts
    )


def _verdict(low: float, high: float, target: float | None) -> bool | None:
    """Return whether the target was met, or None where the interval holds both answers."""
    if target is None or low <= target < high:
        return None
    return high <= target


def _notes(low: float, high: float, target: float | None, note: str) -> Iterator[str]:
    if target is not None and low <= target < high:
        yield "**undecided**: the interval holds the target; measure longer, or on a quieter machine"
    if note:
        yield note


def _measure(names: list[str], rounds: int, steps: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    torch.manual_seed(0)
    corpus = load_corpus(300_000)
    trainer = Trainer(GPT(), corpus, config=TrainConfig(steps=10**9))
    for _ in range(10):
        trainer.step()
    rng = random.Random(0)
    blocks: dict[str, list[float]] = {name: [] for name in ["without", *names]}
    turns = {name: set(_rounds_of(name, rounds)) for name in blocks}
    with ExitStack() as stack:
        ways = Ways(trainer, stack, traced="traced" in names)
        for number in range(rounds):
            here = [name for name in blocks if number in turns[name]]
            for name in rng.sample(here, len(here)):
                with ways.way(name):
                    # What a change of hooks costs once, and caches that another way left, are no part of a step.
                    trainer.step()
                    blocks[name].append(_time(trainer.step, steps))
            if number % 10 == 9:
                print(f"round {number + 1} of {rounds}", file=sys.stderr)
        notes = ways.notes()
    return blocks, {
        "rounds": rounds,
        "steps_per_block": steps,
        "torch_threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "notes": notes,
    }


def _rounds_of(name: str, rounds: int) -> list[int]:
    """Return the rounds in which a way is measured."""
    if not name.startswith("peer"):
        return list(range(rounds))
    count = min(PEER_ROUNDS, rounds)
    return [number * rounds // count for number in range(count)]


def _time(step: Callable[[], None], count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - began) / count


def _trimmed_mean(values: Sequence[float]) -> float:
    cut = len(values) // 10
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)


if __name__ == "__main__":
    results = main()
    if results is not None:
        print(results.read_text(encoding="utf-8"))
