"""Statistics on their way from one process of a job to rank 0."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....protocol import MOMENT_COLUMNS
from .names import NameList
from .part import Figures

__all__ = ["pack", "unpack"]

_COLUMNS = len(MOMENT_COLUMNS)


def pack(
    step: int, samples: int, figures: Sequence[Figures], names: NameList, told: int, noted: int = 0
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return a description and arrays: names that rank 0 has not been told yet, then ids and rows of each statistic.

    Parameters
    ----------
    step, samples : int
        As in the stream.
    figures : sequence of Figures
        What there is; none is said too, so that nobody waits.
    names : NameList
        The process's names.
    told, noted : int
        How many of them, and of their types of number, rank 0 knows.
    """
    new = json.dumps(names.since(told)).encode()
    meta: dict[str, Any] = {
        "step": step,
        "samples": samples,
        "stage": names.stage,
        "first": told,
        "names": len(new),
        "dtypes": names.noted(noted),
        "parts": [
            {
                "stat": part.stat,
                "rows": len(part.ids),
                "gradient_stage": part.gradient_stage,
                "loss_scale": part.loss_scale if math.isfinite(part.loss_scale) else None,
                "counted": part.counted,
                "micro_batch": part.micro_batch,
            }
            for part in figures
        ],
    }
    arrays: list[np.ndarray] = [np.frombuffer(new, np.uint8)]
    for part in figures:
        arrays += [part.ids, part.rows]
    return meta, arrays


def unpack(meta: Mapping[str, Any], payload: memoryview) -> tuple[list[str], list[Figures]]:
    """Return the new names and the statistics of a message.

    Raises
    ------
    ValueError, KeyError, TypeError
        When it cannot be read.
    """
    at = int(meta["names"])
    names = json.loads(bytes(payload[:at]))
    figures = []
    for part in meta["parts"]:
        n = int(part["rows"])
        ids = np.frombuffer(payload, np.int32, n, at).copy()
        at += 4 * n
        rows = np.frombuffer(payload, np.float64, _COLUMNS * n, at).reshape(n, _COLUMNS).copy()
        at += 8 * _COLUMNS * n
        scale = math.nan if part["loss_scale"] is None else float(part["loss_scale"])
        said = str(part["gradient_stage"]), scale, bool(part["counted"]), int(part["micro_batch"])
        figures.append(Figures(str(part["stat"]), ids, rows, *said))
    if at != len(payload) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{len(payload)} bytes came, and {at} were announced")
    return names, figures
