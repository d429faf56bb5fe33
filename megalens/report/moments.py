"""The explorer of statistics, frozen: what it asks of the run's moments, and the pictures of the answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ..client import ClientError, Run
from ..client.moments import MomentQuery, MomentSource
from ..client.other_runs import Others, nobody
from .moment_layers import layers_picture
from .moment_lines import OtherGroups, lines_picture
from .moment_map import map_picture
from .moment_series import Series, SeriesGroups, shown
from .moment_words import capital, quantity_words, stats_words
from .picture import Picture
from .words import clean, integer_text

__all__ = ["columns_of", "drawn_step", "measured_of", "moments_pictures", "moments_query", "read_series"]

_LINE_POINTS = 2400
# Where one of two runs left a step out, their comparison has none there.
_COMPARED_POINTS = 20_000
_MAP_POINTS = 4800
_MAP_ROWS = 200
_MOST_WARNINGS = 4
_COLUMNS = {"layer_map": ["layer"], "item_map": ["item_type"], "tensors": ["name"]}


def moments_pictures(
    run: Run,
    options: Mapping[str, Any],
    *,
    others: Others = nobody,
    progress: Callable[[float], object] | None = None,
) -> list[Picture]:
    """Read and draw what the explorer shows: of an overview the total and the families, else one picture.

    Parameters
    ----------
    run : Run
        The run.
    options : mapping
        All options of the view ``moments``.
    others : callable
        Opens the runs that it is compared with.
    progress : callable, optional
        Called with the share that is read, 0 to 1; raise from it to cancel.
    """
    source = run.moment_source
    source.refresh()
    name = capital(quantity_words(options))
    measured = measured_of(options)
    known = {each["stat"] for each in source.index()["stats"]}
    if measured not in known:
        there = ", ".join(stats_words(stat) for stat in sorted(known)) or "no statistics at all"
        return [
            Picture(
                options,
                name,
                [f"{capital(stats_words(measured))} were not logged in this run; there are {there}."],
            )
        ]
    kind = options["kind"]
    groupings: list[Sequence[str]] = [[], ["family"]] if kind == "overview" else [columns_of(options)]
    notes = [*_bad_note(source, options), *_warnings(source)]
    pictures: list[Picture] = []
    for place, by in enumerate(groupings):
        if progress:
            progress(place / len(groupings))
        try:
            picture = _picture(run, options, by, name, others)
        except ClientError as error:
            if error.code != "mixed":
                raise
            # A refusal is what the live view shows too, and no reason to have no report.
            picture = Picture(options, name, [error.message])
        pictures.append(replace(picture, caption=[*picture.caption, *notes]) if place == 0 else picture)
    return pictures


def _picture(run: Run, options: Mapping[str, Any], by: Sequence[str], name: str, others: Others) -> Picture:
    kind, source = options["kind"], run.moment_source
    if kind == "layers":
        return _layers(source, options, name)
    maps = kind in ("layer_map", "item_map")
    compares = bool(options["runs"]) and options["compare"] != "overlay"
    points = _MAP_POINTS if maps else _COMPARED_POINTS if compares else _LINE_POINTS
    groups = _read(source, options, by, points=points)
    first, last = options["steps"] or (-np.inf, np.inf)
    if not any(((series.step >= first) & (series.step <= last)).any() for series in groups.series):
        return Picture(options, name, ["No tensor of this run matches the filter in these steps."])
    if maps:
        return map_picture(options, groups)
    compared = [_other_groups(others(each), each, options, by, points) for each in options["runs"]]
    return lines_picture(options, groups, name=run.name, others=compared)


def _other_groups(
    run: Run | None, run_id: str, options: Mapping[str, Any], by: Sequence[str], points: int
) -> OtherGroups:
    """Ask another run the same."""
    if run is None:
        return OtherGroups(run_id, None, there=False)
    source = run.moment_source
    source.refresh()
    known = {each["stat"] for each in source.index()["stats"]}
    if measured_of(options) not in known:
        return OtherGroups(run.name, None)
    return OtherGroups(run.name, _read(source, options, by, points=points))


def _layers(source: MomentSource, options: Mapping[str, Any], name: str) -> Picture:
    by = columns_of(options)
    wanted = drawn_step(source, options)
    if not math.isfinite(wanted):
        return Picture(options, name, ["No tensor of this run matches the filter."])
    # A number against the first one needs the steps before.
    steps_read = None if options["show"] != "raw" else [int(wanted), int(wanted)]
    groups = _read(source, {**options, "steps": steps_read}, by, points=None)
    groups = groups.each(lambda series: _at(shown(series, options["show"]), wanted))
    if not any(series.key[0] is not None for series in groups.series):
        return Picture(
            options, name, [f"No tensor of a layer matches the filter at step {integer_text(wanted)}."]
        )
    return layers_picture(options, groups, wanted)


def drawn_step(source: MomentSource, options: Mapping[str, Any]) -> float:
    """Return the step of the layer chart: the nearest to the chosen one that matches the filter, else the newest; NaN where there is none."""
    steps = _read(
        source, {**options, "steps": None, "mixed": True, "statistic": "nonfinite", "show": "raw"}, []
    ).steps
    if not len(steps):
        return math.nan
    return float(steps[-1] if options["step"] is None else steps[np.abs(steps - options["step"]).argmin()])


def _at(series: Series, step: float) -> Series:
    return series.at(np.flatnonzero(series.step == step))


def _read(
    source: MomentSource, options: Mapping[str, Any], by: Sequence[str], points: int | None = None
) -> SeriesGroups:
    """Ask for groups. Where numbers are shown against the first one, or smoothed, every step of the run is asked for."""
    whole = options["show"] != "raw" or options["smoothing"] > 1
    cut = whole and options["steps"] is not None
    maps = options["kind"] in ("layer_map", "item_map")
    query = replace(moments_query(options, by, None if whole else options["steps"]), lean=True)
    if points is not None:
        series = None if cut else _MAP_ROWS if maps else options["series"]
        query = replace(query, points=None if whole else points, series=series)
    answer = source.groups(query)
    return replace(
        read_series(answer.table, by), groups_total=answer.groups_total, steps_total=answer.steps_total
    )


def read_series(table: pa.Table, by: Sequence[str]) -> SeriesGroups:
    """Cut a table that is ordered by group, then step, into its groups."""
    keys = (
        list(zip(*(table[column].to_pylist() for column in by), strict=True)) if by else [()] * table.num_rows
    )
    starts = [place for place in range(len(keys)) if place == 0 or keys[place] != keys[place - 1]]

    def column(name: str) -> Any:
        return table[name].to_numpy()

    values = {
        "step": column("step").astype(np.float64),
        "samples": column("samples").astype(np.float64),
        "value": column("value"),
        "count": column("count"),
        "nonfinite": column("nan_count") + column("inf_count"),
        "error": column("error"),
        "scaled": column("scaled").astype(bool),
    }
    return SeriesGroups(
        by,
        [
            Series(keys[start], **{name: each[start:end] for name, each in values.items()})
            for start, end in pairwise([*starts, len(keys)])
        ],
    )


def columns_of(options: Mapping[str, Any]) -> list[str]:
    """Return the columns that make a group in this kind of chart; an overview's own are the total and the families."""
    if options["kind"] == "layers":
        return ["layer", *(column for column in options["by"] if column != "layer")]
    return list(_COLUMNS.get(options["kind"], options["by"]))


