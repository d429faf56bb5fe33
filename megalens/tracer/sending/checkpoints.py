"""That the training saved itself, as a row of the stream ``audit``."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from ...protocol import shown_text
from .worker import Rows

__all__ = ["CHECKPOINT_BYTES", "AUDIT", "checkpoint_rows"]

AUDIT = "audit"
CHECKPOINT_BYTES = 512
"""About what one row takes while it waits."""

_LONGEST_NAME = 80


def checkpoint_rows(saved: Any, step: int) -> Rows:
    """Return the row that says what was saved after a step.

    Parameters
    ----------
    saved : str, bytes, os.PathLike or None
        Where it lies, or its name. Only the last part of a path is kept, and nothing of what an address asks for: what a recording says is read by others.
    step : int
        The step after which it was saved.
    """
    detail = {} if saved is None else {"name": _name_of(saved)}
    return {
        "step": [step],
        "time": [time.time()],
        "who": ["tracer"],
        "action": ["checkpoint"],
        "detail": [json.dumps(detail, ensure_ascii=False)],
    }


def _name_of(saved: Any) -> str:
    text = os.fsdecode(saved) if isinstance(saved, (bytes, os.PathLike)) else str(saved)
    if "://" in text:
        # Such as the signature of a storage's address.
        text = re.split(r"[?#]", text, maxsplit=1)[0]
    return shown_text(re.split(r"[/\\]", text.rstrip("/\\"))[-1], _LONGEST_NAME)
