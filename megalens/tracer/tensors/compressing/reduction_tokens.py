"""Cutting a reduction expression into tokens, each with its column."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from ....protocol import ProtocolError

__all__ = ["Token", "bad_reduction", "tokenize"]

TokenKind = Literal["number", "name", "operator", "end"]
_PATTERN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<operator>\*\*|<=|>=|==|!=|[-+*/<>().,=])|(?P<end>$))",
    re.ASCII,
)
MAX_LENGTH = 500
# What \s is in an ASCII pattern; str.lstrip alone knows more.
_SPACE = " \t\n\r\f\v"


@dataclass(frozen=True, slots=True)
class Token:
    """One word of an expression; ``column`` counts from 1."""

    kind: TokenKind
    text: str
    column: int


def bad_reduction(message: str, column: int, field: str) -> ProtocolError:
    """Return the error that says what is wrong with an expression, and where."""
    return ProtocolError("bad-reduction", f"{message} (column {column}).", field=field, column=column)


def tokenize(text: str, field: str) -> list[Token]:
    """Return the tokens of ``text``; the last one is of kind ``end``.

    Raises
    ------
    ProtocolError
        ``bad-reduction`` when the text is too long or holds a character that is not of the language.
    """
    if len(text) > MAX_LENGTH:
        raise bad_reduction(
            f"An expression has at most {MAX_LENGTH} characters, and this one has {len(text)}",
            MAX_LENGTH + 1,
            field,
        )
    tokens: list[Token] = []
    at = 0
    while True:
        match = _PATTERN.match(text, at)
        if match is None:
            at += len(text[at:]) - len(text[at:].lstrip(_SPACE))
            raise bad_reduction(f"{text[at]!r} means nothing in a reduction", at + 1, field)
        kind = match.lastgroup
        assert kind is not None
        word = match.group(kind)
        tokens.append(Token(kind, word, match.start(kind) + 1))  # type: ignore[arg-type]
        if kind == "end":
            return tokens
        at = match.end()
