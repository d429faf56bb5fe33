"""The id of a new run, which is its folder's name too."""

from __future__ import annotations

import re
import secrets
import time

from .options import HubOptions

__all__ = ["new_run_id"]

_MOST_LETTERS = 40


def new_run_id(name: str) -> str:
    """Return an id that no other run has: when it began, what can be written of its name in any file system, and a random end."""
    words = re.sub(r"[^A-Za-z0-9._]+", "-", "" if name == HubOptions.name else name)[:_MOST_LETTERS].strip(
        "-."
    )
    return "-".join(
        filter(None, (time.strftime("%Y%m%d-%H%M%S", time.gmtime()), words, secrets.token_hex(4)))
    )
