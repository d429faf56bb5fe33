"""What a report says of its run beside the pictures. No token, no local path, no name of a machine or a person."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from ..client import Run
from .describe import layer_words
from .source import traced_flags
from .words import clean, count_text, date_text, integer_text, number_text

__all__ = ["Facts", "read_facts"]

_MOST_CHANGES = 20
# Programs call themselves so; whatever else a viewer calls itself may be a person's name.
_PROGRAMS = ("panel", "kernel", "tail", "tracer", "server")


@dataclass(frozen=True)
class Facts:
    """Facts about a run, in words.

    Attributes
    ----------
    name, id : str
        Of the run.
    facts : list of (str, str)
        Term and what is said of it.
    traced : list of (str, str, str, str)
        Flag, layers, compressor, steps of everything that was traced.
    changes : list of (str, str)
        Step and what was changed there while the run went on.
    events : str
        What else the audit holds, counted; empty when nothing.
    """

    name: str
    id: str
    facts: list[tuple[str, str]]
    traced: list[tuple[str, str, str, str]]
    changes: list[tuple[str, str]]
    events: str


def read_facts(run: Run) -> Facts:
    """Read the facts of a run."""
    status = run.status
    facts = [
        (
            "State",
            f"{status['state']} at step {integer_text(status['step'])}, started {date_text(run.started)}",
        ),
        ("Model", _model(run.model)),
        ("Layout", _layout(run.layout)),
        ("Tracing cost", _overhead(run, status)),
        ("Probes", _probes(status)),
        ("Not finite", _nonfinite(status)),
        ("Given up", _dropped(status)),
        (
            "Versions",
            ", ".join(f"{name} {version}" for name, version in run.versions.items()) or "not recorded",
        ),
    ]
    facts += [("Note", warning) for warning in run.warnings]
    changes, events = _audit(run)
    return Facts(
        name=clean(run.name),
        id=run.id,
        facts=[(term, clean(text)) for term, text in facts if text],
        traced=_traced(run),
        changes=[(step, clean(text)) for step, text in changes],
        events=events,
    )


def _model(model: Mapping[str, Any] | None) -> str:
    if not model:
        return "not announced"
    parts = [str(model["name"]), f"{model['layers']} layers"]
    parts += [
        f"{model[key]} {word}" for key, word in (("hidden", "hidden"), ("heads", "heads")) if model.get(key)
    ]
    if model.get("parameters"):
        parts.append(f"{count_text(model['parameters'])} parameters")
    parts += [str(model[key]) for key in ("dtype", "device") if model.get(key)]
    return ", ".join(parts)


def _layout(layout: Mapping[str, Any] | None) -> str:
    if not layout:
        return ""
    ranks = f"{layout['world_size']} rank{'' if layout['world_size'] == 1 else 's'}"
    return f"TP {layout['tp']}, PP {layout['pp']}, DP {layout['dp']}, {ranks}"


def _overhead(run: Run, status: Mapping[str, Any]) -> str:
    measured = status.get("overhead")
    if measured:
        low, high = number_text(measured["low"], 2), number_text(measured["high"], 2)
        return f"{number_text(measured['percent'], 2)} % of step time (95 % interval {low} to {high})"
    rows = run.scalars("megalens_overhead")["value"].to_pylist()
    values = [value for value in rows if math.isfinite(value)]
    if not values:
        return "not measured"
    mean, low, high = (number_text(n, 2) for n in (sum(values) / len(values), min(values), max(values)))
    return f"{mean} % of step time (mean of {len(values)} measurements, {low} to {high})"


def _probes(status: Mapping[str, Any]) -> str:
    probes = status.get("probes")
    if not probes:
        return ""
    missing = f"; silent: {', '.join(probes['missing'][:5])}" if probes["missing"] else ""
    return f"{probes['fired']} of {probes['expected']} fired{missing}"


def _nonfinite(status: Mapping[str, Any]) -> str:
    found = status.get("nonfinite")
    if not found:
        return ""
    first = found.get("first")
    where = f", first at step {first['step']} in layer {first['layer']} of {first['flag']}" if first else ""
    return f"{integer_text(found['count'])} entries{where}"


def _dropped(status: Mapping[str, Any]) -> str:
    dropped = status.get("dropped") or {}
    parts = [
        f"{integer_text(dropped[key])} rows at the {key}"
        for key in ("producer", "recorder")
        if dropped.get(key)
    ]
    return "; ".join(parts)


def _traced(run: Run) -> list[tuple[str, str, str, str]]:
    rows = []
    for row in traced_flags(run).to_pylist():
        info = run.flags.get(row["flag"])
        name = f"{info['title']} ({row['flag']})" if info else row["flag"]
        count = f"{integer_text(row['steps'])} step{'' if row['steps'] == 1 else 's'}"
        span = f"{integer_text(row['first'])} to {integer_text(row['last'])}"
        layers = layer_words(sorted(row["layers"]))
        rows.append((name, layers, clean(row["compressor"]), f"{count}, {span}"))
    return rows


def _audit(run: Run) -> tuple[list[tuple[str, str]], str]:
    table = run.audit()
    changes = []
    for row in table.filter(pc.equal(table["action"], "configure")).to_pylist():
        step = integer_text(row["step"]) if row["step"] >= 0 else "–"
        by = row["who"] if row["who"] in _PROGRAMS else "a viewer"
        changes.append((step, f"{_change_words(row['detail'])} (by {by})"))
    if len(changes) > _MOST_CHANGES:
        changes = [("…", f"{len(changes) - _MOST_CHANGES} earlier changes"), *changes[-_MOST_CHANGES:]]
    counts = Counter(action for action in table["action"].to_pylist() if action != "configure")
    return changes, ", ".join(f"{count} × {action}" for action, count in sorted(counts.items()))


def _change_words(detail: str) -> str:
    """Say what a patch changed. Its text came from a viewer, so it is read with care and never shown as it is."""
    try:
        patch = json.loads(detail)["patch"]
        entries = list(patch["flags"].items())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return "settings changed"
    words = []
    for flag, setting in entries:
        compressor = setting.get("compressor") if isinstance(setting, dict) else None
        if not isinstance(compressor, dict):
            words.append(f"{flag} off")
            continue
        params = compressor.get("params")
        text = ", ".join(f"{k}={v!r}" for k, v in params.items()) if isinstance(params, dict) else ""
        layers = setting.get("layers", "all")
        where = "all layers" if layers == "all" else f"layers {layers}"
        words.append(f"{flag} as {compressor.get('name')}({text}), {where}")
    return "; ".join(words) or "settings changed"
