"""Regular expressions over names: texts run on RE2, in time linear in the name, so that no pattern can hold a server up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ClientError

__all__ = ["Pattern"]

_MOST = 500
_NAMED = re.compile(r"\(\?<(?=[A-Za-z_])")
_OPENING = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?!\?(?!P<))", re.DOTALL)


class Pattern:
    """A regular expression that is looked for somewhere in names.

    Parameters
    ----------
    pattern : str or re.Pattern
        A text is read as RE2 reads it, with groups named as in Python or in JavaScript; what Python compiled runs as Python runs it.
    field : str
        What it is, for the error.

    Raises
    ------
    ClientError
        ``bad-parameter``, saying what is wrong with it.
    """

    def __init__(self, pattern: Any, field: str) -> None:
        self._field = field
        self._compiled: re.Pattern[str] | None = None
        if isinstance(pattern, re.Pattern):
            self._compiled = pattern
            text = pattern.pattern
        else:
            if not isinstance(pattern, str) or len(pattern) > _MOST:
                raise self._bad(f"must be a text of at most {_MOST} characters, got {pattern!r:.60}")
            text = _NAMED.sub("(?P<", pattern)
        self._text = text
        try:
            compiled = re.compile(text) if self._compiled is None else self._compiled
        except (re.error, RecursionError, OverflowError) as error:
            raise self._bad(str(error)) from error
        self.groups = compiled.groups
        named = {place: name for name, place in compiled.groupindex.items()}
        self.group_names = [named.get(place + 1) for place in range(self.groups)]
        if self._compiled is None:
            self._find(pa.array([""], pa.utf8()))

    def matches(self, names: Sequence[str]) -> list[bool]:
        """Say of each name whether the pattern is found in it."""
        if self._compiled is not None:
            return [self._compiled.search(name) is not None for name in names]
        return [bool(found) for found in self._find(pa.array(names, pa.utf8())).to_pylist()]

    def captures(self, names: Sequence[str]) -> list[tuple[str | None, ...] | None]:
        """Return what the groups find in each name (the whole of what is found where there are none), None where nothing is."""
        if self._compiled is not None:
            found = [self._compiled.search(name) for name in names]
            return [None if one is None else (one.groups() or (one[0],)) for one in found]
        # RE2 gives named groups alone: every group gets a name.
        count = 0

        def name_group(match: re.Match[str]) -> str:
            nonlocal count
            if not match[0].startswith("("):
                return match[0]
            count += 1
            return f"(?P<g{count}>"

        plain = re.sub(r"\(\?P<[A-Za-z_]\w*>", "(", self._text)
        text = _OPENING.sub(name_group, plain)
        if count == 0:
            text, count = f"(?P<g1>{plain})", 1
        try:
            table = pc.extract_regex(pa.array(names, pa.utf8()), pattern=text)
        except pa.ArrowInvalid as error:
            raise self._bad(str(error)) from error
        rows = zip(*(pc.struct_field(table, [place]).to_pylist() for place in range(count)), strict=True)
        there = table.is_valid().to_pylist()
        return [row if valid else None for row, valid in zip(rows, there, strict=True)]

    def _find(self, names: pa.Array) -> pa.Array:
        try:
            return pc.match_substring_regex(names, pattern=self._text)
        except pa.ArrowInvalid as error:
            raise self._bad(str(error)) from error

    def _bad(self, why: str) -> ClientError:
        return ClientError(
            f"The {self._field} is no regular expression that can be used here: {why}. "
            "It is looked for somewhere in the name; give re.compile(…) for what only Python's expressions can say.",
            code="bad-parameter",
            field=self._field,
        )
