"""The rows that the explorer of statistics draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..client import Run
from ..client.moments.frame import check_present, group_frame
from .moment_series import shown
from .moments import columns_of, drawn_step, measured_of, moments_query, read_series

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["explored"]


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
    if not run.live:
        check_present(source, [measured_of(options)])
    by = columns_of(options)
    # A number against the first one of its series needs every step.
    whole = options["show"] != "raw"
    answer = source.groups(moments_query(options, by, None if whole else options["steps"]))
    series = read_series(answer.table, by).series
    values = [shown(each, options["show"]).value for each in series]
    column = np.concatenate(values) if values else np.empty(0)
    frame = group_frame(measured_of(options), answer, value=column)
    first, last = options["steps"] or (-np.inf, np.inf)
    if options["kind"] == "layers":
        first = last = drawn_step(source, options)
    return frame[(frame["step"] >= first) & (frame["step"] <= last)].reset_index(drop=True)
