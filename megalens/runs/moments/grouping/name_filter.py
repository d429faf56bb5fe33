"""Which tensors take part in an answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import Ranges, in_ranges, parse_name
from ...errors import ClientError, bad_parameter, chosen_ranges

Where = Mapping[str, Any] | Callable[[str], bool] | None

_NUMBERS = ("layer", "expert")
_ROW_NUMBERS = ("rank", "stage")
_WORDS = ("stack", "family", "kind", "module_type", "item_type", "role")

_MOST_CHARACTERS, _MOST_POSITIONS = 500, 1000
# What RE2 reads as one, as far as its groups and sizes go. What is none of RE2's is left to it.
_TOKEN = re.compile(
    r"""\\Q(?P<quoted>.*?)(?:\\E|\Z) | \\[xpP]\{[^}]*\}? | (?P<bytes>\\C) | \\.
      | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]?
      | \{(?P<least>\d+)(?:,(?P<most>\d*))?\}
      | \(\?P?<(?P<name>[^>(]*)> | (?P<set>\(\?[A-Za-z-]*\)) | (?P<plain>\(\?[A-Za-z-]*:)
      | (?P<group>\((?!\?)) | (?P<close>\)) | .""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)


# Regular expressions over names: texts run on RE2, in time linear in the name, so that no pattern can hold a
# server up.
class Pattern:
    """A regular expression that is searched for in names.

    A text is RE2's, as in the page; what Python compiled runs in Python. Raises ``ClientError``, naming
    ``field``.
    """

    def __init__(self, pattern: Any, field: str) -> None:
        self._field = field
        self._compiled = pattern if isinstance(pattern, re.Pattern) else None
        if isinstance(pattern, re.Pattern):
            named = {index: name for name, index in pattern.groupindex.items()}
            self.group_names = [named.get(index + 1) for index in range(pattern.groups)]
        else:
            self._text, self.group_names = self._read(pattern)
            self.matches([""])
            # What is found takes part as a group where there is none.
            self._text = self._text if self.group_names else f"(?P<g1>{self._text})"
            if r"\B" in self._text:
                # RE2 looks at every byte for where to begin, and would find \B inside a character.
                self._text = rf"\A(?s:.)*?(?:{self._text})"
        self.groups = len(self.group_names)

    def matches(self, names: Sequence[str]) -> list[bool]:
        if self._compiled is not None:
            return [self._compiled.search(name) is not None for name in names]
        try:
            found = pc.match_substring_regex(pa.array(names, pa.utf8()), pattern=self._text)
        except pa.ArrowInvalid as error:
            raise self._bad(
                re.sub(r"^Invalid regular expression: |(?<=\()\?P<g\d+>", "", str(error))
            ) from error
        return [bool(each) for each in found.to_pylist()]

    def captures(self, names: Sequence[str]) -> list[tuple[str | None, ...] | None]:
        """Return each name's groups (the complete match where there are none), None without a match."""
        if self._compiled is not None:
            found = [self._compiled.search(name) for name in names]
            return [None if one is None else (one.groups() or (one[0],)) for one in found]
        table = pc.extract_regex(pa.array(names, pa.utf8()), pattern=self._text)
        columns = [pc.struct_field(table, [index]).to_pylist() for index in range(max(1, self.groups))]
        there = table.is_valid().to_pylist()
        return [row if valid else None for row, valid in zip(zip(*columns, strict=True), there, strict=True)]

    def _read(self, pattern: Any) -> tuple[str, list[str | None]]:
        """Return the pattern for pyarrow, groups named ``g1``, ``g2`` …, and the groups' own names."""
        if not isinstance(pattern, str):
            raise self._bad(f"it must be a text, got {pattern!r:.60}")
        if len(pattern) > _MOST_CHARACTERS:
            raise self._bad(f"it must have at most {_MOST_CHARACTERS} characters, got {len(pattern)}")
        if any("\ud800" <= letter <= "\udfff" for letter in pattern):
            raise self._bad("it holds half a character")
        written, names = "", list[str | None]()
        # Sizes of the groups that are open, and of what a repeat would repeat.
        open_sizes, last = [0], 0
        for token in _TOKEN.finditer(pattern):
            text = token[0]
            if token["bytes"]:
                raise self._bad(r"\C, a byte, is not known")
            if text.startswith("[") and text[1:].endswith("[:]"):
                raise self._bad(r"[: begins a class by name; write \[: for the characters")
            if token["group"] or token["name"] is not None:
                names.append(token["name"])
                text = f"(?P<g{len(names)}>"
            if token["quoted"] is not None:
                text = "".join(rf"\x{{{ord(letter):x}}}" for letter in token["quoted"])
            if token["least"]:
                times = max(1, int(token["least"]), int(token["most"] or 0))
                open_sizes[-1] += last * (times - 1)
                last *= times
            elif token["group"] or token["plain"] or token["name"] is not None:
                open_sizes.append(0)
            elif token["close"] and len(open_sizes) > 1:
                last = 1 + open_sizes.pop()
                open_sizes[-1] += last
            else:
                last = 1 + len(token["quoted"] or "")
                open_sizes[-1] += last
            written += text
        own = [name for name in names if name is not None]
        if len(set(own)) < len(own) or any(re.fullmatch(r"[A-Za-z0-9_]+", name) is None for name in own):
            raise self._bad("a group must have a name of its own, of letters, digits and _")
        if sum(open_sizes) > _MOST_POSITIONS:
            raise self._bad(f"with its repeats written out it has more than {_MOST_POSITIONS} positions")
        return written, names

    def _bad(self, why: str) -> ClientError:
        return bad_parameter(
            f"The {self._field} is no regular expression that can be used here: {why}. Names are searched "
            "in linear time, so it can neither look ahead or behind nor refer back to what a group found; "
            "give re.compile(…) for what only Python's expressions can say.",
            self._field,
        )


def module_of(name: str) -> str:
    """Return the name of the module of which a tensor is an input or an output."""
    return name[: max(0, name.rfind("/"), name.rfind("."))]


class NameFilter:
    """A filter, checked once and evaluated once for each name, never for each row.

    Parameters
    ----------
    where : mapping or callable, optional
        By column: ``layer``, ``expert``, ``rank``, ``stage`` take numbers or texts of ranges; ``stack``,
        ``family``, ``kind``, ``module_type``, ``item_type``, ``role`` one word or several; ``name`` a regular
        expression or a function of the name. A function alone is one of the name.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the column at fault.
    """

    def __init__(self, where: Where = None) -> None:
        if where is not None and not isinstance(where, Mapping):
            where = {"name": where}
        where = dict(where or {})
        unknown = [str(key) for key in where if key not in (*_NUMBERS, *_ROW_NUMBERS, *_WORDS, "name")]
        if unknown:
            raise bad_parameter(
                f"where knows no column {unknown[0]!r:.100}. It has name, "
                f"{', '.join((*_NUMBERS, *_ROW_NUMBERS, *_WORDS))}.",
                f"where.{unknown[0]:.50}",
            )
        self._ranges = {
            key: found for key in _NUMBERS if (found := chosen_ranges(where.get(key), key)) is not None
        }
        self.rows: dict[str, Ranges] = {
            key: found for key in _ROW_NUMBERS if (found := chosen_ranges(where.get(key), key)) is not None
        }
        """Ranges of ``rank`` and ``stage``, which are in rows, not in names."""
        self._words = {key: _words(where[key], key) for key in _WORDS if where.get(key) is not None}
        name = where.get("name")
        self._function = name if callable(name) else None
        self._pattern = (
            None if name is None or self._function is not None else Pattern(name, "pattern in where")
        )

    @property
    def all_names(self) -> bool:
        return not (self._ranges or self._words or self._function or self._pattern)

    @property
    def columns(self) -> set[str]:
        """The columns that it asks for."""
        named = {"name"} if self._function or self._pattern else set()
        return {*self._ranges, *self._words, *self.rows} | named

    def keep(self, names: Sequence[str], *, any_role: bool = False) -> list[bool]:
        """Return whether each name takes part; ``any_role`` ignores the filter's ``role``."""
        taken = [True] * len(names)
        words = {key: found for key, found in self._words.items() if not (any_role and key == "role")}
        if self._ranges or words:
            for at, name in enumerate(names):
                parsed = parse_name(name)
                taken[at] = all(
                    in_ranges(getattr(parsed, key), found) for key, found in self._ranges.items()
                ) and all(getattr(parsed, key) in found for key, found in words.items())
        if self._pattern is not None:
            taken = [one and found for one, found in zip(taken, self._pattern.matches(names), strict=True)]
        if self._function is not None:
            taken = [one and bool(self._function(name)) for one, name in zip(taken, names, strict=True)]
        return taken


def _words(value: Any, key: str) -> frozenset[str | None]:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, Sequence | set | frozenset) or not all(
        word is None or isinstance(word, str) for word in words
    ):
        raise bad_parameter(f"where: {key} must be a word or several, got {value!r:.100}.", f"where.{key}")
    return frozenset(words)
