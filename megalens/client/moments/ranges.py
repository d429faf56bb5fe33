"""Which numbers a person or a filter names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ..errors import ClientError

__all__ = ["Ranges", "in_ranges", "read_ranges"]

Ranges = tuple[tuple[int, int], ...]

_PIECE = re.compile(r"\s*([0-9]{1,18})(?:\s*-\s*([0-9]{1,18}))?\s*")


def read_ranges(value: Any, field: str) -> Ranges | None:
    """Return inclusive ranges, or None for what leaves nothing out.

    Parameters
    ----------
    value : int, str, range or iterable of int, or None
        ``3``, ``"0-3,7"``, ``range(4)``, ``[0, 2]``, ``"all"``.
    field : str
        Its name, for the error.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the field.
    """
    if value is None or (isinstance(value, str) and value.strip() == "all"):
        return None
    try:
        if isinstance(value, str):
            return tuple(_piece(piece) for piece in value.split(","))
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, range) and value.step == 1:
            return ((value.start, value.stop - 1),) if value else ()
        numbers: Iterable[Any] = value if isinstance(value, Iterable) else [value]
        return tuple((number, number) for number in sorted({_whole(number) for number in numbers}))
    except (ValueError, TypeError, AttributeError) as error:
        raise ClientError(
            f"{field} must be a number, several, a range, or a text such as 'all', '3', '0-3' or '0-3,7', and {value!r:.100} came.",
            code="bad-parameter",
            field=field,
        ) from error


def in_ranges(value: int | None, ranges: Ranges) -> bool:
    """Whether a number is in one of the ranges; None, which is not known, is in none."""
    return value is not None and any(low <= value <= high for low, high in ranges)


def _piece(text: str) -> tuple[int, int]:
    match = _PIECE.fullmatch(text)
    if match is None:
        raise ValueError(text)
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise ValueError(text)
    return low, high


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return int(value.__index__())
