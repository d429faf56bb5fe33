"""Rows of moments as a test says them, and what is asked of them."""

import numpy as np
import pyarrow as pa
from held_rows import HeldRows
from recorded_moments import moments_of, row_of

from megalens.protocol import stream_schema
from megalens.runs.moments import MomentQuery, MomentSource


def row(name, step=1, stat="grad", **more):
    values = np.random.default_rng(abs(hash((name, step, stat))) % 2**32).normal(size=4)
    said = {"samples": step * 8, "gradient_stage": "", **moments_of(values)}
    return row_of(stat, name, step, **said | more)


def source(rows):
    held = HeldRows()
    held.append(pa.Table.from_pylist(rows, schema=stream_schema("moments")))
    return MomentSource(held)


def ask(rows, stat="grad", **members):
    return source(rows).groups(MomentQuery.of_request(stat, **members))


def values(groups, *labels):
    return [tuple(entry.values()) for entry in groups.table.select([*labels, "step", "value"]).to_pylist()]


def model(steps=3, layers=(0, 2, 10), stat="activation"):
    return [
        row(f"decoder.layers.{layer}.{module}/{role}0", step, stat, stage=layer % 2, rank=layer % 2)
        for step in range(1, steps + 1)
        for layer in layers
        for module in ("mlp.linear_fc1", "attention.linear_proj")
        for role in ("input", "output")
    ]


def spiky(steps, groups=2):
    rows = []
    for group in range(groups):
        for step in range(1, steps + 1):
            size = 100.0 if step == 77 + group else 0.01 if step == 501 else 1.0 + group + step / 1e6
            rows.append(row(f"layers.{group}.w", step, mean=size, m2=0.0, m3=0.0, m4=0.0))
    return rows
