"""Texts from outside as a terminal, a log and a spreadsheet may have them."""

from __future__ import annotations

import re

__all__ = ["shown_text"]

# C0 but for line feed and tab, DEL and C1, the signs that turn text around, line separators, half characters.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown_text(text: object) -> str:
    """Return a text with U+FFFD for every character that a terminal would obey instead of showing it: names, addresses and errors may hold any."""
    return _HIDDEN.sub("\ufffd", str(text))
