"""JSON that others wrote: read with bounds on everything that Python's own parser leaves open."""

from __future__ import annotations

import json
import re
from math import isfinite
from typing import Any

__all__ = ["parse_json"]

_MOST_DEPTH = 32
_MOST_VALUES = 2_000_000
# The largest that a browser's numbers hold, so that every reader can.
_MOST_INT = 2**53 - 1
_MOST_DIGITS = 17
_LONG_NUMBER = re.compile(r"[0-9]{16}")


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of JSON text in which every number is finite, whole ones at most 2^53 - 1, every text whole, every name once.

    Python's parser alone takes ``NaN`` and ``1e999``, integers of 4,300 digits, halves of surrogate pairs and names that come twice, all of which end somewhere else as an
    error of another kind, and lets text nest so deeply that writing it again fails.

    Raises
    ------
    ValueError
        Saying what was expected. Nothing else is raised, whatever the text is.
    """
    try:
        if not isinstance(text, str):
            text = text.decode("utf-8")
        opened = text.count("[") + text.count("{")
        if opened + text.count(",") > _MOST_VALUES:
            # A value in memory takes up to a hundred times what it takes as text.
            raise ValueError(f"there must be at most {_MOST_VALUES} values")
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            # Few texts have a long number, and a call for every number of the others would cost more than all the rest.
            parse_int=_bounded if _LONG_NUMBER.search(text) else None,
            object_pairs_hook=_object,
        )
        if "\\u" in text:
            # Half a surrogate pair could not be sent on.
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise ValueError("text must be whole UTF-8, without halves of surrogate pairs") from None
    except RecursionError:
        raise ValueError(f"values must nest at most {_MOST_DEPTH} levels deep") from None
    if opened > _MOST_DEPTH and _deeper_than(value, _MOST_DEPTH):
        raise ValueError(f"values must nest at most {_MOST_DEPTH} levels deep")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"a name must come once in an object, and {twice!r:.60} comes twice")
    return made


def _bounded(text: str) -> int:
    # Digits are counted first: to read 4,300 of them takes long, and of more Python refuses.
    value = int(text) if len(text) <= _MOST_DIGITS else _MOST_INT + 1
    if abs(value) > _MOST_INT:
        raise ValueError(f"a whole number must be at most {_MOST_INT}, got {text:.30}")
    return value


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        _refuse_constant(text)
    return value


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"a number must be finite, got {name:.30}")


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True
