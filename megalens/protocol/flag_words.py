"""Flags as people write them in a shell."""

from __future__ import annotations

import argparse
from typing import Any

from .plain_json import parse_json

__all__ = ["flags_from_text", "words_from_text"]


def words_from_text(text: str) -> list[str]:
    """Return the words of a text with commas between them."""
    return [word.strip() for word in text.split(",") if word.strip()]


def flags_from_text(text: str) -> Any:
    """Read flag names with commas between them, or a JSON object of settings.

    Raises
    ------
    argparse.ArgumentTypeError
        When it is neither.
    """
    if not text.lstrip().startswith("{"):
        return words_from_text(text)
    try:
        return parse_json(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected names or a JSON object of flag settings: {error}"
        ) from error
