"""Where in the computation of a step something was measured."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol import RANK_SCALAR
from ...protocol.anomaly import MODULE_END

__all__ = ["DIRECTIONS", "direction_of", "module_order", "places"]

DIRECTIONS = {
    "param_origin": "parameters",
    "stable_rank": "parameters",
    "kernel_norm": "parameters",
    "dgrad": "backward",
    "residual_dgrad": "backward",
    "grad_accumulated": "backward",
    "grad_unreduced": "reduction",
    "grad": "reduction",
    "communication": "reduction",
    "exp_avg": "optimizer",
    "exp_avg_sq": "optimizer",
    "gradient_direction": "optimizer",
    "param": "update",
}
"""By statistic the part of the step in which it comes about; what is not named is of the forward pass."""

# Of each part: whether it comes before, in or after the micro-batches; its place among those of its kind; and whether it runs from the last layer to the first.
_PARTS = {
    "parameters": (0, 0, False),
    "forward": (1, 0, False),
    "loss": (1, 1, False),
    "backward": (1, 2, True),
    "reduction": (2, 0, True),
    "optimizer": (3, 0, False),
    "update": (4, 0, False),
}
# A gradient is there before it is reduced, and that of a module's inside before that of a parameter.
_LATER_IN_PART = {"grad": 1, "grad_accumulated": 1}
_MICRO_BATCH_BITS, _PART_BITS, _LATER_BITS, _STAGE_BITS, _INDEX_BITS, _RANK_BITS = 10, 2, 1, 8, 17, 12
_EMBEDDING = re.compile(r"embed|\bw[tp]e\b", re.IGNORECASE)


def direction_of(stat: str, name: str = "") -> str:
    """Return the part of the step in which a statistic comes about, as in the stream ``alarms``."""
    if stat in ("scalar", RANK_SCALAR):
        return "loss" if "loss" in name.lower() else "optimizer"
    return DIRECTIONS.get(stat, "forward")


def module_order(by_stat: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return the place of each tensor of one process in the order of a forward pass.

    Parameters
    ----------
    by_stat : mapping
        By statistic the names as they were measured: those of activations in the order in which modules ran, those of their gradients in that of the backward pass.
    """
    ran = list(by_stat.get("activation") or reversed(by_stat.get("dgrad", ())))
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for at, name in enumerate(ran):
        path = ""
        for part in MODULE_END.sub("", name).split("."):
            path = f"{path}.{part}" if path else part
            first.setdefault(path, at)
            last[path] = at
    order: dict[str, float] = {name: float(at) for at, name in enumerate(ran)}
    rest = dict.fromkeys(name for names in by_stat.values() for name in names if name not in order)
    before = -1.0
    for name in rest:
        path = MODULE_END.sub("", name)
        while path not in first and "." in path:
            path = path.rpartition(".")[0]
        ends = "/output" in name
        if path in first:
            before = last[path] + 0.5 if ends else first[path] - 0.25
        # What no module tells the place of comes after what it was listed after; embeddings first.
        order[name] = -1.0 if _EMBEDDING.search(name) else before
    given = {name: at for at, name in enumerate(order)}
    ranked = sorted(order, key=lambda name: (order[name], not _EMBEDDING.search(name), given[name]))
    return {name: float(at) for at, name in enumerate(ranked)}


def places(
    stats: Sequence[str],
    names: Sequence[str],
    ranks: NDArray[np.integer],
    stages: NDArray[np.integer],
    micro_batches: NDArray[np.integer],
    index: NDArray[np.floating],
) -> NDArray[np.int64]:
    """Return the column ``place`` of rows: a number below 2**53 that rises with the order in which the computation of a step runs.

    Of what comes at the same place on several ranks that of the lowest comes first.

    Parameters
    ----------
    stats, names : sequence of str
        Of each row.
    ranks, stages, micro_batches : ndarray
        Of each row, -1 where it is none.
    index : ndarray
        Place of its tensor in the order of the forward pass, as :func:`module_order` gives it.
    """
    directions = [direction_of(stat, name) for stat, name in zip(stats, names, strict=True)]
    phase, part, back = (np.array([_PARTS[each][at] for each in directions], np.int64) for at in range(3))
    later = np.array([_LATER_IN_PART.get(stat, 0) for stat in stats], np.int64)
    stage = _clipped(stages, _STAGE_BITS)
    order = _clipped(index, _INDEX_BITS)
    top_stage, top_index = (1 << _STAGE_BITS) - 1, (1 << _INDEX_BITS) - 1
    stage = np.where(back == 1, top_stage - stage, stage)
    order = np.where(back == 1, top_index - order, order)
    # Of the whole step: before the second micro-batch.
    micro_batch = np.where(phase == 1, _clipped(micro_batches, _MICRO_BATCH_BITS), 0)
    place: NDArray[np.int64] = phase
    for bits, field in (
        (_MICRO_BATCH_BITS, micro_batch),
        (_PART_BITS, part),
        (_LATER_BITS, later),
        (_STAGE_BITS, stage),
        (_INDEX_BITS, order),
        (_RANK_BITS, _clipped(ranks, _RANK_BITS)),
    ):
        place = (place << bits) | field
    return place


def _clipped(values: NDArray[Any], bits: int) -> NDArray[np.int64]:
    clipped: NDArray[np.int64] = np.clip(values, 0, (1 << bits) - 1).astype(np.int64)
    return clipped
