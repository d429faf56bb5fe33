"""Settings of instruments: their bounds in messages, and how a change is merged into them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import ProtocolError, must_be

__all__ = ["check_settings_size", "merge_settings", "pipeline_settings"]

_MOST_BYTES = 64 << 10
"""Of the settings of all instruments together."""
_MOST_PLAN_BYTES = 60 << 10
_MOST_LEVELS = 6


def check_settings_size(settings: Any, field: str = "instruments") -> None:
    """Check the bounds of settings by name.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, where they are no JSON objects, too large or too deep.
    """
    if not isinstance(settings, Mapping):
        raise must_be(field, "an object of settings by instrument", settings, field)
    for name, each in settings.items():
        if not isinstance(name, str) or not isinstance(each, Mapping):
            raise must_be(f"{field}.{name}", "an object", each, f"{field}.{name}")
    level: list[Any] = [settings]
    for _ in range(_MOST_LEVELS):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, Mapping) else each)
            if isinstance(inner, (Mapping, list, tuple))
        ]
    if level:
        raise must_be(field, f"at most {_MOST_LEVELS} levels deep", "more", field)
    try:
        size = len(json.dumps(settings, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise must_be(field, "JSON", str(error), field) from error
    if size > _MOST_BYTES:
        raise must_be(field, f"at most {_MOST_BYTES:,} bytes", f"{size:,}", field)


def merge_settings(now: Any, patch: Any) -> Any:
    """Return settings after a JSON Merge Patch (RFC 7396): null removes, objects merge, all else replaces."""
    if not isinstance(patch, Mapping):
        return patch
    merged = dict(now) if isinstance(now, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = merge_settings(merged.get(name), value)
    return merged


def pipeline_settings(given: Any) -> dict[str, Any]:
    """Return settings of the instrument ``pipeline`` from an order's name, a plan or such settings.

    Parameters
    ----------
    given : str or mapping
        ``"greedy"``, ``"1f1b"``, …; a ``Plan`` of ``pipeline.schema.json``; what
        :func:`megalens.pipeline.plan` gave; or settings.

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
    if size > _MOST_PLAN_BYTES:
        raise ProtocolError(
            "bad-parameter",
            f"A plan that is sent to a run must have at most {_MOST_PLAN_BYTES:,} bytes, got {size:,}. "
            'Name the schedule instead, pipeline="1f1b", which is planned where the training runs; '
            'or have the script read a file: schedule.use("plan.json").',
            field=f"{field}.plan",
        )
    return settings
