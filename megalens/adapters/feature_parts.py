"""Cuts a tensor into parts by which of its features belong to each."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

_SHOWN = 4


@dataclass(frozen=True)
class Shares:
    """Cuts ``[..., (a share of each part) x groups]``; a share is a size where no number of groups is given.

    The parts of several groups are views, ``[..., groups, features of a group]``.
    """

    shares: tuple[int, ...]
    groups: int | None = None

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        width = data.shape[-1]
        groups = self.groups or width // sum(self.shares)
        unit, rest = divmod(width, groups * sum(self.shares))
        if rest or not groups:
            raise ValueError(f"{width} features cannot be cut into {groups} times {self.shares}")
        grouped = data if self.groups == 1 else torch.unflatten(data, -1, (groups, -1))
        return torch.split(grouped, [unit * share for share in self.shares], dim=-1)


HALVES = Shares((1, 1), 1)


@dataclass(frozen=True)
class FeatureParts:
    """Features of each part, by their numbers in the tensor, in the order in which the part has them."""

    indices: tuple[tuple[int, ...], ...]

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        """Return the parts; those that lie evenly as views, ``[..., groups, features]`` of groups."""
        return [self._part(data, number) for number in range(len(self.indices))]

    def _part(self, data: Tensor, number: int) -> Tensor:
        even = self._even[number]
        if even is None:
            return data.index_select(-1, torch.tensor(self.indices[number], device=data.device))
        start, groups, apart, width = even
        if groups == 1:
            return data.narrow(-1, start, width)
        sizes, strides = data.shape[:-1], data.stride()[:-1]
        step = data.stride(-1)
        offset = data.storage_offset() + start * step
        return data.as_strided((*sizes, groups, width), (*strides, apart * step, step), offset)

    @cached_property
    def _even(self) -> list[tuple[int, int, int, int] | None]:
        return [evenly(part) for part in self.indices]

    def __str__(self) -> str:
        return "; ".join(ranges(part) for part in self.indices)


def evenly(part: Sequence[int]) -> tuple[int, int, int, int] | None:
    """Return start, groups, distance and width of runs that lie evenly apart; None where they do not."""
    runs = _runs(part)
    starts, widths = [start for start, _ in runs], {width for _, width in runs}
    apart = {b - a for a, b in itertools.pairwise(starts)}
    if len(widths) != 1 or len(apart) > 1:
        return None
    (width,) = widths
    distance = apart.pop() if apart else width
    if (width == 1 and len(runs) > 1) or distance < 0:
        return None
    return starts[0], len(runs), distance, width


def ranges(part: Sequence[int]) -> str:
    """Return the numbers in words, such as ``0–31, 96–127``."""
    runs = _runs(part)
    texts = [str(start) if width == 1 else f"{start}–{start + width - 1}" for start, width in runs[:_SHOWN]]
    return ", ".join(texts) + (", …" if len(runs) > _SHOWN else "")


def _runs(part: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in part:
        if runs and number == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((number, 1))
    return runs
