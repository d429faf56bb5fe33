"""What somebody asks of the instrument ``pipeline``, as its settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import ProtocolError

__all__ = ["pipeline_settings"]

_MOST_BYTES = 60 << 10
"""Settings of all instruments together have 64 KiB."""


def pipeline_settings(given: Any) -> dict[str, Any]:
    """Return settings of the instrument ``pipeline``.

    Parameters
    ----------
    given : str or mapping
        Name of an order (``"greedy"``, ``"1f1b"``, …), a ``Plan`` of ``pipeline.schema.json``, what :func:`megalens.pipeline.plan` gave, or such settings.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, when it is none of these, or a plan too large to be sent.
    """
    field = "instruments.pipeline"
    if isinstance(given, str):
        return {"order": given}
    plan = getattr(given, "plan", given)
    if not isinstance(plan, Mapping) and hasattr(plan, "to_json"):
        plan = plan.to_json()
    if not isinstance(plan, Mapping):
        raise ProtocolError(
            "bad-parameter",
            f"pipeline must be the name of an order, a plan, or settings, got a {type(given).__name__}.",
            field=field,
        )
    settings = {"order": "plan", "plan": dict(plan)} if "micro_batches" in plan else dict(plan)
    size = len(json.dumps(settings, default=str))
    if size > _MOST_BYTES:
        raise ProtocolError(
            "bad-parameter",
            f'A plan that is sent to a run must have at most {_MOST_BYTES:,} bytes, got {size:,}. Name the schedule instead, pipeline="1f1b", which is planned where the training runs; or have the script read a file: schedule.use("plan.json").',
            field=f"{field}.plan",
        )
    return settings
