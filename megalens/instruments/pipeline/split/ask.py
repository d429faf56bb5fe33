"""Questions to the engine, whose refusals are this room's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import SplitError

__all__ = ["ask"]

_SECONDS = 120.0


def ask(job: str, request: Mapping[str, Any], answers: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the answer of one of the engine's jobs; ``protocol/README.md`` says what is in it.

    Raises
    ------
    SplitError
        With the field at fault.
    EngineError
        When the engine cannot run.
    """
    from ....pictures.engine import EngineError, run_job

    try:
        answer, _ = run_job(job, request, answers or {}, timeout=_SECONDS)
    except EngineError as error:
        if error.field is None:
            raise
        raise SplitError(error.message, field=error.field) from error
    return answer  # type: ignore[no-any-return]
