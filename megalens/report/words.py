"""Numbers and texts as a person reads them. The number format is that of ``src/charts/format.ts``."""

from __future__ import annotations

import math
import re
from datetime import datetime, timezone
from decimal import ROUND_HALF_UP, Context

__all__ = ["THIN_SPACE", "clean", "count_text", "date_text", "integer_text", "number_text", "typeset"]

THIN_SPACE = "\u2009"
"""Between thousands."""

_MINUS = "\u2212"
_SI = ("", "k", "M", "G", "T", "P")
_PATH = re.compile(
    r"(?:file:/{2,3}|[A-Za-z]:(?=[\\/])|~(?=/))?(?:(?<![\w.:])[\\/]|(?<=:)[\\/])(?:[^\\/\s'\"<>|]+[\\/])+"
)


def number_text(value: float, digits: int = 4) -> str:
    """Return a number with so many significant digits: thin-space thousands, a true minus, scientific below 1e-5 and from 1e5 on."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    if value == 0:
        return "0"
    exact = Context(digits, ROUND_HALF_UP).create_decimal(value)
    rounded = float(exact)
    size = abs(rounded)
    if size < 1e-5 or size >= 1e5:
        mantissa, exponent = f"{exact:.{digits - 1}e}".split("e")
        return typeset(f"{_trimmed(mantissa)}e{int(exponent)}")
    decimals = max(0, digits - 1 - math.floor(math.log10(size)))
    return typeset(_trimmed(f"{rounded:.{decimals}f}"))


def integer_text(value: float) -> str:
    """Return a whole number in full, such as a step."""
    return typeset(f"{round(value):d}") if math.isfinite(value) else number_text(value)


def count_text(value: float) -> str:
    """Return a count with an SI suffix: ``8.7k``; below 1000 as it is."""
    power = 0
    while abs(float(f"{value:.2e}")) >= 1000 and power < len(_SI) - 1:
        value /= 1000
        power += 1
    return f"{number_text(value, 3)}{_SI[power]}"


def date_text(seconds: float | None) -> str:
    """Return seconds since the epoch as a date and time in UTC, or a dash."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")


def typeset(text: str) -> str:
    """Return decimal text with thin spaces between thousands and true minuses."""
    mantissa, _, exponent = text.partition("e")
    whole, dot, fraction = mantissa.lstrip("-").partition(".")
    grouped = re.sub(r"\B(?=(\d{3})+$)", THIN_SPACE, whole)
    sign = _MINUS if text.startswith("-") else ""
    return sign + grouped + dot + fraction + (f"e{exponent.replace('-', _MINUS)}" if exponent else "")


def clean(text: str) -> str:
    """Return a text without the folders of any absolute path in it: a file that is passed on says nothing of the machine it came from."""
    return _PATH.sub("…/", text)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
