"""What one process measured of one step, and the names that its rows refer to by number.

The columns of a measured row, and the memory layout of a tensor's values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...protocol import MOMENT_COLUMNS, MOMENT_POWERS, Readings, merge_moments
from ..coordinates import to_host

COLUMNS = len(MOMENT_COLUMNS)
"""Figures of a row, in the order of :data:`megalens.protocol.MOMENT_COLUMNS`."""

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""Types of number that can be measured; the native kernel and the GPU's know them by their index here."""

NEAR_ZERO = 1e-8
"""Values whose size is below it count as near zero, where nobody says another."""


def layout_of(tensor: Tensor) -> tuple[int, int, int] | None:
    """Return rows, contiguous values in a row, and the distance between rows, where order does not matter.

    A dense tensor is one row, also when its axes are permuted; a cut along one axis is several. None for
    any other layout.
    """
    if tensor.is_contiguous():
        return 1, tensor.numel(), 0
    merged: list[tuple[int, int]] = []
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True), reverse=True):
        if size == 1:
            continue
        if merged and merged[-1][0] == stride * size:
            merged[-1] = (stride, merged[-1][1] * size)
        else:
            merged.append((stride, size))
    if merged[-1][0] != 1:
        merged.append((1, 1))
    if len(merged) == 1:
        return 1, merged[0][1], 0
    if len(merged) == 2:
        return merged[0][1], merged[1][1], merged[0][0]
    return None


def rows_of(tensor: Tensor) -> tuple[int, int, int, int] | None:
    """Return groups, their distance, rows in each, and their distance, of ``[..., features]`` in order.

    None where a row is not contiguous, or for any other layout.
    """
    features = tensor.shape[-1]
    if tensor.is_contiguous():
        return 1, 0, tensor.numel() // features if features else 0, features
    merged: list[tuple[int, int]] = []
    for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    if tensor.stride(-1) != 1 or len(merged) > 2:
        return None
    (outer, apart), (rows, step) = [(1, 0)] * (2 - len(merged)) + merged
    return outer, apart, rows, step


Scale = float | Tensor
"""Loss scale: a number, or a tensor of one element on the device that knows it."""


class NameList:
    """Names in the order in which they came; they are only ever added. ``stage`` is -1 without a pipeline."""

    def __init__(self, stage: int = -1) -> None:
        self.stage = stage
        self._index: dict[str, int] = {}
        self._names: list[str] = []
        self._dtypes: dict[int, str] = {}
        self._noted: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._names)

    def index(self, name: str) -> int:
        """Return the index of a name, which is added where it is new."""
        at = self._index.get(name)
        if at is None:
            at = self._index[name] = len(self._names)
            self._names.append(name)
        return at

    def __getitem__(self, at: int) -> str:
        return self._names[at]

    def note(self, at: int, dtype: str) -> None:
        """Note the type of number of a tensor; called at every measurement, and seldom new."""
        if self._dtypes.get(at) != dtype:
            self._dtypes[at] = dtype
            self._noted.append((at, dtype))

    def noted(self, first: int = 0) -> list[tuple[int, str]]:
        """Return the entries from ``first`` on: indices, and types such as ``bfloat16``."""
        return self._noted[first:]

    def readings(self, figures: Figures, rank: int) -> Readings:
        """Return what this process measured of one statistic, with its names."""
        ids = figures.ids.tolist()
        return Readings(
            *(figures.stat, rank, tuple(self._names[at] for at in ids), figures.rows),
            dtypes=tuple(self._dtypes.get(at, "") for at in ids),
            stage=self.stage,
            micro_batch=figures.micro_batch,
            counted=figures.counted,
            gradient_stage=figures.gradient_stage,
            loss_scale=figures.loss_scale,
        )

    def since(self, first: int) -> list[str]:
        return self._names[first:]


@dataclass(frozen=True)
class Figures:
    """Merged moments of one process.

    Attributes
    ----------
    ids : ndarray
        int32 ``[n]``, indices in the process's list of names, each once.
    rows : ndarray
        float64 ``[n, k]``, the columns of :data:`~megalens.protocol.MOMENT_COLUMNS`.
    counted : bool
        False for what is judged and enters nothing else, such as replicas of values that another process
        counts.
    micro_batch : int
        After which micro-batch it was measured; -1: of the complete step.
    """

    stat: str
    ids: NDArray[np.int32]
    rows: NDArray[np.float64]
    gradient_stage: str = ""
    loss_scale: float = 1.0
    counted: bool = True
    micro_batch: int = -1


