"""What a script does to gradients between the last backward pass and the optimizer's step: clipping, or more.

Of a few parameters it is measured again what the optimizer takes. Which, a tensor's version counter says: it
tells in-place changes at no cost, but not those through ``.data`` or of a collective. Clipping multiplies a
tensor by a factor of at most 1, or cuts its values at a bound.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ....protocol import MOMENT_COLUMNS
from ...coordinates import to_host
from .values import local_values

_COUNT, _MEAN, _M2, _LOW, _HIGH = (
    MOMENT_COLUMNS.index(name) for name in ("count", "mean", "m2", "min", "max")
)
_NON_FINITE = MOMENT_COLUMNS.index("nan_count"), MOMENT_COLUMNS.index("inf_count")
_OF_EACH = 4
"""Parameters of each kind of change that are measured again."""
_FEWEST = 16
"""Values, if there is a parameter with as many: of one value every change is a factor."""
_WHOLE, _MOST, _EXACT = 1e-6, 64, 1e-12
"""How near to 1 / k a factor is taken for a division by k, above the rounding of float32; up to which k;
and how near for those beyond, which are powers of two then. By hand: a factor of clipping is as near once in
10,000 times.
"""

REPLACED, CAME, WENT = "replaced", "came", "went"


@dataclass(frozen=True)
class GradientVersion:
    """A gradient as it was: the tensor itself, which is not kept alive, and its version."""

    tensor: weakref.ref[Tensor]
    version: int

    @classmethod
    def of(cls, gradient: Tensor | None) -> GradientVersion | None:
        values = None if gradient is None else local_values(gradient)
        if values is None:
            return None
        whole: Tensor = values if values._base is None else values._base
        return cls(weakref.ref(whole), values._version)

    def since(self, before: GradientVersion | None) -> int | str:
        """Return how often it was written since then, or that it is another tensor."""
        if before is None:
            return CAME
        here = self.tensor()
        return self.version - before.version if here is not None and here is before.tensor() else REPLACED


class Versions:
    """The gradients of parameters as they were when they were last noted."""

    def __init__(self, given: Sequence[Callable[[], Tensor | None]]) -> None:
        self._given = given
        self._noted: list[GradientVersion | None] = [None] * len(given)

    def tokens(self) -> list[GradientVersion | None]:
        return [GradientVersion.of(give()) for give in self._given]

    def note(self) -> None:
        self._noted = self.tokens()

    def unchanged(self, since: Sequence[GradientVersion | None]) -> bool:
        """Return whether every gradient is as it was then."""
        return all(
            (before is None) if now is None else now.since(before) == 0
            for before, now in zip(since, self.tokens(), strict=True)
        )

    def kinds(self, of: Collection[int]) -> dict[int | str, list[int]]:
        """Return by kind of change since then the parameters ``of``, as indices."""
        kinds: dict[int | str, list[int]] = {}
        for at in of:
            before, now = self._noted[at], GradientVersion.of(self._given[at]())
            if now is not None:
                kinds.setdefault(now.since(before), []).append(at)
            elif before is not None:
                kinds.setdefault(WENT, []).append(at)
        return kinds

    def sample(self, kinds: dict[int | str, list[int]]) -> list[int]:
        """Return a few parameters of each kind: small ones, and one of the middle."""
        chosen: list[int] = []
        for several in kinds.values():
            sizes = {at: _values(self._given[at]()) for at in several}
            several = sorted(
                (at for at in several if sizes[at]), key=lambda at: (sizes[at] < _FEWEST, sizes[at])
            )
            chosen += dict.fromkeys(several[: _OF_EACH - 1] + several[len(several) // 2 :][:1])
        return chosen


def _values(gradient: Tensor | None) -> int:
    here = None if gradient is None else local_values(gradient)
    return 0 if here is None else here.numel()


@dataclass
class Comparison:
    """A few gradients as the backward pass left them and as the optimizer took them, to be judged.

    Attributes
    ----------
    before, after : Tensor
        Rows of the same parameters, float64 ``[n, 11]``.
    dtypes : tuple of torch.dtype
        Types of their numbers.
    not_finite : Tensor
        How many values of all gradients were not finite before, ``[]``.
    scale : float or Tensor
        By which the script's scaler has divided them since.
    passes : int
        Backward passes of the step.
    writes : int
        The least number of times that one of them was written in place, without the scaler's.
    found : callable, optional
        Takes in words what else than clipping happened, where :meth:`holds` finds that.
    """

    before: Tensor
    after: Tensor
    dtypes: tuple[torch.dtype, ...]
    not_finite: Tensor
    scale: float | Tensor = 1.0
    passes: int = 1
    writes: int = 0
    found: Callable[[str], None] | None = None

    def to_host(self) -> bool:
        """Begin to copy everything to the host; return whether a device has to be waited for."""
        if self.after.is_cpu:
            return False
        self.before, self.after, self.not_finite = map(to_host, (self.before, self.after, self.not_finite))
        if isinstance(self.scale, Tensor):
            self.scale = to_host(self.scale)
        return True

    def holds(self) -> bool:
        """Return whether nothing but clipping happened; once the copies are there."""
        words = self.more_than_clipping()
        if words is not None and self.found is not None:
            self.found(words)
        return words is None

    def more_than_clipping(self) -> str | None:
        """Return what else than clipping happened, in words; None where nothing did. Waits for a device."""
        if float(self.not_finite):
            # Their norm is not finite either, and clipping by it spreads that.
            return None
        before, after = self.before.cpu().numpy(), self.after.cpu().numpy()
        eps = [torch.finfo(dtype).eps for dtype in self.dtypes]
        return change_of(before, after, eps, float(self.scale), self.passes, self.writes)


def change_of(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    eps: Sequence[float],
    scale: float = 1.0,
    passes: int = 1,
    writes: int = 0,
) -> str | None:
    """Return what happened to gradients between two rows of each, in words; None where clipping, or nothing.

    Parameters
    ----------
    before, after : ndarray
        float64 ``[n, 11]``, the columns of :data:`~megalens.protocol.MOMENT_COLUMNS`.
    eps : sequence of float
        Relative rounding of their types of number.
    scale, passes, writes
        As in :class:`Comparison`.
    """
    if after[:, _NON_FINITE].any():
        return "values became NaN or infinite"
    factors = []
    for old, new, rounding in zip(before, after, eps, strict=True):
        near = max(1e-5, 4 * rounding)
        factor = _factor(old, new, near)
        if factor is None and not _is_cut(old, new, near):
            return "not as clipping does, maybe by an all_reduce of the script's own"
        if factor is not None and not math.isnan(factor):
            factors.append(factor * scale)
    if not factors:
        return None
    low, high = min(factors), max(factors)
    rounding = max(1e-5, 4 * max(eps))
    if low == 0:
        return "some or all were set to zero"
    if high > 1 + rounding:
        return "multiplied by more than 1"
    if len(factors) < len(before) or high - low > rounding * high or abs(high - 1) <= rounding:
        return None
    whole = round(1 / high)
    off = abs(1 / (high * whole) - 1)
    if off <= (rounding if whole == passes else _WHOLE if whole <= _MOST and rounding < 1e-4 else _EXACT):
        return f"divided by {whole}"
    return "multiplied more than once" if writes > 1 else None


def words_of(words: str) -> str:
    """Return the warning of what happened."""
    how = f" ({words})" if words else ""
    return (
        "Between the last backward pass and the optimizer's step, more was done to gradients than clipping"
        f"{how}. So they are measured as the optimizer takes them; their gradient_stage is pre_step."
    )


def _factor(old: NDArray[np.float64], new: NDArray[np.float64], near: float) -> float | None:
    """Return by what all values were multiplied; NaN where they are 0 as before, None where by no factor."""
    size, now = (max(abs(row[_LOW]), abs(row[_HIGH])) if row[_COUNT] else 0.0 for row in (old, new))
    if old[_COUNT] != new[_COUNT] or (not size and now):
        return None
    if not size:
        return math.nan
    factor = math.sqrt(_square(new) / _square(old))
    return (
        factor
        if all(
            abs(new[column] - factor * old[column]) <= near * factor * size + 1e-30
            for column in (_MEAN, _LOW, _HIGH)
        )
        else None
    )


def _is_cut(old: NDArray[np.float64], new: NDArray[np.float64], near: float) -> bool:
    """Return whether values may have been cut at a bound, above it and below its negative."""
    bound = max(abs(new[_LOW]), abs(new[_HIGH]))
    ends = max(old[_LOW], -bound), min(old[_HIGH], bound)
    return bool(
        old[_COUNT] == new[_COUNT]
        and bound
        and _square(new) <= _square(old) * (1 + near)
        and all(abs(new[at] - end) <= near * bound for at, end in zip((_LOW, _HIGH), ends, strict=True))
    )


def _square(row: NDArray[np.float64]) -> float:
    """Return the sum of the squares."""
    return float(row[_M2] + row[_COUNT] * row[_MEAN] ** 2)
