"""Statistics of one step as they were measured: what rules judge and what is written to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LEAST_RANKS",
    "MEMORY",
    "MEMORY_LIMIT",
    "MEMORY_NOW",
    "MEMORY_PEAK",
    "RANK_SCALAR",
    "Readings",
    "StepReadings",
]

RANK_SCALAR = "rank_scalar"
"""The statistic of numbers that a process logged itself: their rows have count 1. Those of the run are
:attr:`StepReadings.scalars`.
"""

MEMORY = "memory"
"""The statistic of a process's memory: bytes, whose rows have count 1."""

MEMORY_NOW, MEMORY_PEAK, MEMORY_LIMIT = "memory", "memory peak", "memory limit of "
"""Its names: what is in use as the step begins, the most since the last such step, and, followed by what has
it (device, cgroup or machine), what there is in all.
"""

LEAST_RANKS = 3
"""So many ranks must report something before one of them can be the odd one."""


@dataclass(frozen=True)
class Readings:
    """What one process measured of one statistic, in the order of measuring.

    Attributes
    ----------
    stat : str
        As in the stream ``moments``, or :data:`RANK_SCALAR`; so are rank, stage, micro_batch (-1 for none),
        gradient_stage and loss_scale.
    names : sequence of str
        Canonical names. Those of activations come in the order in which their modules ran, those of their
        gradients in the order of the backward pass.
    rows : ndarray
        float64 ``[n, k]``, the columns of :data:`~megalens.protocol.MOMENT_COLUMNS`, one row a name.
    shapes, dtypes : sequence of str
        Of the local tensor, such as ``[64, 256]`` and ``bfloat16``; empty texts where they are not known.
    counted : bool
        False for a replica of values that another process counts: judged, but in no recording.
    """

    stat: str
    rank: int
    names: Sequence[str]
    rows: NDArray[np.float64]
    shapes: Sequence[str] = ()
    dtypes: Sequence[str] = ()
    stage: int = -1
    micro_batch: int = -1
    counted: bool = True
    gradient_stage: str = ""
    loss_scale: float = 1.0


@dataclass(frozen=True)
class StepReadings:
    """All readings of one step, by rank.

    Attributes
    ----------
    samples : int
        Samples consumed up to and with it; -1 where that is not known.
    scalars : mapping
        Numbers of the stream ``scalars`` of this step: loss, lr, grad_norm, …
    sample_ids : str
        Ids of the step's training samples as JSON; empty where the script did not give them.
    """

    step: int
    samples: int
    readings: Sequence[Readings]
    scalars: Mapping[str, float] = field(default_factory=dict)
    sample_ids: str = ""
