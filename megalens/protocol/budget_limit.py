"""What tracing may cost, as people write it."""

from __future__ import annotations

import math
import re

from .errors import ProtocolError

__all__ = ["parse_budget"]

_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?:%\s*)?")


def parse_budget(budget: str | float | None, field: str = "budget") -> float | None:
    """Return a limit in per cent of step time from ``"1%"``, ``"0.5 %"``, ``1``, ``1.0`` or None for no limit.

    Parameters
    ----------
    budget : str, float or None
        What was written. A number is per cent: ``0.5`` is half a per cent, not a half.
    field : str
        Dotted path that an error names.

    Raises
    ------
    ProtocolError
        ``bad-parameter`` when it is none of these, or not above 0 and at most 100.
    """
    if budget is None:
        return None
    value = math.nan
    if isinstance(budget, str):
        found = _TEXT.fullmatch(budget)
        if found:
            value = float(found[1])
    elif isinstance(budget, (int, float)) and not isinstance(budget, bool):
        value = float(budget)
    if not 0 < value <= 100:
        raise ProtocolError(
            "bad-parameter",
            f"A budget must be per cent of step time, above 0 and at most 100, such as '1%', got {budget!r:.50}. None takes the limit away.",
            field=field,
            expected="'1%', 1.0 or None",
            got=repr(budget)[:200],
        )
    return value
