"""What the explorer's pictures say in words, as ``src/views/moments`` says it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .moment_series import SeriesGroups
from .words import clean, integer_text, number_text

__all__ = [
    "axis_words",
    "bad_words",
    "by_words",
    "capital",
    "entry_text",
    "key_words",
    "left_out_words",
    "option_words",
    "quantity_words",
    "stats_words",
    "trust_words",
]

_STAT = {
    "param": "parameter",
    "grad": "gradient",
    "activation": "activation",
    "dgrad": "activation gradient",
    "residual": "residual stream",
    "residual_dgrad": "residual stream gradient",
}
_STATISTIC = {
    "l2": "L2",
    "rms": "RMS",
    "mean": "mean",
    "variance": "variance",
    "std": "standard deviation",
    "skewness": "skewness",
    "kurtosis": "kurtosis",
    "excess_kurtosis": "excess kurtosis",
    "min": "minimum",
    "max": "maximum",
    "nonfinite": "non-finite values",
}
_COLUMN = {
    "name": "tensor",
    "module_type": "module type",
    "item_type": "item type",
    "capture": "pattern",
}
_MOST_LETTERS = 28
_GAPS = re.compile(r"\.?(?:…\.)+")
_NUMBERED = ("layer", "expert", "rank", "stage")


def stats_words(stat: str) -> str:
    """Name several of what was measured: ``gradients``."""
    return f"{_STAT[stat]}s"


def quantity_words(options: Mapping[str, Any]) -> str:
    """Name the quantity that is drawn, before it is shown relative to anything: ``gradient L2``."""
    name = _STATISTIC[options["statistic"]]
    if options["ratio"] == "grad_to_param":
        return f"gradient over parameter {name}"
    if options["ratio"] == "gain":
        backward = options["stat"] == "dgrad"
        return (
            f"backward gain of {name} (input over output)"
            if backward
            else f"gain of {name} (output over input)"
        )
    return f"{_STAT[options['stat']]} {name}"


def axis_words(options: Mapping[str, Any], *, compared: bool = False) -> str:
    """Name the vertical axis, with what the numbers are relative to; ``compared`` where other runs are drawn."""
    tail = {
        "raw": "",
        "relative": ", times its first value",
        "delta": ", change since the first value",
        "percent": ", change since the first value, %",
    }
    words = quantity_words(options) + tail[options["show"]]
    if not compared or options["compare"] == "overlay":
        return words
    return f"{'difference' if options['compare'] == 'difference' else 'ratio'} of {words}"


def by_words(by: Sequence[str]) -> str:
    """Name a grouping: ``layer and role``; the total where there is none."""
    words = [_COLUMN.get(column, column) for column in by]
    if not words:
        return "total"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def key_words(key: Sequence[Any], by: Sequence[str]) -> str:
    """Name a group by its key: ``layer 3 · output``."""
    if not key:
        return "all tensors"
    return " · ".join(
        f"no {_COLUMN.get(column, column)}"
        if value is None
        else f"{column} {value}"
        if column in _NUMBERED
        else clean(str(value))
        for value, column in zip(key, by, strict=True)
    )


def entry_text(words: str) -> str:
    """Shorten a group's name to what a legend or the side of a map has room for: numbers of layers and experts stay, and as much of its end as fits."""
    parts = words.split(".")
    for first in range(len(parts)):
        kept = [part if at >= first or part.isdecimal() else "…" for at, part in enumerate(parts)]
        text = _GAPS.sub("…", ".".join(kept))
        if len(text) <= _MOST_LETTERS:
            return text
    return f"…{words[1 - _MOST_LETTERS :]}"


def left_out_words(every: SeriesGroups, drawn: SeriesGroups) -> list[str]:
    """Say what was left out of what is drawn: series and steps."""
    lines = []
    steps = max(every.steps_total, len(every.steps))
    if len(drawn.steps) < steps:
        lines.append(
            f"{integer_text(len(drawn.steps))} of {integer_text(steps)} steps are drawn; every minimum and maximum is kept."
        )
    total = max(every.groups_total, len(every.series))
    if len(drawn.series) < total:
        lines.append(
            f"{integer_text(len(drawn.series))} of {integer_text(total)} groups are drawn: those with the largest values."
        )
    return lines


def bad_words(groups: SeriesGroups, run: str = "") -> list[str]:
    """Say at how many steps values are not finite; of another run, if it is named."""
    bad = {float(step) for series in groups.series for step in series.step[series.bad]}
    if not bad:
        return []
    of = f" of {run}" if run else ""
    several = "s" if len(bad) > 1 else ""
    return [
        f"Values{of} that are not finite at {integer_text(len(bad))} step{several}, marked; statistics are over the finite ones."
    ]


def trust_words(groups: SeriesGroups, options: Mapping[str, Any]) -> list[str]:
    """Say how sure the numbers are: an unknown loss scale, what raw sums lost."""
    lines = []
    if any(series.scaled.any() for series in groups.series):
        lines.append(
            "These gradients may hold a loss scale that nobody recorded: compare them with one another, not with others."
        )
    worst = max(
        (
            (float(series.error[place]), series, place)
            for series in groups.series
            for place in [int(np.argmax(np.nan_to_num(series.error, posinf=np.inf)))]
        ),
        key=lambda found: found[0],
        default=None,
    )
    if worst is not None and worst[0] > 0:
        error, series, place = worst
        lines.append(
            f"Made of raw sums in single precision: at worst the {_STATISTIC[options['statistic']]} is known to ± {number_text(error, 2)} "
            f"(of {key_words(series.key, groups.by)}, at step {integer_text(float(series.step[place]))}, where it is {number_text(float(series.value[place]), 3)})."
        )
    return lines


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Say what the options do that is not literal."""
    lines = []
    if options["mixed"]:
        lines.append("Inputs and outputs of modules are mixed: the same values may count twice.")
    if options["smoothing"] > 1:
        lines.append(
            f"Trailing mean of {integer_text(options['smoothing'])} points; the numbers themselves are faint."
        )
    if options["show"] in ("relative", "percent"):
        lines.append("A series whose first value is 0 has no such number.")
    if options["runs"] and options["kind"] in ("layers", "layer_map", "item_map"):
        lines.append("Only this run is drawn here; the live view compares it with others.")
    return lines


def capital(text: str) -> str:
    """Begin with a capital."""
    return text[:1].upper() + text[1:]
