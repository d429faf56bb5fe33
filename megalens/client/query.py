"""What to select from a stream, checked once and understood by memory, Arrow files and Parquet alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol import ProtocolError, Ranges, read_ranges
from .errors import ClientError

__all__ = ["LayerChoice", "Query", "StepChoice", "chosen_ranges"]

LayerChoice = int | str | Iterable[int] | None
StepChoice = int | range | Sequence[int | None] | None

_PHASES = ("train", "eval", "generate")
_PASSES = ("forward", "backward")


@dataclass(frozen=True)
class Query:
    """A selection of rows. ``None`` matches everything.

    Attributes
    ----------
    flag, part, phase, name : str or None
        Exact text of the column of that name; a column that the stream lacks is not asked for.
    layers : tuple of (int, int) or None
        Inclusive ranges of layers.
    first, last : int or None
        Inclusive bounds of the step.
    pass_ : str or None
        ``forward`` or ``backward``.
    ranks : mapping of int to tuple of int, or None
        Layers by the rank that they are taken of; see :meth:`on_ranks`. A rank whose layers are ``None`` gives all that it has.
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

    @classmethod
    def of(
        cls,
        *,
        flag: str | None = None,
        layer: LayerChoice = None,
        part: str | None = None,
        steps: StepChoice = None,
        phase: str | None = None,
        name: str | Iterable[str] | None = None,
        pass_: str | None = None,
        rank: int | None = None,
    ) -> Query:
        """Return the query that a person's arguments mean.

        Raises
        ------
        ClientError
            ``bad-parameter``, naming the argument.
        """
        for argument, value in (("flag", flag), ("part", part), ("phase", phase)):
            if value is not None and not isinstance(value, str):
                raise _bad(argument, "text", value)
        if phase is not None and phase not in _PHASES:
            raise _bad("phase", "one of train, eval, generate", phase)
        if pass_ is not None and pass_ not in _PASSES:
            raise _bad("pass_", "forward or backward", pass_)
        if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool) or rank < 0):
            raise _bad("rank", "a whole number from 0", rank)
        names: str | tuple[str, ...] | None
        if name is None or isinstance(name, str):
            names = name
        else:
            names = tuple(name)
            if not all(isinstance(entry, str) for entry in names):
                raise _bad("name", "text or a list of text", name)
        first, last = _steps(steps)
        ranks = None if rank is None else ((rank, None),)
        return cls(flag, part, phase, names, chosen_ranges(layer, "layer"), first, last, pass_, ranks)

    def on_ranks(self, ranks: Mapping[int, int]) -> Query:
        """Return the same query of each layer on one rank only, so that data-parallel replicas never mix.

        Parameters
        ----------
        ranks : mapping of int to int
            The rank by layer.
        """
        layers: dict[int, list[int]] = {}
        for layer, rank in ranks.items():
            layers.setdefault(rank, []).append(layer)
        return replace(
            self, ranks=tuple((rank, tuple(sorted(found))) for rank, found in sorted(layers.items()))
        )

    def columns(self) -> list[str]:
        """Return the columns that :meth:`expression` looks at."""
        asked = {
            "flag": self.flag is not None,
            "part": self.part is not None,
            "phase": self.phase is not None,
            "pass": self.pass_ is not None,
            "rank": self.ranks is not None,
            "layer": self.layers is not None or any(layers is not None for _, layers in self.ranks or ()),
            "compression_error": self.measured,
            "name": self.name is not None,
            "step": self.first is not None or self.last is not None,
            **dict.fromkeys((column for column, _ in self.where), True),
        }
        return [column for column, is_asked in asked.items() if is_asked]

    def expression(self) -> pc.Expression | None:
        """Return the Arrow filter, or ``None`` when every row matches."""
        parts: list[Any] = []
        for column in ("flag", "part", "phase"):
            value = getattr(self, column)
            if value is not None:
                parts.append(pc.field(column) == value)
        parts += [pc.field(column) == value for column, value in self.where]
        if self.pass_ is not None:
            parts.append(pc.field("pass") == self.pass_)
        if self.ranks is not None:
            of_rank: Any = pc.scalar(False)
            for rank, layers in self.ranks:
                one = pc.field("rank") == rank
                if layers is not None:
                    one = one & pc.field("layer").isin(pa.array(layers, pa.int32()))
                of_rank = of_rank | one
            parts.append(of_rank)
        if self.measured:
            parts.append(pc.is_finite(pc.field("compression_error")))
        if self.name is not None:
            names = [self.name] if isinstance(self.name, str) else list(self.name)
            parts.append(pc.field("name").isin(pa.array(names, pa.utf8())))
        if self.first is not None:
            parts.append(pc.field("step") >= self.first)
        if self.last is not None:
            parts.append(pc.field("step") <= self.last)
        if self.layers is not None:
            column = pc.field("layer")
            within: Any = pc.scalar(False)
            for low, high in self.layers:
                within = within | ((column >= low) & (column <= high))
            parts.append(within)
        if not parts:
            return None
        whole = parts[0]
        for part in parts[1:]:
            whole = whole & part
        return whole

    def filter(self, table: pa.Table) -> pa.Table:
        """Return the rows of ``table`` that match, in their order."""
        expression = self.expression()
        return table if expression is None else table.filter(expression)


def chosen_ranges(choice: LayerChoice, field: str) -> Ranges | None:
    """Return the inclusive ranges that a person chose, or None for all.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the field.
    """
    try:
        return read_ranges(choice, field)
    except ProtocolError as error:
        raise ClientError(error.message, code=error.code, field=field) from error


def _steps(choice: StepChoice) -> tuple[int | None, int | None]:
    expected = "one step, (first, last), or a range with step 1"
    if choice is None:
        return None, None
    if isinstance(choice, range):
        if choice.step != 1:
            raise _bad("steps", expected, choice)
        return choice.start, choice.stop - 1
    if isinstance(choice, int) and not isinstance(choice, bool):
        return choice, choice
    try:
        first, last = choice  # type: ignore[misc]
        bounds = tuple(None if bound is None else bound.__index__() for bound in (first, last))
    except (TypeError, ValueError, AttributeError) as error:
        raise _bad("steps", expected, choice) from error
    return bounds[0], bounds[1]


def _bad(argument: str, expected: str, got: object) -> ClientError:
    return ClientError(
        f"{argument}=… must be {expected}, got {got!r:.100}.", code="bad-parameter", field=argument
    )
