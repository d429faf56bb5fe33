"""Texts of ranges such as ``'0-3,7'`` in calls, messages and filters. Twin: ``src/protocol/ranges.ts``.

Ranges stay pairs of bounds and are never written out as numbers, so that ``'0-999999999'`` takes no memory.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from .errors import ProtocolError, must_be
from .messages_generated import ErrorCode
from .old_names import warn_old
from .outside import MOST_WHOLE

__all__ = [
    "EMBEDDING",
    "Ranges",
    "in_ranges",
    "is_whole",
    "join_numbers",
    "layer_name",
    "parse_layers",
    "ranges_text",
    "read_ranges",
    "LAST_STEP",
    "read_steps",
]

EMBEDDING = -1
"""Stands for a layer where there is none, as for the embedding; the one negative number a text may name."""

Ranges = tuple[tuple[int, int], ...]
"""Inclusive bounds."""

# 15 digits are whole numbers in JavaScript, too.
_PIECE = re.compile(r"[ \t]*(-1|[0-9]{1,15})(?:[ \t]*-[ \t]*([0-9]{1,15}))?[ \t]*")
_MOST_CHARACTERS = 10_000
_MOST_NUMBERS = 100_000
_TEXTS = "'all' or ranges such as '0-3,7'"

LAST_STEP = MOST_WHOLE
"""The end of what is open: whole numbers in JavaScript, too."""


def read_ranges(value: Any, field: str, code: ErrorCode = "bad-parameter") -> Ranges | None:
    """Return inclusive ranges, or None for what leaves nothing out: ``None`` and ``'all'``.

    Parameters
    ----------
    value : int, str, range or iterable of int, or None
        ``3``, ``"0-3,7"``, ``range(4)``, ``[0, 2]``, ``"all"``. The ranges of a text stay as they are
        written.

    Raises
    ------
    ProtocolError
        Of this code, naming the field.
    """
    if value is None or (isinstance(value, str) and value.strip(" \t") == "all"):
        return None
    try:
        return _of_text(value) if isinstance(value, str) else join_numbers(value)
    except (ValueError, TypeError, AttributeError) as error:
        expected = _TEXTS if isinstance(value, str) else f"a number, several numbers, {_TEXTS}"
        raise must_be(field, expected, value, field, code) from error


def join_numbers(numbers: int | Iterable[int], most: int = _MOST_NUMBERS) -> Ranges:
    """Return the ranges of one number or several: ``((1, 3), (7, 7))`` for ``[7, 1, 2, 3]``.

    Raises
    ------
    TypeError, ValueError
        For anything but whole numbers, and for more than ``most`` of them.
    """
    if isinstance(numbers, range) and numbers.step == 1:
        return ((numbers.start, numbers.stop - 1),) if numbers else ()
    if isinstance(numbers, bytes):
        raise TypeError("bytes are no numbers")
    # An array without axes is iterable by its type only.
    one = not isinstance(numbers, Iterable) or is_whole(numbers, -sys.maxsize)
    several = [numbers] if one else islice(numbers, most + 1)  # type: ignore[arg-type]
    found = sorted({_whole(number) for number in several})
    if len(found) > most:
        raise ValueError(f"more than {most} numbers")
    joined: list[tuple[int, int]] = []
    for number in found:
        if joined and number == joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], number)
        else:
            joined.append((number, number))
    return tuple(joined)


def ranges_text(ranges: Sequence[tuple[int, int]]) -> str:
    """Return ranges as text, such as ``'1-3,7'``."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def in_ranges(value: int | None, ranges: Ranges | None) -> bool:
    """Whether a number is in one of the ranges: each is in ``None``; an unknown number, None, is in none."""
    return ranges is None or (value is not None and any(low <= value <= high for low, high in ranges))


def layer_name(layer: int) -> str:
    """Return ``layer 3``, or ``embedding`` for what is no layer's."""
    return "embedding" if layer == EMBEDDING else f"layer {layer}"


