"""Which group a tensor is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol import TensorName, name_values, natural_key
from ...errors import ClientError
from .name_filter import Pattern

__all__ = ["GROUP_COLUMNS", "ROW_COLUMNS", "Grouping", "Key", "key_order"]

Key = tuple[Any, ...]

ROW_COLUMNS = ("rank", "stage")
"""Columns that rows say and names do not."""

GROUP_COLUMNS = ("name", *TensorName._fields, *ROW_COLUMNS)
"""Columns by their names; beside them a pattern's captures and functions of the name."""

_Column = str | re.Pattern[str] | Callable[[str], Any]


@dataclass(frozen=True)
class _NameColumns:
    """Columns that one entry of ``by`` makes, and what they are for each name; None leaves a name out."""

    labels: tuple[str, ...]
    values: Callable[[Sequence[str]], list[Key | None]]


class Grouping:
    """What makes a group, checked once and asked once for each name.

    Parameters
    ----------
    by : sequence
        Columns of :data:`GROUP_COLUMNS`, ``capture`` (what ``pattern`` finds, its groups joined with ``.``), compiled or textual regular expressions with groups, functions of
        the name. None of them is the total.
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
                raise _bad(f"the column {twice[0]!r} came twice")
            self.labels += labels
            self._parts.append(part)
        self.rows = tuple(label for label in ROW_COLUMNS if label in self._parts)
        """Those of rank and stage that are asked for, in the order in which cells have them."""

    def keys(self, names: Sequence[str]) -> list[Key | None]:
        """Return the key of each name, None in the places of rank and stage; None for a name that takes no part."""
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
                raise _bad(
                    r"'capture' is what a pattern finds, and none came; give one such as 'layers\.(\d+)\.(\w+)'"
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
                        name or ("capture" if one else f"capture_{place}")
                        for place, name in enumerate(found.group_names, 1)
                    ),
                    found.captures,
                )
        raise _bad(
            f"{column!r:.100} is none of {', '.join(GROUP_COLUMNS)}, no regular expression with groups and no function"
        )


def key_order(key: Key) -> tuple[Any, ...]:
    """Return what sorts keys: numbers as numbers, texts in natural order, null last."""
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


def _bad(what: str) -> ClientError:
    return ClientError(
        f"Cannot group by that: {what}.",
        code="bad-parameter",
        field="by",
    )
