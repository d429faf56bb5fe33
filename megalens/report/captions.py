"""Sentences that captions share: whose rows are drawn, what the compressor lost, where the rows come from. As ``src/views`` says them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from ..client import Run, RunFolder
from ..client.query import Query
from .describe import layer_words, list_words
from .source import Traced
from .words import clean, integer_text, number_text

__all__ = ["error_words", "measured_errors", "origin_words", "rank_words"]


def origin_words(origin: Mapping[str, Any] | None) -> list[str]:
    """Say where the rows come from when no tracer of ours sends them, and whether their steps are the training's own."""
    if not origin:
        return []
    lines = []
    if origin["kind"] == "replay":
        name = clean(origin.get("name") or "a recorded run")
        speed = origin.get("speed")
        lines.append(
            f"Replay of {name}."
            if speed is None
            else f"Replay of {name} at {number_text(speed)} × its speed."
        )
    if origin["steps"] == "inferred":
        lines.append(
            "Steps inferred: the foreign hub sends none."
            if origin["kind"] == "foreign"
            else "Steps inferred: the foreign hub that was recorded sent none."
        )
    return lines


def rank_words(
    where: Traced, layers: Sequence[int], rank: int | None, layout: Mapping[str, Any] | None
) -> list[str]:
    """Say whose rows are drawn where a run has several ranks."""
    drawn = sorted({where.ranks[layer] for layer in layers if layer in where.ranks})
    if not drawn or (len(where.seen) < 2 and drawn[0] == 0):
        return []
    replicas = bool(layout) and (layout or {}).get("dp", 1) > 1
    if rank is not None or len(drawn) == 1:
        return [f"{'Replica of' if replicas else 'From'} {_rank_name(drawn[0], layout)}."]
    tail = ": of each layer the replica of the lowest rank" if replicas else ""
    return [f"From ranks {list_words(drawn)}{tail}."]


def measured_errors(
    run: Run, query: Query, layers: Sequence[int], where: Traced
) -> dict[int, tuple[int, float, str]]:
    """Return (step, error, compressor) of the newest measured row of each layer that the query names."""
    columns = ["step", "layer", "rank", "compressor", "compression_error"]
    if run.folder is not None and not run.live and (run.folder / "run.json").is_file():
        table = RunFolder(run.folder).read("tensors", query, columns)
    else:
        table = query.filter(run.tensors(query.flag, None, query.part, None, query.phase)).select(columns)
    table = where.only(table.filter(pc.is_finite(table["compression_error"])))
    found: dict[int, tuple[int, float, str]] = {}
    for row in table.sort_by("step").to_pylist():
        if row["layer"] in layers:
            found[row["layer"]] = (row["step"], row["compression_error"], row["compressor"])
    return found


def error_words(
    rows: Sequence[Mapping[str, Any]], measured: Mapping[int, tuple[int, float, str]]
) -> list[str]:
    """Say what the compressor lost, as a part of the tensor's rms, and of which step that is known.

    ``rows`` are drawn, one a layer; ``measured`` is used where the drawn one was not measured and the compressor was the same.
    """
    known: list[tuple[int, int, float]] = []
    for row in rows:
        layer, error = int(row["layer"]), float(row["compression_error"])
        if math.isfinite(error):
            known.append((layer, int(row["step"]), error))
        elif layer in measured and measured[layer][2] == row["compressor"]:
            known.append((layer, *measured[layer][:2]))
    if not known:
        return []
    errors = [error for _, _, error in known]
    steps = sorted({step for _, step, _ in known})
    tail = f", in {layer_words([layer for layer, _, _ in known])}" if len(known) < len(rows) else ""
    if len(steps) > 1:
        tail += f", as measured at steps {integer_text(steps[0])} to {integer_text(steps[-1])}"
    elif steps[0] != int(rows[0]["step"]):
        tail += f", as measured at step {integer_text(steps[0])}"
    if max(errors) == 0:
        return [f"The compressor kept the whole of the tensor{tail}."]
    least, most = (f"{number_text(100 * error, 2)} %" for error in (min(errors), max(errors)))
    part = most if least == most else f"{least} to {most}"
    return [f"Lost to the compressor: {part} of the tensor’s rms{tail}."]


def _rank_name(rank: int, layout: Mapping[str, Any] | None) -> str:
    places = (layout or {}).get("ranks") or []
    place = next((each for each in places if each["rank"] == rank), None)
    axes = [axis for axis in ("tp", "pp", "dp") if place and (layout or {}).get(axis, 1) > 1]
    names = ", ".join(f"{axis} {place[axis]}" for axis in axes if place)
    return f"rank {rank} ({names})" if names else f"rank {rank}"
