"""What the engine says of a rank map: the same code as in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .ask import ask
from .errors import SplitError

__all__ = ["asked_map"]


def asked_map(
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    *,
    layout: str = "megalens",
    forward_tensor: int | None = None,
    last_forward: bool = True,
    context: int = 1,
    expert: int = 1,
    world: int | None = None,
    hosts: str | Path | None = None,
) -> dict[str, Any]:
    """Return the answer of the engine's job ``rank_map``; ``protocol/README.md`` says what is in it.

    Raises
    ------
    SplitError
        With the field at fault.
    EngineError
        When the engine cannot run.
    """
    request: dict[str, Any] = {
        "layout": layout,
        "tensor": tp,
        "pipeline": pp,
        "data": dp,
        "forward_tensor": forward_tensor,
        "last_forward": last_forward,
        "context": context,
        "expert": expert,
        "world": world,
        "hosts": None if hosts is None else _text_of(hosts),
    }
    return ask("rank_map", request)


def _text_of(hosts: str | Path) -> str:
    """Return a host file's text: what has a line end, a blank or ``=`` in it is one already."""
    if isinstance(hosts, str) and any(letter in hosts for letter in "\n ="):
        return hosts
    path = Path(hosts)
    if isinstance(hosts, str) and not path.exists() and "/" not in hosts:
        return hosts
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise SplitError(
            f"hosts must be a host file or its text, got {str(hosts)!r:.200}, which cannot be read: {error}",
            field="hosts",
        ) from error
