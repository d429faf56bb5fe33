"""What the tracer costs a training step: blocks of steps of the demo model, in random order, in one run."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import megalens
from megalens import Tile
from megalens.demo import GPT, TrainConfig, Trainer, load_corpus
from megalens.demo.train import Untraced

from .common import Row, percentile, ratio, write_results
from .peer import PeerTracer

__all__ = ["main"]

FLAGS = ("QKV_mat_mul", "MLP1_mat_mul", "MLP2_mat_mul")
TARGETS = {"off": 0.1, "idle": 0.2, "traced": 1.0}
TITLES = {
    "off": "tracer there, no hub, nothing chosen",
    "idle": "armed: hub and producer run, nothing chosen",
    "traced": "QKV, MLP1, MLP2 of all layers, Tile(96), one viewer",
    "peer, one sample": "baseline: JSON text per tensor, one sample as above",
    "peer": "baseline: JSON text per tensor, whole batch",
}
VIEWER = """
import sys
from megalens.client import connect
run = connect(sys.argv[1])
print("attached", flush=True)
sys.stdin.read()
print(run.received_frames, flush=True)
run.close()
"""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/tracer.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.tracer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=24, help="blocks of each kind (%(default)s)")
    parser.add_argument("--steps", type=int, default=20, help="steps a block (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="4 rounds of 4 steps: shows that it works")
    options = parser.parse_args(arguments)
    rounds, steps = (4, 4) if options.quick else (options.rounds, options.steps)

    with tempfile.TemporaryDirectory() as runtime:
        os.environ["MEGALENS_RUNTIME_DIR"] = runtime
        blocks, facts = _measure(rounds, steps)
    base = blocks["without"]
    rows = [
        Row(
            "step without the tracer", _trimmed_mean(base) * 1e3, "ms", note="all others are relative to this"
        ),
    ]
    for name, title in TITLES.items():
        found = ratio(blocks[name], base, middle=_trimmed_mean)
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
        f"{rounds} rounds; in each, {steps} training steps of the demo model (4 layers, hidden 128, batch 16 × 128) in every way, in random "
        "order, each way set up and taken down outside of the measured time. Mean step time, the slowest and fastest tenth of rounds left out, over "
        "that of the steps without; 95 % bootstrap interval over rounds."
    )
    facts.pop("notes")
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


def _measure(rounds: int, steps: int) -> tuple[dict[str, list[float]], dict[str, Any]]:
    torch.manual_seed(0)
    corpus = load_corpus(300_000)
    trainer = Trainer(GPT(), corpus, config=TrainConfig(steps=10**9))
    for _ in range(10):
        trainer.step()
    dice = random.Random(0)
    names = ["without", *TITLES]
    blocks: dict[str, list[float]] = {name: [] for name in names}
    received: list[int] = []
    backlog: dict[str, list[int]] = {"peer": [], "peer, one sample": []}
    for number in range(rounds):
        for name in dice.sample(names, len(names)):
            with _way(name, trainer.model, received) as tracer:
                trainer.tracer = tracer
                # What a change of hooks costs once is no part of a step.
                trainer.step()
                blocks[name].append(_time(trainer.step, steps))
                trainer.tracer = Untraced()
                if isinstance(tracer, PeerTracer):
                    backlog[name].append(tracer.backlog)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    per_step = sum(received) / max(1, len(received)) / (steps + 1)
    notes = {"traced": f"the viewer received {per_step:.2f} frames a step"}
    for name, sizes in backlog.items():
        notes[name] = (
            f"{percentile(sizes, 50) / (steps + 1):.1f} of 20 tensors a step still unsent at the end of a block"
        )
    return blocks, {
        "rounds": rounds,
        "steps_per_block": steps,
        "torch_threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "notes": notes,
    }


@contextmanager
def _way(name: str, model: GPT, received: list[int]) -> Iterator[Any]:
    if name == "without":
        yield Untraced()
    elif name == "off":
        with megalens.trace(model, hub=None) as tracer:
            yield tracer
    elif name == "idle":
        with megalens.trace(model, name="bench", linger=0) as tracer:
            _run_id(tracer)
            yield tracer
    elif name == "traced":
        with (
            megalens.trace(model, name="bench", flags={flag: Tile(96) for flag in FLAGS}, linger=0) as tracer,
            _viewer(_run_id(tracer), received),
        ):
            yield tracer
    else:
        peer = PeerTracer(model, samples=1 if name.endswith("one sample") else None)
        try:
            yield peer
        finally:
            peer.close()


@contextmanager
def _viewer(run_id: str, received: list[int]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", VIEWER, run_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline().strip() != "attached":
            raise RuntimeError("The viewer could not attach.")
        yield
        process.stdin.close()
        received.append(int(process.stdout.readline()))
    finally:
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _run_id(tracer: megalens.Tracer) -> str:
    if not tracer.connected(30) or tracer.run_id is None:
        raise TimeoutError("The tracer did not reach its hub within 30 s.")
    return tracer.run_id


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
    print(main().read_text(encoding="utf-8"))
