"""The explorer of statistics as a person asks for it in a cell. The widget, and what reads its rows, are loaded on first use."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from .notebook_views import NotebookViews, Transform

if TYPE_CHECKING:
    from pandas import DataFrame

    from .widgets import Moments

__all__ = ["NotebookExplorer"]

Measured = Literal["param", "grad", "activation", "dgrad", "residual", "residual_dgrad"]
MomentStatistic = Literal[
    "l2",
    "rms",
    "mean",
    "variance",
    "std",
    "skewness",
    "kurtosis",
    "excess_kurtosis",
    "min",
    "max",
    "nonfinite",
]


class NotebookExplorer(NotebookViews):
    """The explorer beside the other views."""

    def explore(
        self,
        stat: Measured | MomentStatistic = "grad",
        statistic: MomentStatistic | None = None,
        kind: Literal["overview", "lines", "layers", "layer_map", "item_map", "tensors", "table"] = "lines",
        *,
        by: str | Sequence[str] = ("layer",),
        pattern: str | None = None,
        where: Mapping[str, Any] | None = None,
        steps: Sequence[int] | None = None,
        step: int | None = None,
        marks: Literal["lines", "bars"] = "lines",
        x: Literal["step", "samples"] = "step",
        show: Literal["raw", "relative", "delta", "percent"] = "raw",
        ratio: Literal["none", "grad_to_param", "gain"] = "none",
        transform: Transform = "linear",
        smoothing: int = 0,
        mixed: bool = False,
        series: int = 40,
        runs: Any = (),
        compare: Literal["overlay", "difference", "ratio"] = "overlay",
        derive: str | None = None,
        filter: str | None = None,
    ) -> Moments:
        """Explore the statistics of parameters, gradients and activations, over any grouping.

        ``run.explore("residual", "kurtosis", by="layer")``. The widget's ``.df`` has the same rows as a ``pandas.DataFrame``.

        Parameters
        ----------
        stat : str
            What was measured: ``param``, ``grad``, ``activation``, ``dgrad``, ``residual`` or ``residual_dgrad``. The name of a statistic is taken for
            ``statistic``, and gradients for what was measured: ``run.explore(stat="kurtosis")`` is ``run.explore("grad", "kurtosis")``.
        statistic : str, optional
            What is read of it: ``l2`` (the default), ``rms``, ``mean``, ``variance``, ``std``, ``skewness``, ``kurtosis``, ``excess_kurtosis``, ``min``, ``max``, or
            ``nonfinite``, the number of NaN and infinite values.
        kind : str
            ``lines``: each group over steps. ``overview``: total, largest moves and families. ``layers``: each layer at one step. ``layer_map`` and ``item_map``:
            layer or item type × step. ``tensors``: single tensors over steps. ``table``: the rows.
        by : str or sequence of str
            Columns that make a group: ``name``, ``layer``, ``stack``, ``family``, ``kind``, ``module_type``, ``item_type``, ``role``, ``expert``, ``rank``, ``stage``,
            ``capture``; ``[]`` is the total.
        pattern : str, optional
            Regular expression whose groups are the column ``capture``; names in which it finds nothing are left out.
        where : mapping, optional
            Which tensors take part, by the same columns: ``{"layer": range(4), "role": "output", "name": "mlp"}``.
        steps : (int, int), optional
            Inclusive first and last step; all when absent.
        step : int, optional
            Step of the layer chart; follows the newest when absent.
        marks : {"lines", "bars"}
            How the layer chart is drawn.
        x : {"step", "samples"}
            What the horizontal axis is.
        show : {"raw", "relative", "delta", "percent"}
            The numbers; divided by the first of their series; minus it; the change from it in per cent.
        ratio : {"none", "grad_to_param", "gain"}
            Gradients over parameters, or what comes out of a module over what goes in.
        transform : {"linear", "log"}
            Scale of the values.
        smoothing : int
            Trailing mean over this many points; 0 draws the numbers as they are.
        mixed : bool
            Let inputs and outputs of modules enter one group, where the same values may count twice.
        series : int
            At most so many lines: those with the largest values.
        runs : run, str or sequence of them
            Other runs, or their ids, to compare with.
        compare : {"overlay", "difference", "ratio"}
            The runs over one another, or what each of the others is minus, or over, this one.
        derive : str, optional
            New columns of the table as expressions of arquero, such as ``"share = d.value / op.max(d.value)"``.
        filter : str, optional
            Which rows the table shows, such as ``"d.value > op.mean(d.value)"``.

        Raises
        ------
        megalens.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from .widgets import Moments

        stat, statistic = _measured(stat, statistic)
        options = {
            "stat": stat,
            "statistic": statistic,
            "kind": kind,
            "by": by,
            "pattern": pattern,
            "where": {} if where is None else where,
            "steps": steps,
            "step": step,
            "marks": marks,
            "x": x,
            "show": show,
            "ratio": ratio,
            "transform": transform,
            "smoothing": smoothing,
            "mixed": mixed,
            "series": series,
            "runs": runs,
            "compare": compare,
            "derive": derive,
            "filter": filter,
        }
        return Moments(self._reference(), options, self._painter(), self._framer())

    @abstractmethod
    def _framer(self) -> Callable[[Mapping[str, Any]], DataFrame]:
        """Return what reads the rows that checked options of the explorer draw."""


def _measured(stat: Any, statistic: Any) -> tuple[Any, Any]:
    """Tell what was measured from what is read of it: no word names both."""
    if stat not in get_args(MomentStatistic):
        return stat, "l2" if statistic is None else statistic
    if statistic is not None:
        from .widgets import WidgetError

        raise WidgetError(
            f"stat={stat!r} is a statistic, and statistic={statistic!r:.100} came beside it. Name what was measured with stat: {', '.join(get_args(Measured))}.",
            "stat",
        )
    return "grad", stat
