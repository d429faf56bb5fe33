"""Inputs of cases as JSON files: found ones are kept under ``found/`` and run again in every test run."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

__all__ = ["FOUND", "from_kept", "read_found", "to_kept"]

FOUND = Path(__file__).parent / "found"


def to_kept(value: Any) -> Any:
    """Return an input as JSON; bytes as ``{"$bytes": base64}``."""
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {name: to_kept(each) for name, each in value.items()}
    return [to_kept(each) for each in value] if isinstance(value, (list, tuple)) else value


def from_kept(value: Any) -> Any:
    """Return the input again."""
    if isinstance(value, dict):
        if list(value) == ["$bytes"]:
            return base64.b64decode(value["$bytes"])
        return {name: from_kept(each) for name, each in value.items()}
    return [from_kept(each) for each in value] if isinstance(value, list) else value


def read_found() -> list[tuple[str, str, Any]]:
    """Return surface, what was wrong, and input of every case that was found once."""
    return [
        (path.stem, case["was"], from_kept(case["input"]))
        for path in sorted(FOUND.glob("*.json"))
        for case in json.loads(path.read_text(encoding="utf-8"))
    ]
