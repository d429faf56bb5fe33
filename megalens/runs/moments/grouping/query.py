"""A question about groups of tensors, ready to be answered: names are filtered and keyed by it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol import (
    MOMENT_STATS,
    SUMMARY_LEVELS,
    MomentGroupsRequest,
    TensorName,
    check_request,
    name_values,
    natural_key,
)
from ...errors import ClientError, as_arguments, as_int, bad_parameter
from .name_filter import NameFilter, Pattern, Where

Key = tuple[Any, ...]

ROW_COLUMNS = ("rank", "stage")
"""Columns that are in rows, not in names."""

GROUP_COLUMNS = ("name", *TensorName._fields, *ROW_COLUMNS)
"""Columns by name; a pattern's captures and functions of the name come in addition."""

_Column = str | re.Pattern[str] | Callable[[str], Any]


@dataclass(frozen=True)
class MomentQuery:
    """What is asked of the stream ``moments``; ``protocol/README.md`` says what groups and ratios are.

    Attributes
    ----------
    first, last : int or None
        Inclusive bounds of the step.
    points, series : int or None
        About how many steps of a group, and how many groups may stay.
    ratio : str
        ``none``, ``grad_to_param`` or ``gain``.
    mixed : bool
        Let inputs and outputs of modules enter one group.
    show : str
        ``raw``, ``relative``, ``delta`` or ``percent``: against the first value of the whole run.
    smoothing : int
        How many steps of a group a trailing mean is over; 0 and 1 are none.
    lean : bool
        Only the value, its error, counts and non-finite counts are needed: other moments may be NaN.
    """

    stat: str
    statistic: str
    grouping: Grouping
    where: NameFilter
    first: int | None = None
    last: int | None = None
    points: int | None = None
    series: int | None = None
    ratio: str = "none"
    mixed: bool = False
    show: str = "raw"
    smoothing: int = 0
    lean: bool = False

    @property
    def shaped(self) -> bool:
        """Whether values are shown relative to or averaged with steps that may be before ``first``."""
        return self.show != "raw" or self.smoothing > 1

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of ``SUMMARY_LEVELS`` of which tensors take part together or not at all, and are in one
        group.
        """
        asked = {*self.grouping.columns, *self.where.columns} - {"stage"}
        fits = (level for level, fields in SUMMARY_LEVELS.items() if asked <= {*fields})
        return tuple(fits) if self.ratio == "none" else ()

    @classmethod
    def of(
        cls,
        stat: str,
        statistic: str = "l2",
        by: Sequence[Any] = (),
        pattern: str | None = None,
        where: Where = None,
        first: int | None = None,
        last: int | None = None,
        points: int | None = None,
        series: int | None = None,
        ratio: str = "none",
        mixed: bool = False,
        show: str = "raw",
        smoothing: int = 0,
    ) -> MomentQuery:
        """Return the query of a person's call, in which ``by`` and ``where`` may have functions and compiled
        expressions; raises ``ClientError`` naming the argument.
        """
        drawn = {"ratio": ratio, "mixed": mixed, "show": show, "smoothing": smoothing}
        drawn |= {name: few for name, few in (("points", points), ("series", series)) if few is not None}
        with as_arguments():
            check_request(MomentGroupsRequest, {"stat": stat, "statistic": statistic, "by": [], **drawn})
        steps = [
            None if step is None else as_int(step, name) for name, step in (("first", first), ("last", last))
        ]
        return cls.of_request(stat, statistic, by, pattern, where, steps, **drawn)

    @classmethod
    def of_request(
        cls,
        stat: str,
        statistic: str = "l2",
        by: Sequence[Any] = (),
        pattern: str | None = None,
        where: Where = None,
        steps: Sequence[int | None] | None = None,
        **drawn: Any,
    ) -> MomentQuery:
        """Return the query of the members of a ``MomentGroupsRequest``, which were checked where it came in.

        Raises ``ClientError`` where no schema can say what is wrong: for patterns, ranges and columns.
        """
        if drawn.get("ratio") == "gain" and stat not in ("activation", "dgrad"):
            raise bad_parameter(
                f"A gain is of what goes into modules and comes out of them, and {stat} is neither. Choose "
                "activation or dgrad.",
                "ratio",
            )
        grouping = Grouping([by] if isinstance(by, str) else by, pattern)
        first, last = steps or (None, None)
        return cls(stat, statistic, grouping, NameFilter(where), first, last, **drawn)


def check_stat(stat: Any) -> str:
    """Return ``stat``, or raise ``ClientError`` naming those that exist."""
    if stat not in MOMENT_STATS:
        raise bad_parameter(f"stat must be one of {', '.join(MOMENT_STATS)}, got {stat!r:.100}.", "stat")
    return str(stat)


@dataclass(frozen=True)
class _NameColumns:
    """The columns of one entry of ``by``, and their values for each name; None leaves a name out."""

    labels: tuple[str, ...]
    values: Callable[[Sequence[str]], list[Key | None]]


class Grouping:
    """What makes a group, checked once and evaluated once for each name.

    Parameters
    ----------
    by : sequence
        Columns of :data:`GROUP_COLUMNS`, ``capture`` (what ``pattern`` finds, its groups joined with ``.``),
        compiled or textual regular expressions with groups, functions of the name. None of them is the total.
    pattern : str, optional
        The regular expression of ``capture``.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming what is wrong.
    """

    def __init__(self, by: Sequence[Any], pattern: str | None = None) -> None:
        self._parts: list[_NameColumns | str] = []
        self.labels: list[str] = []
        """Columns of a group's key, in order."""
        for column in by:
            part = self._part(column, pattern)
            labels = (part,) if isinstance(part, str) else part.labels
            twice = [label for label in labels if label in self.labels]
            if twice:
                raise _no_group(f"the column {twice[0]!r} came twice")
            self.labels += labels
            self._parts.append(part)
        self.rows = tuple(label for label in ROW_COLUMNS if label in self._parts)
        """The requested ones of rank and stage, in the order of cells."""
        self.columns = tuple(by)

    def keys(self, names: Sequence[str]) -> list[Key | None]:
        """Return the key of each name, with None for rank and stage; None for a name that takes no part."""
        columns: list[list[Key | None]] = [
            [(None,)] * len(names) if isinstance(part, str) else part.values(names) for part in self._parts
        ]
        if not columns:
            return [()] * len(names)
        if len(columns) == 1:
            return columns[0]
        return [
            None
            if any(piece is None for piece in pieces)
            else tuple(v for piece in pieces for v in piece or ())
            for pieces in zip(*columns, strict=True)
        ]

    def with_row_values(self, key: Key, values: dict[str, int]) -> Key:
        """Return a key with rank and stage in it; a negative number is not known."""
        return tuple(
            (None if values[label] < 0 else values[label]) if label in values else value
            for label, value in zip(self.labels, key, strict=True)
        )

    def _part(self, column: _Column, pattern: str | None) -> _NameColumns | str:
        if callable(column):
            function = column
            label = getattr(column, "__name__", "group")
            return _NameColumns(
                ("group" if label == "<lambda>" else label,),
                lambda names: [(function(name),) for name in names],
            )
        if column == "capture":
            if not pattern:
                raise _no_group(
                    "'capture' is what a pattern finds, and none came; give one such as "
                    r"'layers\.(\d+)\.(\w+)'"
                )
            return _NameColumns(("capture",), _joined(Pattern(pattern, "pattern")))
        if isinstance(column, str) and column in ROW_COLUMNS:
            return column
        if column == "name":
            return _NameColumns(("name",), lambda names: [(name,) for name in names])
        if isinstance(column, str) and column in TensorName._fields:
            field = column
            return _NameColumns((field,), lambda names: [(value,) for value in name_values(names, field)])
        if isinstance(column, re.Pattern) or (isinstance(column, str) and "(" in column):
            found = Pattern(column, "pattern in by")
            if found.groups:
                one = found.groups == 1
                return _NameColumns(
                    tuple(
                        name or ("capture" if one else f"capture_{number}")
                        for number, name in enumerate(found.group_names, 1)
                    ),
                    found.captures,
                )
        raise _no_group(
            f"{column!r:.100} is none of {', '.join(GROUP_COLUMNS)}, no regular expression with groups and "
            "no function"
        )


def key_order(key: Key) -> tuple[Any, ...]:
    """Return a sort key: numbers as numbers, texts in natural order, null last."""
    return tuple(
        (2,)
        if value is None
        else (0, value)
        if isinstance(value, int | float)
        else (1, natural_key(str(value)))
        for value in key
    )


def _joined(pattern: Pattern) -> Callable[[Sequence[str]], list[Key | None]]:
    def values(names: Sequence[str]) -> list[Key | None]:
        found = pattern.captures(names)
        return [None if one is None else (".".join(text or "" for text in one),) for one in found]

    return values


def _no_group(what: str) -> ClientError:
    return bad_parameter(f"Cannot group by that: {what}.", "by")
