"""Text of somebody else's, as it may be told to a person."""

from __future__ import annotations

import re

__all__ = ["plain_text"]

# What a terminal obeys, what turns the direction of reading, and halves of surrogate pairs; line breaks and tabs are text.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain_text(text: str) -> str:
    """Return a text with U+FFFD in place of every control character."""
    return _CONTROLS.sub("\ufffd", text)