def parse_layers(text: str, existing: Iterable[int], field: str = "layers") -> list[int]:
    """Return the layers that a range text such as ``'0-3,7'`` or ``'all'`` names, in order.

    Raises
    ------
    ProtocolError
        ``unknown-layer`` when the text is no range, or either end of a range does not exist.
    """
    known = sorted(set(existing))
    ranges = read_ranges(text, field, "unknown-layer")
    alone = known == [EMBEDDING]
    span = "all" if alone else f"{known[0]}–{known[-1]}" if known else "none"
    there = (
        "It is at the embedding, outside the layers: choose 'all'."
        if alone
        else f"This model has layers {span}."
    )
    for low, high in ranges or ():
        missing = [layer for layer in (low, high) if layer not in known]
        if missing:
            raise ProtocolError(
                "unknown-layer",
                f"Layers {ranges_text([(low, high)])} do not all exist here. {there}",
                field=field,
                expected=span,
                got=str(missing[0]),
            )
    return [layer for layer in known if in_ranges(layer, ranges)]


def _of_text(text: str) -> Ranges:
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"more than {_MOST_CHARACTERS} characters")
    matches = [_PIECE.fullmatch(piece) for piece in text.split(",")]
    ranges = tuple((int(found[1]), int(found[2] or found[1])) for found in matches if found is not None)
    if len(ranges) < len(matches) or any(low > high for low, high in ranges):
        raise ValueError(text)
    return ranges


def is_whole(value: Any, least: int = 0) -> bool:
    """Whether a value is a whole number of any kind, numpy's too, and not below ``least``."""
    try:
        return _whole(value) >= least
    except (TypeError, ValueError, AttributeError):
        return False


def _whole(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    return int(value.__index__())


def read_steps(value: Any, field: str = "steps", pairs: Any = tuple) -> Ranges | None:
    """Return the steps that a person means by ``steps=…`` as inclusive ranges, or None for all.

    Parameters
    ----------
    value : int, slice, range, iterable of int, str or None
        ``10``, ``slice(10, 20)`` and ``range(10, 20)`` (without 20, as everywhere in Python; a slice may be
        open), ``[10, 20]`` (these two), ``"10-19,30"``.
    field : str
        Its name, for the error.
    pairs : type or tuple of types
        Sequences in which two steps are the first and the last, as they were before, with a
        DeprecationWarning.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, naming the field.
    """
    if isinstance(value, pairs) and len(value) == 2 and _is_span(value):
        first, last = value[0] or 0, LAST_STEP if value[1] is None else int(value[1])
        end = ", None" if value[1] is None else f", {last + 1}"
        warn_old(
            f"{field}={value!r} is read as first and last step for one release more: "
            f"write slice({int(first)}{end})."
        )
        value = slice(first, last + 1)
    try:
        if isinstance(value, slice):
            start, stop = (None if end is None else end.__index__() for end in (value.start, value.stop))
            if value.step not in (None, 1) or (start or 0) < 0 or (stop or 0) < 0:
                raise ValueError(value)
            last = LAST_STEP if stop is None else stop - 1
            return ((start or 0, last),) if last >= (start or 0) else ()
        ranges = read_ranges(value, field)
        if any(low < 0 for low, _ in ranges or ()):
            raise ValueError(value)
        return ranges
    except (ValueError, TypeError, AttributeError) as error:
        expected = "a step, slice(10, 20), range(10, 20), or a list of steps, all from 0"
        raise must_be(f"{field}=…", expected, value, field) from error


def _is_span(pair: Any) -> bool:
    """Whether two entries, taken for first and last, are other steps than the two."""
    first, last = pair
    if first is None or last is None:
        return True
    steps = all(hasattr(step, "__index__") and not isinstance(step, bool) for step in pair)
    return steps and int(last) - int(first) > 1
