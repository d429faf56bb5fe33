"""The syntax of patterns over names, which page, kernel and server share; ``src/aggregate/pattern-syntax.ts`` reads the same.

What it allows can be matched in time linear in the name. ``protocol/README.md`` lists it, and ``protocol/fixtures/patterns.json`` holds both readers to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PatternError", "PatternSyntax", "read_syntax"]

_MOST_CHARACTERS, _MOST_POSITIONS = 500, 1000
_LAST = 0x10FFFF
_Ranges = list[tuple[int, int]]
_CLASSES: dict[str, _Ranges] = {
    "d": [(0x30, 0x39)],
    "w": [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
    "s": [(0x09, 0x0D), (0x20, 0x20)],
}
_CONTROLS = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D}
_ENDS = {"^": r"\A", "$": r"\z", r"\b": r"\b", r"\B": r"\B"}
_BRACES = re.compile(r"\{([0-9]{1,4})(?:(,)([0-9]{0,4}))?\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_PUNCTUATION = re.compile(r"[ -/:-@\[-`{-~]")
_LOOK_AROUND = "it looks ahead or behind with (?=, (?!, (?<= or (?<!, which cannot be done in linear time"
_REFERS_BACK = r"it refers back to what a group found, with \1 or \k, which cannot be done in linear time"


class PatternError(ValueError):
    """A pattern cannot be used. The text says why: the end of a sentence."""


@dataclass(frozen=True)
class PatternSyntax:
    """A pattern that was read: the same as RE2 reads it, each group with the name g1, g2 and so on; and the groups' own names."""

    re2: str
    group_names: list[str | None]


def read_syntax(text: str) -> PatternSyntax:
    """Read a pattern.

    Raises
    ------
    PatternError
        When it is not of the syntax.
    """
    if len(text) > _MOST_CHARACTERS:
        raise PatternError(f"it must have at most {_MOST_CHARACTERS} characters, got {len(text)}")
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise PatternError("it holds half a character")
    reader = _Reader(text)
    written, positions = reader.choice()
    if reader.at < len(text):
        raise PatternError(r"a ) closes nothing; write \) for the character")
    if positions > _MOST_POSITIONS:
        raise PatternError(f"with its repeats written out it has more than {_MOST_POSITIONS} positions")
    return PatternSyntax(written, reader.names)


