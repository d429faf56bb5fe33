"""The rows that the explorer of statistics draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..run import Run
from .frame import check_present, group_frame
from .grouping.query import MomentQuery
from .source import MomentSource

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["explored"]

_COLUMNS = {"layer_map": ["layer"], "item_map": ["item_type"], "tensors": ["name"]}


def explored(run: Run, options: Mapping[str, Any]) -> DataFrame:
    """Return the rows of a run that options of the explorer draw: neither thinned nor smoothed, nor cut to the largest series.

    Parameters
    ----------
    run : Run
        The run.
    options : mapping
        All options of the view ``moments``.

    Returns
    -------
    pandas.DataFrame
        The columns of ``run.moments``, of a ratio those of what is divided, and ``value``: the statistic or the ratio, shown as the options say.

    Raises
    ------
    ClientError
        As ``run.moments`` does.
    """
    source = run.moment_source
    source.refresh()
    # Of a ratio it is what is divided.
    measured = "grad" if options["ratio"] == "grad_to_param" else str(options["stat"])
    if not run.live:
        check_present(source, [measured])
    steps = options["steps"]
    if options["kind"] == "layers" or _across(options):
        steps = _drawn_step(source, measured, options)
    by = _columns_of(options)
    answer = source.groups(
        _query(measured, options, options["statistic"], by, steps, options["mixed"], show=options["show"])
    )
    return group_frame(measured, answer, value=answer.table["value"].to_numpy())


def _columns_of(options: Mapping[str, Any]) -> list[str]:
    """Return the columns that make a group in this kind of chart; an overview's own are the total and the families."""
    if options["kind"] == "layers":
        return ["layer", *(column for column in options["by"] if column != "layer")]
    rows = list(_COLUMNS.get(options["kind"], options["by"]))
    across = _across(options)
    return [*(column for column in rows if column not in across), *across]


def _across(options: Mapping[str, Any]) -> list[str]:
    """Return the column that lies across a map, where that is not the step."""
    is_map = options["kind"] in ("map", "layer_map", "item_map")
    return [options["columns"]] if is_map and options["columns"] != "step" else []


def _drawn_step(source: MomentSource, measured: str, options: Mapping[str, Any]) -> tuple[int, int]:
    """Return the step of the layer chart, twice: the nearest to the chosen one that matches the filter, else the newest; where there is none, one before all."""
    found = source.groups(_query(measured, options, "nonfinite", [], None, True))
    steps = np.unique(found.table["step"].to_numpy())
    if not len(steps):
        return -1, -1
    step = int(steps[-1] if options["step"] is None else steps[np.abs(steps - options["step"]).argmin()])
    return step, step


def _query(
    measured: str,
    options: Mapping[str, Any],
    statistic: str,
    by: Sequence[str],
    steps: Sequence[int] | None,
    mixed: bool,
    show: str = "raw",
) -> MomentQuery:
    first, last = steps or (None, None)
    return MomentQuery.of(
        measured,
        statistic,
        by,
        pattern=options["pattern"],
        where=options["where"],
        first=first,
        last=last,
        ratio=options["ratio"],
        mixed=mixed,
        show=show,
    )
