"""Whole numbers among the texts of a request."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ClientError

__all__ = ["whole_number"]


def whole_number(texts: Mapping[str, str], name: str, least: int | None = None) -> int | None:
    """Return a number of a request, or None where it has none.

    Raises
    ------
    ClientError
        ``bad-parameter`` for what is no whole number of 18 digits, or less than ``least``.
    """
    text = texts.get(name)
    if text is None:
        return None
    digits = text.removeprefix("-")
    number = int(text) if digits.isascii() and digits.isdecimal() and len(digits) <= 18 else None
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f" from {least}"
        raise ClientError(f"{name} must be a whole number{bound}.", code="bad-parameter", field=name)
    return number