class _Reader:
    """Reads from left to right; each method returns what RE2 is given for what it read, and how many positions that has."""

    def __init__(self, text: str) -> None:
        self.at = 0
        self.names: list[str | None] = []
        self._text = text
        self._folds = self._take("(?i)")

    def choice(self) -> tuple[str, int]:
        ways = [self._sequence()]
        while self._take("|"):
            ways.append(self._sequence())
        return "|".join(written for written, _ in ways), 1 + sum(size for _, size in ways)

    def _sequence(self) -> tuple[str, int]:
        parts = []
        while self.at < len(self._text) and self._text[self.at] not in "|)":
            parts.append(self._repeated())
        return "".join(written for written, _ in parts), 1 + sum(size for _, size in parts)

    def _repeated(self) -> tuple[str, int]:
        if self._quantifier() is not None:
            raise _nothing_to_repeat()
        written, size = self._atom()
        times = self._quantifier()
        if times is None:
            return written, size
        lazy = "?" if self._take("?") else ""
        if written in _ENDS.values() or self._quantifier() is not None:
            raise _nothing_to_repeat()
        least, most = times
        return (
            f"(?:{written}){{{least},{'' if most is None else most}}}{lazy}",
            size * max(1, least if most is None else most),
        )

    def _quantifier(self) -> tuple[int, int | None] | None:
        """Read how often what stands before is repeated. A { that says no number is the character."""
        for sign, times in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return times
        found = _BRACES.match(self._text, self.at)
        if found is None:
            return None
        self.at = found.end()
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if most is not None and least > most:
            raise PatternError(f"{found[0]} must have its smaller number first")
        return least, most

    def _atom(self) -> tuple[str, int]:
        if self._take("("):
            return self._group()
        if self._take("["):
            return _written(self._class()), 1
        if self._take("."):
            return _written([(0, 0x09), (0x0B, _LAST)]), 1
        for sign, written in _ENDS.items():
            if self._take(sign):
                return written, 1
        found = self._escape() if self._sees("\\") else self._character()
        return _written(self._folded([(found, found)]) if isinstance(found, int) else found), 1

    def _group(self) -> tuple[str, int]:
        if any(self._sees(each) for each in ("?=", "?!", "?<=", "?<!")):
            raise PatternError(_LOOK_AROUND)
        captures = not self._take("?:")
        name = None
        if captures and (self._take("?P<") or self._take("?<")):
            found = _NAME.match(self._text, self.at)
            if found is None or self._text[found.end() : found.end() + 1] != ">" or found[0] in self.names:
                raise PatternError("a group must have a name of its own, of letters, digits and _")
            name = found[0]
            self.at = found.end() + 1
        elif captures and self._sees("?"):
            raise PatternError("(? must begin (?:, (?P<name> or, at the start, (?i)")
        if captures:
            self.names.append(name)
        place = len(self.names)
        written, size = self.choice()
        if not self._take(")"):
            raise PatternError(r"a ( is not closed; write \( for the character")
        return (f"(?P<g{place}>{written})", size + 1) if captures else (f"(?:{written})", size)

    def _class(self) -> _Ranges:
        """Read what a class in brackets takes, after the opening one."""
        negated = self._take("^")
        ranges: _Ranges = []
        while not ranges or not self._take("]"):
            if self.at >= len(self._text):
                raise PatternError(r"a [ is not closed; write \[ for the character")
            if self._sees("]"):
                raise PatternError(r"a class in [] must not be empty; write \] for the character")
            if self._sees("[:"):
                raise PatternError("classes by name such as [:alpha:] are not known")
            first = self._escape() if self._sees("\\") else self._character()
            if not isinstance(first, int):
                ranges += first
            elif self._sees("-") and not self._sees("-]"):
                self.at += 1
                last = (
                    self._escape()
                    if self._sees("\\")
                    else self._character()
                    if self.at < len(self._text)
                    else -1
                )
                if not isinstance(last, int) or last < first:
                    raise PatternError("a range in [] must go from a lower to a higher character")
                ranges.append((first, last))
            else:
                ranges.append((first, first))
        ranges = self._folded(ranges)
        return _all_but(ranges) if negated else ranges

    def _escape(self) -> int | _Ranges:
        """Read one character, or a class of them."""
        letter = self._text[self.at + 1 : self.at + 2]
        self.at += 2
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter.lower() in _CLASSES:
            ranges = _CLASSES[letter.lower()]
            return ranges if letter.islower() else _all_but(ranges)
        if letter in ("x", "u"):
            digits = 2 if letter == "x" else 4
            text = self._text[self.at : self.at + digits]
            if (
                len(text) < digits
                or _HEX.fullmatch(text) is None
                or 0xD800 <= (value := int(text, 16)) <= 0xDFFF
            ):
                raise PatternError(r"\x must have two hexadecimal digits, \u four of a whole character")
            self.at += digits
            return value
        if letter != "" and letter in "123456789k":
            raise PatternError(_REFERS_BACK)
        if _PUNCTUATION.fullmatch(letter) is None:
            raise PatternError(f"\\{letter} is not known")
        return ord(letter)

    def _character(self) -> int:
        self.at += 1
        return ord(self._text[self.at - 1])

    def _folded(self, ranges: _Ranges) -> _Ranges:
        """Return ranges with both cases of the letters from A to Z, where the pattern says so."""
        more = [
            (max(low, first) + by, min(high, last) + by)
            for low, high in ranges
            for first, last, by in ((0x41, 0x5A, 32), (0x61, 0x7A, -32))
            if max(low, first) <= min(high, last)
        ]
        return ranges + more if self._folds else ranges

    def _sees(self, text: str) -> bool:
        return self._text.startswith(text, self.at)

    def _take(self, text: str) -> bool:
        found = self._sees(text)
        self.at += len(text) if found else 0
        return found


def _nothing_to_repeat() -> PatternError:
    return PatternError(r"*, +, ? or {} has nothing to repeat; write \* for the character")


def _written(ranges: _Ranges) -> str:
    if not ranges:
        return rf"[^\x{{0}}-\x{{{_LAST:x}}}]"
    return "[" + "".join(rf"\x{{{low:x}}}-\x{{{high:x}}}" for low, high in ranges) + "]"


def _all_but(ranges: _Ranges) -> _Ranges:
    found, low = [], 0
    for first, last in sorted(ranges):
        if low < first:
            found.append((low, first - 1))
        low = max(low, last + 1)
    return [*found, (low, _LAST)] if low <= _LAST else found
