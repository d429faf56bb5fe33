"""Tensor metrics of Megatron-LM in TensorBoard files: norms of layers as rows of the stream ``moments``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..protocol import MOMENT_COLUMNS, stream_schema

__all__ = ["norm_tables"]

_TAG = re.compile(r"tensor-metrics/([a-z0-9-]+)/((?:[^./]+\.)*layers\.\d{1,9})")
_NORMS = {
    # Taken right before the optimizer's step.
    "layer-param-l2": ("param_origin", ""),
    "layer-wgrad-l2": ("grad", ""),
    "layer-residual-accumulator-l2": ("residual", "/input0"),
    "layer-residual-contribution-l2": ("residual", "/residual_contribution"),
    "layer-router-logits-l2": ("activation", ".mlp.router/router_logits"),
}
"""By metric: statistic here, and what follows the layer in the name."""


def norm_tables(
    names: Sequence[str],
    step: NDArray[np.int64],
    rank: NDArray[np.int32],
    name: NDArray[np.int32],
    value: NDArray[np.float64],
) -> Iterator[pa.Table]:
    """Yield the norms of layers among numbers that are ordered by step; ``name`` are indices in ``names``.

    A norm is the size of all values: M2 of a mean that is not known. Their number is not written, and is 1
    here, so that nothing that is divided by it means anything.
    """
    known = {}
    for number, tag in enumerate(names):
        found = _TAG.fullmatch(tag)
        if found and (what := _NORMS.get(found[1])):
            known[number] = (what[0], f"{found[2]}{what[1]}")
    at = np.flatnonzero(np.isin(name, list(known)))
    if not len(at):
        return
    stats, tensors = zip(*(known[each] for each in name[at].tolist()), strict=True)
    n, norm = len(at), value[at]
    finite = np.isfinite(norm)
    zero, unknown = np.zeros(n), np.full(n, np.nan)
    moments = dict.fromkeys(MOMENT_COLUMNS, unknown) | {
        "count": np.ones(n),
        "m2": np.where(finite, norm * norm, np.nan),
        "nan_count": np.isnan(norm).astype(np.float64),
        "inf_count": np.isinf(norm).astype(np.float64),
        "negative_inf_count": zero,
    }
    gradient = np.array([stat == "grad" for stat in stats])
    columns = {
        **{column: pa.array(each) for column, each in moments.items()},
        "step": pa.array(step[at]),
        "samples": pa.array(np.full(n, -1, np.int64)),
        "stat": pa.array(stats),
        "name": pa.array(tensors),
        "rank": pa.array(rank[at]),
        "stage": pa.array(np.full(n, -1, np.int32)),
        "rounding": pa.array(zero),
        # Not clipped, and a loss scale may still be in them.
        "gradient_stage": pa.array(np.where(gradient, "pre_clip", "").tolist()),
        "loss_scale": pa.array(np.where(gradient, np.nan, 1.0)),
    }
    schema = stream_schema("moments")
    yield pa.table({field.name: columns[field.name].cast(field.type) for field in schema}, schema=schema)
