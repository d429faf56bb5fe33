"""What a script does to gradients between the last backward pass and the optimizer's step: clipping, or more.

Of a few parameters it is measured again what the optimizer takes. Which, a tensor's version counter says: it
tells in-place changes at no cost, but not those through ``.data`` or of a collective. Clipping multiplies a
tensor by a factor of at most 1, or cuts its values at a bound.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ....protocol import MOMENT_COLUMNS
from ...coordinates import to_host
from ..part import COLUMNS, TYPES
from .values import local_values

_COUNT, _MEAN, _M2, _LOW, _HIGH = (
    MOMENT_COLUMNS.index(name) for name in ("count", "mean", "m2", "min", "max")
)
NON_FINITE = slice(MOMENT_COLUMNS.index("nan_count"), MOMENT_COLUMNS.index("inf_count") + 1)
_KINDS = {dtype: torch.finfo(dtype) for dtype in TYPES}
_OF_EACH = 4
"""Parameters of each kind of change that are measured again."""
_FEWEST = 16
"""Values, if there is a parameter with as many: of one value every change is a factor."""
_WHOLE, _MOST, _EXACT = 1e-6, 64, 1e-12
"""How near to 1 / k a factor is taken for a division by k, above the rounding of float32; up to which k;
and how near for those beyond, which are powers of two then. By hand: a factor of clipping is as near once in
10,000 times.
"""

_LARGE = 2.0**15
"""Values whose norm may be infinite in half precision."""

REPLACED, CAME, WENT = "replaced", "came", "went"


Noted = tuple[weakref.ref[Tensor], int] | None
"""A gradient as it was: the tensor itself, which is not kept alive, and how often it had been written."""


class Versions:
    """The gradients of parameters as they were when they were last noted."""

    def __init__(self, given: Sequence[Callable[[], Tensor | None]]) -> None:
        self._given = given
        self._noted: list[Noted] = [None] * len(given)
        self._order: dict[int, int] = {}

    def now(self) -> list[Noted]:
        """Return the gradients as they are; called in each step, for each parameter."""
        found: list[Noted] = []
        for give in self._given:
            gradient = give()
            if gradient is not None and type(gradient) is not Tensor:
                gradient = local_values(gradient)
            found.append(None if gradient is None else (weakref.ref(gradient), gradient._version))
        return found

    def note(self) -> None:
        self._noted = self.now()

    def unchanged(self, since: Sequence[Noted]) -> bool:
        """Return whether every gradient is as it was then, as far as versions tell."""
        return all(
            before is now
            or (before is not None and now is not None and before[0]() is now[0]() and before[1] == now[1])
            for before, now in zip(since, self.now(), strict=True)
        )

    def kinds(self, of: Sequence[int]) -> dict[int | str, list[int]]:
        """Return the parameters ``of`` by kind of change since then.

        A kind is how often the tensor was written, or that it is another one.
        """
        kinds: dict[int | str, list[int]] = {}
        every = self.now()
        for at in of:
            before, now = self._noted[at], every[at]
            kind: int | str
            if now is None:
                if before is None:
                    continue
                kind = WENT
            elif before is None:
                kind = CAME
            else:
                kind = now[1] - before[1] if now[0]() is before[0]() else REPLACED
            kinds.setdefault(kind, []).append(at)
        return kinds

    def sample(self, kinds: dict[int | str, list[int]]) -> list[int]:
        """Return a few parameters of each kind: small ones, and one of the middle."""
        chosen: list[int] = []
        for several in kinds.values():
            several = sorted(several, key=self._size_of)
            chosen += dict.fromkeys(several[: _OF_EACH - 1] + several[len(several) // 2 :][:1])
        return chosen

    def _size_of(self, at: int) -> int:
        """Return the size of a gradient, very small ones last: looked at once."""
        size = self._order.get(at)
        if size is None:
            gradient = self._given[at]()
            values = None if gradient is None else local_values(gradient)
            here = 0 if values is None else values.numel()
            size = self._order[at] = here if here >= _FEWEST else sys.maxsize - here
        return size


@dataclass
class Comparison:
    """A few gradients as the backward pass left them and as the optimizer took them, to be judged.

    Attributes
    ----------
    before : list of Tensor
        Rows of some parameters, float64 ``[11]``.
    after : Tensor
        Theirs, ``[n, 11]``.
    dtypes : tuple of torch.dtype
        Types of their numbers.
    every : list of Tensor
        Rows of all gradients before, ``[m, 11]`` together.
    scale : float or Tensor
        By which the script's scaler has divided them since.
    passes : int
        Backward passes of the step.
    writes : int
        The least number of times that one of them was written in place, without the scaler's.
    found : callable, optional
        Takes in words what else than clipping happened, where :meth:`holds` finds that.
    """

    before: list[Tensor]
    after: Tensor
    dtypes: tuple[torch.dtype, ...]
    every: list[Tensor]
    scale: float | Tensor = 1.0
    passes: int = 1
    writes: int = 0
    found: Callable[[str], None] | None = None
    copied: bool = False

    @property
    def here(self) -> bool:
        """Whether nothing has to be waited for."""
        return self.after.is_cpu

    def to_host(self) -> bool:
        """Begin to copy everything to the host; return whether a device has to be waited for."""
        if self.copied:
            # It goes with several parts, the first of which has asked for the wait.
            return False
        waits = self.after.is_cuda
        self.copied = True
        self.before, self.every = [torch.stack(self.before)], [torch.cat(self.every)]
        if waits:
            self.before, self.every = [to_host(self.before[0])], [to_host(self.every[0])]
            self.after = to_host(self.after)
        if isinstance(self.scale, Tensor) and self.scale.is_cuda:
            self.scale, waits = to_host(self.scale), True
        return waits

    def holds(self) -> bool:
        """Return whether nothing but clipping happened; once the copies are there."""
        words = self.more_than_clipping()
        if words is not None and self.found is not None:
            self.found(words)
        return words is None

    def more_than_clipping(self) -> str | None:
        """Return what else than clipping happened, in words; None where nothing did. Waits for a device."""
        kinds = [_KINDS[dtype] for dtype in self.dtypes]
        # Their norm is not finite either then, nor where squares overflow: clipping by it spreads that, or
        # leaves zeros.
        most = max(_LARGE, min(kind.max for kind in kinds) ** 0.5)
        for rows in map(Tensor.numpy, self.every):
            if rows[:, NON_FINITE].any() or (abs(rows[:, [_LOW, _HIGH]]) > most).any():
                return None
        before = [row for rows in self.before for row in rows.reshape(-1, COLUMNS).tolist()]
        return change_of(before, self.after.tolist(), kinds, float(self.scale), self.passes, self.writes)


def change_of(
    before: Sequence[Sequence[float]],
    after: Sequence[Sequence[float]],
    kinds: Sequence[torch.finfo],
    scale: float = 1.0,
    passes: int = 1,
    writes: int = 0,
) -> str | None:
    """Return what happened to gradients between two rows of each, in words; None where clipping, or nothing.

    Parameters
    ----------
    before, after : sequence of sequence of float
        ``[n, 11]``, the columns of :data:`~megalens.protocol.MOMENT_COLUMNS`.
    kinds : sequence of torch.finfo
        Their types of number.
    scale, passes, writes
        As in :class:`Comparison`.
    """
    if any(any(row[NON_FINITE]) for row in after):
        return "values became NaN or infinite"
    factors, is_cut = [], False
    for old, new, kind in zip(before, after, kinds, strict=True):
        factor = _factor(old, new, kind)
        if factor is not None:
            factors += [] if math.isnan(factor) else [factor * scale]
        elif _is_cut(old, new, kind):
            is_cut = True
        else:
            return "not as clipping does, maybe by an all_reduce of the script's own"
    if not factors:
        return None
    low, high = min(factors), max(factors)
    coarse = max(kind.eps for kind in kinds)
    near = _near(coarse)
    if low == 0:
        return "some or all were set to zero"
    if high > 1 + near:
        return "multiplied by more than 1"
    if is_cut or high - low > near * high or abs(high - 1) <= near:
        return None
    whole = round(1 / high)
    off = abs(1 / (high * whole) - 1)
    # Half precision rounds every factor near 1 / k to that.
    if coarse < _WHOLE and off <= (_WHOLE if whole <= _MOST or whole == passes else _EXACT):
        return f"divided by {whole}"
    return "multiplied more than once" if writes > 1 else None


def words_of(words: str) -> str:
    """Return the warning of what happened."""
    how = f" ({words})" if words else ""
    return (
        "Between the last backward pass and the optimizer's step, more was done to gradients than clipping"
        f"{how}. So they are measured as the optimizer takes them; their gradient_stage is pre_step."
    )


def _factor(old: Sequence[float], new: Sequence[float], kind: torch.finfo) -> float | None:
    """Return by what all values were multiplied; NaN where that cannot be told, None where by no factor."""
    size, now = (max(abs(row[_LOW]), abs(row[_HIGH])) if row[_COUNT] else 0.0 for row in (old, new))
    if old[_COUNT] != new[_COUNT] or (not size and now):
        return None
    # What is that small is rounded to whole multiples of the least number, 0 among them.
    least = kind.smallest_normal * kind.eps
    if not size or (not now and size < 1e5 * least):
        return math.nan
    factor = math.sqrt(_square(new) / _square(old))
    slack = _near(kind.eps) * factor * size + 4 * least
    fits = all(abs(new[column] - factor * old[column]) <= slack for column in (_MEAN, _LOW, _HIGH))
    return factor if fits else None


def _is_cut(old: Sequence[float], new: Sequence[float], kind: torch.finfo) -> bool:
    """Return whether values may have been cut at a bound, above it and below its negative."""
    bound = max(abs(new[_LOW]), abs(new[_HIGH]))
    near = _near(kind.eps)
    return bool(
        old[_COUNT] == new[_COUNT]
        and bound
        and _square(new) <= _square(old) * (1 + near)
        and all(abs(new[at] - min(max(old[at], -bound), bound)) <= near * bound for at in (_LOW, _HIGH))
    )


def _near(eps: float) -> float:
    """Return how far figures of rounded values may be off, as a part of them."""
    return max(1e-5, 1.5 * eps)


def _square(row: Sequence[float]) -> float:
    """Return the sum of the squares."""
    return row[_M2] + row[_COUNT] * row[_MEAN] ** 2
