"""Which steps a person means: the one place where ``steps=`` is read."""

from __future__ import annotations

from typing import Any

from .errors import must_be
from .old_names import warn_old
from .ranges import Ranges, read_ranges

__all__ = ["LAST_STEP", "read_steps"]

LAST_STEP = 2**53 - 1
"""The end of what is open: whole numbers in JavaScript, too."""


def read_steps(value: Any, field: str = "steps", pairs: Any = tuple) -> Ranges | None:
    """Return inclusive ranges of steps, or None for all.

    Parameters
    ----------
    value : int, slice, range, iterable of int, str or None
        ``10``, ``slice(10, 20)`` and ``range(10, 20)`` (without 20, as everywhere in Python; a slice may be open), ``[10, 20]`` (these two), ``"10-19,30"``.
    field : str
        Its name, for the error.
    pairs : type or tuple of types
        Sequences in which two steps are the first and the last, as they were before, with a DeprecationWarning.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, naming the field.
    """
    if isinstance(value, pairs) and len(value) == 2 and _is_span(value):
        first, last = value[0] or 0, LAST_STEP if value[1] is None else int(value[1])
        end = ", None" if value[1] is None else f", {last + 1}"
        warn_old(
            f"{field}={value!r} is read as first and last step for one release more: write slice({int(first)}{end})."
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
    whole = all(hasattr(step, "__index__") and not isinstance(step, bool) for step in pair)
    return whole and int(last) - int(first) > 1
