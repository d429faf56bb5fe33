"""What an answer leaves out, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["some_of"]

_MOST_NAMED = 10


def some_of(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences, and how many more there are."""
    more = len(sentences) - _MOST_NAMED
    return [*sentences[:_MOST_NAMED], *([f"And {more} more."] if more > 0 else [])]
