"""What to select from a stream, checked once and understood by memory, Arrow files and Parquet alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..protocol import LAST_STEP, PASSES, PHASES, Ranges, in_ranges, read_ranges, read_steps
from . import arrow_compute as pc
from .errors import as_int, bad_argument, chosen_ranges

LayerChoice = int | str | Iterable[int] | None
StepChoice = int | slice | str | Iterable[int] | None


_Z = 1.959963984540054
_FEW = (12.706204736174698, 4.302652729749462, 3.182446305284263, 2.776445105197793, 2.570581835636314)


# Which values of a traced tensor enter a statistic, and how far their means are apart: the twin of
# ``src/aggregate/group.ts``.
@dataclass(frozen=True)
class Selection:
    """Which values of a traced tensor enter a statistic, and how their spread is measured.

    Attributes
    ----------
    axes : sequence of str
        Axis names of one sample from ``hello``, such as ``["position", "feature"]``.
    positions : str
        ``all`` or ranges such as ``0-15,31``, counted from 0.
    vector : int
        Vector of a projection, counted from 0.
    interval : str
        ``none``, ``std`` or ``ci95``.
    """

    axes: Sequence[str] = ()
    positions: str = "all"
    vector: int = 0
    interval: str = "none"

    def takes_less(self, row: Mapping[str, Any]) -> bool:
        """Whether less than all values of a row enter, or their spread is asked for."""
        layout = layout_of(row, self.axes)
        return (
            layout.vectors > 1
            or self.interval != "none"
            or (layout.has_positions and self.positions.strip() != "all")
        )


@dataclass(frozen=True)
class ValueLayout:
    """The shape of values around the position axis: blocks before it, its length, values behind it."""

    outer: int
    length: int
    inner: int
    has_positions: bool
    vectors: int


def layout_of(row: Mapping[str, Any], axes: Sequence[str]) -> ValueLayout:
    shape = [int(size) for size in row["shape"]]
    at = list(axes).index("position") + 1 if "position" in axes else 0
    has_positions = 0 < at < len(shape)
    split = at if has_positions else 1
    rest = shape[split + 1 :] if has_positions else shape[split:]
    return ValueLayout(
        outer=math.prod(shape[:split]),
        length=shape[split] if has_positions else 1,
        inner=math.prod(rest),
        has_positions=has_positions,
        vectors=(shape[-1] if shape else 1) if str(row["compressor"]).startswith("Projection") else 0,
    )


def positions_in(text: str, length: int) -> list[int]:
    """Return the positions below ``length`` that a range text names."""
    ranges = read_ranges(text, "positions")
    return [position for position in range(length) if in_ranges(position, ranges)]


def half_of(
    count: npt.NDArray[Any], deviation: npt.NDArray[np.float64], interval: str
) -> npt.NDArray[np.float64]:
    """Return half the width of the band about each mean of ``count`` units, or NaN where there are too few.

    ``std`` is ``sqrt(D / n)``; ``ci95`` is ``t(n - 1) * s / sqrt(n)`` with ``s = sqrt(D / (n - 1))``. D is
    the sum of the squared deviations of the units' means. The interval takes units for independent.
    Neighbouring positions of a text are not: their effective number is smaller and the true interval wider.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        if interval == "std":
            return np.where(count < 1, np.nan, np.sqrt(deviation / count))
        sizes, index = np.unique(count, return_inverse=True)
        quantile = np.array([_student_t(int(size) - 1) if size > 1 else math.nan for size in sizes])[index]
        found: npt.NDArray[np.float64] = quantile * np.sqrt(deviation / (count - 1)) / np.sqrt(count)
        return found


