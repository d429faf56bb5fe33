"""Regular expressions over names: texts run on RE2, in time linear in the name, so that no pattern can hold a server up."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ClientError
from .pattern_syntax import PatternError, read_syntax

__all__ = ["Pattern"]


class Pattern:
    """A regular expression that is looked for somewhere in names.

    Parameters
    ----------
    pattern : str or re.Pattern
        A text means what it means in the page (:mod:`.pattern_syntax`); what Python compiled runs as Python runs it.
    field : str
        What it is, for the error.

    Raises
    ------
    ClientError
        ``bad-parameter``, saying what is wrong with it.
    """

    def __init__(self, pattern: Any, field: str) -> None:
        self._field = field
        self._compiled = pattern if isinstance(pattern, re.Pattern) else None
        if isinstance(pattern, re.Pattern):
            named = {place: name for name, place in pattern.groupindex.items()}
            self.group_names = [named.get(place + 1) for place in range(pattern.groups)]
        else:
            if not isinstance(pattern, str):
                raise self._bad(f"it must be a text, got {pattern!r:.60}")
            try:
                read = read_syntax(pattern)
            except PatternError as error:
                raise self._bad(str(error)) from error
            self.group_names = read.group_names
            # What is found takes part as a group where there is none.
            self._text = read.re2 if read.group_names else f"(?P<g1>{read.re2})"
            if r"\B" in read.re2:
                # RE2 looks at every byte for where to begin, and would find \B inside a character.
                self._text = rf"\A[\x{{0}}-\x{{10ffff}}]*?(?:{self._text})"
            self.matches([""])
        self.groups = len(self.group_names)

    def matches(self, names: Sequence[str]) -> list[bool]:
        """Say of each name whether the pattern is found in it."""
        if self._compiled is not None:
            return [self._compiled.search(name) is not None for name in names]
        try:
            found = pc.match_substring_regex(pa.array(names, pa.utf8()), pattern=self._text)
        except pa.ArrowInvalid as error:
            raise self._bad(str(error)) from error
        return [bool(each) for each in found.to_pylist()]

    def captures(self, names: Sequence[str]) -> list[tuple[str | None, ...] | None]:
        """Return what the groups find in each name (the whole of what is found where there are none), None where nothing is."""
        if self._compiled is not None:
            found = [self._compiled.search(name) for name in names]
            return [None if one is None else (one.groups() or (one[0],)) for one in found]
        table = pc.extract_regex(pa.array(names, pa.utf8()), pattern=self._text)
        columns = [pc.struct_field(table, [place]).to_pylist() for place in range(max(1, self.groups))]
        there = table.is_valid().to_pylist()
        return [row if valid else None for row, valid in zip(zip(*columns, strict=True), there, strict=True)]

    def _bad(self, why: str) -> ClientError:
        return ClientError(
            f"The {self._field} is no regular expression that can be used here: {why}. "
            "It is looked for somewhere in the name; give re.compile(…) for what only Python's expressions can say.",
            code="bad-parameter",
            field=self._field,
        )
