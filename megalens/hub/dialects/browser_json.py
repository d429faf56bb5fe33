"""Numbers as JSON that a browser's ``JSON.parse`` takes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

__all__ = ["number_json", "numbers_json"]


def numbers_json(values: np.ndarray[Any, Any]) -> str:
    """Return a list of all values. Not-a-number is ``null``, as a browser itself writes it; infinity is ``1e999``, which is JSON and is read as infinity."""
    flat = values.ravel().tolist()
    if np.isfinite(values).all():
        return json.dumps(flat, separators=(",", ":"))
    return f"[{','.join(map(number_json, flat))}]"


def number_json(value: float) -> str:
    """Return one number, as :func:`numbers_json` writes it."""
    if math.isnan(value):
        return "null"
    if math.isinf(value):
        return "1e999" if value > 0 else "-1e999"
    return repr(value)