def _student_t(freedom: int) -> float:
    """Return Student's t at 0.975: exact up to 5 degrees of freedom, then Abramowitz and Stegun 26.7.5."""
    if freedom <= len(_FEW):
        return _FEW[freedom - 1]
    first = (_Z**3 + _Z) / 4
    second = (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / 96
    third = (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / 384
    return _Z + first / freedom + second / freedom**2 + third / freedom**3


@dataclass(frozen=True)
class Query:
    """A selection of rows. ``None`` matches everything.

    Attributes
    ----------
    flag, part, phase, name : str or None
        Exact text of the column of that name; a column that the stream lacks is not asked for.
    layers, steps : tuple of (int, int) or None
        Inclusive ranges; ``steps`` only where there is a gap between the bounds.
    first, last : int or None
        Inclusive bounds of the step.
    pass_ : str or None
        ``forward`` or ``backward``.
    ranks : tuple of (int, tuple of int or None), or None
        Layers by the rank that they are taken of, None for all of it; see :meth:`on_ranks`.
    measured : bool
        Only rows whose compression error was measured.
    where : tuple of (str, value)
        Further columns and what they must equal.
    """

    flag: str | None = None
    part: str | None = None
    phase: str | None = None
    name: str | tuple[str, ...] | None = None
    layers: Ranges | None = None
    first: int | None = None
    last: int | None = None
    pass_: str | None = None
    ranks: tuple[tuple[int, tuple[int, ...] | None], ...] | None = None
    measured: bool = False
    where: tuple[tuple[str, str | int], ...] = ()
    steps: Ranges | None = None

    @classmethod
    def of(
        cls,
        *,
        flag: str | None = None,
        layers: LayerChoice = None,
        part: str | None = None,
        steps: StepChoice = None,
        phase: str | None = None,
        names: str | Iterable[str] | None = None,
        pass_: str | None = None,
        rank: int | None = None,
    ) -> Query:
        """Return the query that a person's arguments mean; raises ``ClientError`` naming the argument."""
        for argument, value in (("flag", flag), ("part", part), ("phase", phase)):
            if value is not None and not isinstance(value, str):
                raise bad_argument(argument, "text", value)
        if phase is not None and phase not in PHASES:
            raise bad_argument("phase", "one of train, eval, generate", phase)
        if pass_ is not None and pass_ not in PASSES:
            raise bad_argument("pass_", "forward or backward", pass_)
        if names is not None and not isinstance(names, str):
            several = tuple(names) if isinstance(names, Iterable) else (names,)
            if not all(isinstance(name, str) for name in several):
                raise bad_argument("names", "a name or a list of names", names)
            names = several
        chosen = chosen_ranges(steps, "steps", read_steps)
        first, last = (None, None) if chosen is None else (chosen[0][0], chosen[-1][1]) if chosen else (0, -1)
        return cls(
            flag,
            part,
            phase,
            names,
            chosen_ranges(layers, "layers"),
            first,
            None if last == LAST_STEP else last,
            pass_,
            None if rank is None else ((as_int(rank, "rank"), None),),
            steps=chosen if chosen is not None and len(chosen) > 1 else None,
        )

    def on_ranks(self, ranks: Mapping[int, int]) -> Query:
        """Return the query of each layer on one rank only, so that data-parallel replicas never mix."""
        layers: dict[int, list[int]] = {}
        for layer, rank in ranks.items():
            layers.setdefault(rank, []).append(layer)
        return replace(
            self, ranks=tuple((rank, tuple(sorted(found))) for rank, found in sorted(layers.items()))
        )

    def before(self, step: int) -> Query:
        """Return the same query, of earlier steps only."""
        return replace(self, last=step - 1 if self.last is None else min(self.last, step - 1))

    def columns(self) -> list[str]:
        """Return the columns that :meth:`expression` looks at."""
        return list(dict.fromkeys(column for columns, _ in self._parts() for column in columns))

    def expression(self) -> pc.Expression | None:
        """Return the Arrow filter, or ``None`` when every row matches."""
        parts = [part for _, part in self._parts()]
        return reduce(and_, parts) if parts else None

    def _parts(self) -> Iterator[tuple[tuple[str, ...], Any]]:
        """Yield what a row must fulfil, each with the columns that it looks at."""
        equal = (("flag", self.flag), ("part", self.part), ("phase", self.phase), ("pass", self.pass_))
        for column, value in (*equal, *self.where):
            if value is not None:
                yield (column,), pc.field(column) == value
        if self.ranks is not None:
            of_rank: Any = pc.scalar(False)
            for rank, layers in self.ranks:
                one = pc.field("rank") == rank
                if layers is not None:
                    one = one & pc.field("layer").isin(pa.array(layers, pa.int32()))
                of_rank = of_rank | one
            of_layers = any(layers is not None for _, layers in self.ranks)
            yield ("rank", "layer") if of_layers else ("rank",), of_rank
        if self.measured:
            yield ("compression_error",), pc.is_finite(pc.field("compression_error"))
        if self.name is not None:
            names = [self.name] if isinstance(self.name, str) else list(self.name)
            yield ("name",), pc.field("name").isin(pa.array(names, pa.utf8()))
        if self.first is not None:
            yield ("step",), pc.field("step") >= self.first
        if self.last is not None:
            yield ("step",), pc.field("step") <= self.last
        for column, ranges in (("layer", self.layers), ("step", self.steps)):
            if ranges is not None:
                field = pc.field(column)
                spans = ((field >= low) & (field <= high) for low, high in ranges)
                yield (column,), reduce(or_, spans, pc.scalar(False))

    def filter(self, table: pa.Table) -> pa.Table:
        expression = self.expression()
        return table if expression is None else table.filter(expression)
