"""Texts from outside as a terminal, a log and a page may have them."""

from __future__ import annotations

import re

__all__ = ["shown_text"]

# C0 but for line feed and tab, DEL and C1, the signs that turn text around, line separators, half characters.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def shown_text(text: object, most: int | None = None) -> str:
    """Return a text with U+FFFD for every character that a terminal would obey instead of showing it: names, addresses and errors may hold any.

    Parameters
    ----------
    text
        Anything; ``str`` of it is taken.
    most : int, optional
        For a name within a sentence: its longest text, in one line; what is longer ends in an ellipsis.
    """
    whole = str(text)
    if most is not None:
        whole = re.sub(r"[\n\t]", " ", whole if len(whole) <= most else whole[: most - 1] + "…")
    return _HIDDEN.sub("\ufffd", whole)