def moments_query(options: Mapping[str, Any], by: Sequence[str], steps: Sequence[int] | None) -> MomentQuery:
    """Return the question that options of the explorer ask, without leaving anything out."""
    first, last = steps or (None, None)
    return MomentQuery.of(
        measured_of(options),
        options["statistic"],
        by,
        pattern=options["pattern"],
        where=options["where"],
        first=first,
        last=last,
        ratio=options["ratio"],
        mixed=options["mixed"],
    )


def measured_of(options: Mapping[str, Any]) -> str:
    """Return what was measured: of a ratio what is divided."""
    return "grad" if options["ratio"] == "grad_to_param" else str(options["stat"])


def _bad_note(source: MomentSource, options: Mapping[str, Any]) -> list[str]:
    """Name the first step and tensor with values that are not finite."""
    plain = {
        **options,
        "statistic": "nonfinite",
        "ratio": "none",
        "show": "raw",
        "smoothing": 0,
        "mixed": True,
    }
    plain["stat"] = measured_of(options)
    steps = [
        int(series.step[series.bad.argmax()])
        for series in _read(source, {**plain, "steps": None}, []).series
        if series.bad.any()
    ]
    if not steps:
        return []
    step = steps[0]
    tensors = [
        each for each in _read(source, {**plain, "steps": [step, step]}, ["name"]).series if each.bad.any()
    ]
    if not tensors:
        return []
    count = float(tensors[0].nonfinite[0])
    how = integer_text(count) if np.isfinite(count) else "number not known"
    more = f" At that step in {integer_text(len(tensors) - 1)} more tensors." if len(tensors) > 1 else ""
    what = stats_words(measured_of(options))
    return [
        f"First non-finite {what}: step {integer_text(step)}, {clean(str(tensors[0].key[0]))} ({how}).{more}"
    ]


def _warnings(source: MomentSource) -> list[str]:
    warnings = [clean(warning) for warning in source.warnings]
    more = len(warnings) - _MOST_WARNINGS
    return [
        *warnings[:_MOST_WARNINGS],
        *([f"{integer_text(more)} more notes on this run."] if more > 0 else []),
    ]
