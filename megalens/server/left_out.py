"""What an answer leaves out, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol import shown_text

__all__ = ["closed_words", "some_of"]

_MOST_NAMED = 10


def closed_words(name: str, error: OSError) -> str:
    """Say that a folder may not be looked into, and why."""
    return f"{shown_text(name, 200)} cannot be looked into: {error.strerror}."


def some_of(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences, and how many more there are."""
    more = len(sentences) - _MOST_NAMED
    return [*sentences[:_MOST_NAMED], *([f"And {more} more."] if more > 0 else [])]