class IProof(Protocol):
    """What says, once a device is done, whether rows are what they are said to be."""

    def to_host(self) -> bool: ...

    def holds(self) -> bool: ...


@dataclass
class MeasuredRows:
    """Rows of one statistic as they were measured; a name may come several times.

    Attributes
    ----------
    ids : list of int
        Index of each row in the process's list of names.
    rows : list of Tensor
        Rows of :func:`~megalens.tracer.moments.measure` each, on the device.
    divide : bool
        Whether the scale is still in the values.
    refused : Tensor, optional
        Not 0 when the step was skipped, and these rows with it.
    proof : IProof, optional
        Without which the rows are dropped.
    """

    stat: str
    ids: list[int] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    gradient_stage: str = ""
    scale: Scale = 1.0
    divide: bool = False
    refused: Tensor | None = None
    counted: bool = True
    micro_batch: int = -1
    proof: IProof | None = None

    def add(self, ids: Sequence[int], rows: Tensor) -> None:
        self.ids += ids
        self.rows.append(rows)

    def leave_out(self, ids: Collection[int]) -> None:
        """Drop the rows of some names, where each row was added by itself."""
        kept = [(at, row) for at, row in zip(self.ids, self.rows, strict=True) if at not in ids]
        self.ids, self.rows = [at for at, _ in kept], [row for _, row in kept]

    def to_host(self) -> bool:
        """Begin to copy everything to the host; return whether a device has to be waited for."""
        waits = False
        if self.rows:
            devices = {rows.device for rows in self.rows}
            if len(devices) > 1:
                # Models spread over devices by hand: rare, and the rows are few. Copies, as below.
                copies = [to_host(rows) if rows.is_cuda else rows.clone() for rows in self.rows]
                self.rows, waits = copies, True
            else:
                # A copy in any case: whoever measured may write the next step's rows where these are.
                rows = torch.cat(self.rows)
                waits = rows.is_cuda
                self.rows = [to_host(rows) if waits else rows]
        if isinstance(self.scale, Tensor) and self.scale.is_cuda:
            self.scale, waits = to_host(self.scale), True
        if self.refused is not None and self.refused.is_cuda:
            self.refused, waits = to_host(self.refused), True
        if self.proof is not None and self.proof.to_host():
            waits = True
        return waits

    def figures(self) -> Figures | None:
        """Return the merged moments of rows on the host; None where the step was skipped or has none."""
        if not self.rows or (self.refused is not None and float(self.refused)):
            return None
        if self.proof is not None and not self.proof.holds():
            return None
        arrays = [(rows if rows.is_cpu else rows.cpu()).numpy() for rows in self.rows]
        rows = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
        ids, once = _array(tuple(self.ids))
        scale = float(self.scale)
        if not once:
            known, where = np.unique(ids, return_inverse=True)
            columns = {name: rows[:, at] for at, name in enumerate(MOMENT_COLUMNS)}
            merged = merge_moments(columns, where, len(known))
            rows, ids = np.stack([merged[name] for name in MOMENT_COLUMNS], axis=1), known
        if self.divide and math.isfinite(scale) and scale > 0 and scale != 1:
            rows = rows / scale**MOMENT_POWERS
            # Which of them are near zero without the scale nobody counted.
            rows[:, MOMENT_COLUMNS.index("near_zero_count")] = math.nan
        return Figures(self.stat, ids, rows, self.gradient_stage, scale, self.counted, self.micro_batch)


@lru_cache(maxsize=64)
def _array(ids: tuple[int, ...]) -> tuple[NDArray[np.int32], bool]:
    """Return ids as an array, and whether each is there once; cached, as steps repeat them."""
    array = np.array(ids, np.int32)
    array.flags.writeable = False
    return array, len(set(ids)) == len(ids)


@dataclass
class MeasuredStep:
    """All that one process has of one step.

    Attributes
    ----------
    samples : int
        Samples consumed up to and with it; -1 where unknown.
    ready : Any
        A device event after which the copies are complete; None where nothing has to be waited for.
    """

    step: int
    samples: int
    parts: list[MeasuredRows]
    ready: Any = None

    @classmethod
    def leaving(cls, step: int, samples: int, parts: list[MeasuredRows]) -> MeasuredStep:
        """Return what leaves the training thread; copies to the host are under way."""
        waits = [part.to_host() for part in parts]
        ready = None
        if any(waits):
            ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record()
        return cls(step, samples, parts, ready)

    def figures(self) -> list[Figures]:
        """Wait for the copies and return what there is; in the producer thread."""
        if self.ready is not None:
            self.ready.synchronize()
        return [found for part in self.parts if (found := part.figures()) is not None]
