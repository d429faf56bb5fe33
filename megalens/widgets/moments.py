"""The explorer of a run's statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ipywidgets import register
from traitlets import observe

from .base import Painter, View
from .errors import WidgetError
from .option import Option

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Framer", "Moments"]

Framer = Callable[[Mapping[str, Any]], "DataFrame"]
"""Takes checked options and returns the rows that the view draws."""


@register
class Moments(View):
    """Any statistic of parameters, gradients and activations, over any grouping.

    Parameters
    ----------
    run, options, painter
        As for :class:`View`.
    framer : callable, optional
        Reads the rows that the view draws.
    """

    view_name: ClassVar[str] = "moments"

    stat = Option(help="What was measured: param, grad, activation, dgrad, residual or residual_dgrad.")
    statistic = Option(help="What is read of it: l2, rms, mean, std, kurtosis and so on.")
    kind = Option(help="lines, overview, layers, layer_map, item_map, tensors or table.")
    by = Option(help="Columns that make a group, such as ['layer', 'role']; [] is the total.")
    pattern = Option(help="Regular expression whose groups are the column 'capture', or None.")
    where = Option(help="Which tensors take part, such as {'layer': '0-3', 'role': ['output']}.")
    steps = Option(help="Inclusive first and last step, or None for all.")
    step = Option(help="Step of the layer chart; None follows the newest.")
    marks = Option(help="How the layer chart is drawn: 'lines' or 'bars'.")
    x = Option(help="'step' or 'samples'.")
    show = Option(help="raw, relative, delta or percent, to the first value of each series.")
    ratio = Option(help="none, grad_to_param or gain.")
    transform = Option(help="'linear' or 'log'.")
    smoothing = Option(help="Trailing mean over this many points; 0 draws the numbers as they are.")
    mixed = Option(help="Whether inputs and outputs of modules may enter one group.")
    series = Option(help="At most so many lines: those with the largest values.")
    runs = Option(help="Ids of other runs to compare with.")
    compare = Option(help="overlay, difference or ratio.")
    derive = Option(help="New columns of the table, as expressions of arquero, or None.")
    filter = Option(help="Which rows the table shows, as an expression of arquero, or None.")

    _sync = observe(
        "stat",
        "statistic",
        "kind",
        "by",
        "pattern",
        "where",
        "steps",
        "step",
        "marks",
        "x",
        "show",
        "ratio",
        "transform",
        "smoothing",
        "mixed",
        "series",
        "runs",
        "compare",
        "derive",
        "filter",
    )(View._option_changed)

    def __init__(
        self,
        run: Mapping[str, Any],
        options: Mapping[str, Any],
        painter: Painter | None = None,
        framer: Framer | None = None,
    ) -> None:
        self._framer = framer
        super().__init__(run, options, painter)

    @property
    def df(self) -> DataFrame:
        """The rows that the view draws, as the options are now: a ``pandas.DataFrame``, read anew each time.

        They are those of ``run.moments`` with the same grouping, filter and steps, and a column ``value`` with what is drawn: the statistic, or the ratio.
        It is neither thinned nor smoothed, and not cut to the largest series.
        """
        if self._framer is None:
            raise WidgetError("This view was made without a run. Make it with run.explore(…).", "run")
        return self._framer(self.options)
