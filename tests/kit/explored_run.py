"""A recorded run with statistics in it: small tensors of which every value is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from recorded_run import moment_row, write, write_run

SPIKE_STEP, SPIKE = 25, "decoder.layers.2.mlp.linear_fc1.weight"
BAD_STEP, BAD = 30, "decoder.layers.1.mlp.linear_fc1.weight"
LAYERS = 4


def names_of(stat: str) -> list[str]:
    """The tensors of one stat, in the order of the model."""
    if stat in ("param", "grad"):
        inner = [
            f"decoder.layers.{layer}.{part}"
            for layer in range(LAYERS)
            for part in ("self_attention.linear_qkv.weight", "mlp.linear_fc1.weight")
        ]
        return ["embedding.word_embeddings.weight", *inner]
    if stat == "residual":
        return ["decoder/input0", *(f"decoder.layers.{layer}/output0" for layer in range(LAYERS))]
    return [
        f"decoder.layers.{layer}.mlp.linear_fc1/{end}"
        for layer in range(LAYERS)
        for end in ("input0", "output0")
    ]


def values_of_tensor(stat: str, name: str, step: int) -> np.ndarray:
    """The finite values of one tensor at one step, [40] float64."""
    place = names_of(stat).index(name)
    rng = np.random.default_rng((sum(map(ord, stat)), place, step))
    heavy = rng.standard_t(4, 40) if stat == "residual" else rng.normal(0, 1, 40)
    values = heavy * (1 + 0.3 * place) * (1 + step / 80)
    return values * 60 if (stat, name, step) == ("grad", SPIKE, SPIKE_STEP) else values


def row_of(stat: str, name: str, step: int, values: np.ndarray, *, nan: int = 0, **more) -> dict:
    """One row of the stream ``moments``: those of some values."""
    from_mean = values - values.mean()
    found = {
        **{"count": float(len(values)), "mean": values.mean(), "min": values.min(), "max": values.max()},
        **{f"m{power}": (from_mean**power).sum() for power in (2, 3, 4)},
        **{"nan_count": float(nan), "near_zero_count": float((np.abs(values) < 1e-8).sum())},
    }
    return moment_row(step, stat, name, **(found | more))


def write_explored_run(
    folder: Path,
    *,
    steps: int = 40,
    stats=("param", "grad", "activation", "residual"),
    every: int = 1,
    **header,
) -> Path:
    """Write a run folder with tensors, scalars and moments in it, and return it."""
    write_run(folder, statistics=dict.fromkeys(stats, every), **header)
    rows = [
        row_of(
            stat,
            name,
            step,
            values_of_tensor(stat, name, step),
            nan=2 if (stat, name, step) == ("grad", BAD, BAD_STEP) else 0,
        )
        for step in range(every, steps + 1, every)
        for stat in stats
        for name in names_of(stat)
    ]
    write(folder, "moments", rows)
    return folder
