"""Raw-moment JSONL as training jobs write it, small, with values that are known."""

import json
from pathlib import Path

import numpy as np
import pytest

NAMES = (
    "decoder.layers.0.mlp.linear_fc1.weight",
    "decoder.layers.1.mlp.linear_fc1.weight",
    "embedding.weight",
)


def values_of(name, step, stat="grad"):
    seed = int.from_bytes(f"{name}{step}{stat}".encode(), "little") % 2**32
    return np.random.default_rng(seed).normal(0.1, 1, 20)


def sums(values):
    return {
        "count": float(len(values)),
        **{f"sum_{power}": float((values**power).sum()) for power in (1, 2, 3, 4)},
    }


def record(step, names=NAMES, stat="grad", kind=None, scale=1.0, **more):
    return {
        "iter": step,
        "consumed_train_samples": step * 8,
        "stat": kind or kind_of(stat),
        "values": {name: sums(values_of(name, step, stat) * scale) for name in names},
        **more,
    }


def kind_of(stat):
    return f"{stat}_raw_moments_by_{'param' if stat in ('param', 'grad') else 'layer'}"


def write_lines(folder: Path, stat, rank, lines, mode="w"):
    """Append or write lines (records, or texts as they are) to the file of a stat and rank, and return it."""
    path = folder / kind_of(stat) / f"rank{rank}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as file:
        for line in lines:
            file.write(line if isinstance(line, str) else json.dumps(line) + "\n")
    return path


def l2(run, stat="grad", **members):
    return run.moments(stat, [], **members)[["step", "l2"]].values.tolist()


def expected(step, names=NAMES, stat="grad"):
    return [
        step,
        pytest.approx(np.linalg.norm(np.concatenate([values_of(name, step, stat) for name in names]))),
    ]


def steps_of(run, stat="grad", by=()):
    return run.moments(stat, list(by))["step"].tolist()
