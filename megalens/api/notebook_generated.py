# Generated from protocol/views.schema.json by scripts/generate-protocol.mjs. Do not edit: run `npm run generate`.
# A word such as "forward" is no password.
# ruff: noqa: S107
"""The views of a run as a person asks for them in a cell. The widgets, and what draws their pictures, are loaded on first use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from ..pictures.widgets import (
        Attention,
        Distribution,
        Effects,
        Health,
        Heatmap,
        History,
        Lens,
        Overview,
        Pipeline,
        Scalars,
        Scatter,
        Split,
        Statistics,
        Timeline,
        Tokens,
        Trend,
        View,
    )

__all__ = ["NotebookViews"]

Layers = str | int | Iterable[int]
Positions = str | int | Iterable[int]
StepRange = str | int | slice | Iterable[int]
Pass = Literal["forward", "backward"]
Phase = Literal["train", "eval", "generate"]
Compare = Literal["overlay", "difference", "ratio"]
Align = Literal["step", "tokens", "time"]
Transform = Literal["linear", "log"]
Statistic = Literal[
    "mean",
    "std",
    "rms",
    "min",
    "max",
    "skewness",
    "kurtosis",
    "nonfinite",
    "kept_mean",
    "kept_std",
    "kept_rms",
    "kept_min",
    "kept_max",
    "kept_abs_mean",
]
Measured = Literal[
    "param",
    "grad",
    "activation",
    "dgrad",
    "residual",
    "residual_dgrad",
    "grad_unreduced",
    "param_origin",
    "exp_avg",
    "exp_avg_sq",
    "attention_entropy",
    "attention_max",
    "router_entropy",
    "router_similarity",
    "stable_rank",
    "kernel_norm",
    "underflow",
    "overflow",
    "saturated",
    "subnormal",
    "cast_error",
    "cast_scale",
    "cast_amax",
]
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
    "near_zero_share",
    "nonfinite",
]

_V = TypeVar("_V", bound="View")


class NotebookViews(ABC):
    """The views, which take exactly the options of ``protocol/views.schema.json`` and return a widget that draws in the cell."""

    def overview(
        self,
        names: str | Sequence[str] | None = None,
        *,
        steps: StepRange | None = None,
    ) -> Overview:
        """Draw a run at a glance: its loss, a map of its layers, what is out of the ordinary, where the time of a step goes, what tracing costs, and the newest text.

        Parameters
        ----------
        names : str or sequence of str, optional
            Scalars to draw; when absent every one that has 'loss' in its name, or else all.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Overview

        options = {
            "names": names,
            "steps": steps,
        }
        return self._show(Overview, options)

    def heatmap(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "0",
        step: int | None = None,
        sample: int = 0,
        head: int = 0,
        scale: Literal["shared", "own"] = "shared",
        transform: Transform = "linear",
        color_range: Sequence[float] | None = None,
        phase: Phase = "train",
        rank: int | None = None,
        pass_: Pass = "forward",
        generation: int | None = None,
    ) -> Heatmap:
        """Draw one flag as position × tile, one layer or small multiples, with a step slider.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers to draw, such as '0-3,7' or 'all'; more than one makes small multiples. Numbers will do
            too, such as ``3`` or ``range(4)``.
        step : int, optional
            Step to draw; follows the newest when absent.
        sample : int
            Sample of the batch, counted from 0.
        head : int
            Head, where the tensor has a head axis, counted from 0.
        scale : {"shared", "own"}
            One colour scale for all layers, or one each.
        transform : {"linear", "log"}
            Scale of the values; log is symmetric about zero for signed values.
        color_range : (float, float), optional
            Lowest and highest value of the colours, which are then locked; those of the data when absent.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that
            replicas never mix.
        pass_ : {"forward", "backward"}
            backward shows the gradients of the same tensors. Python calls it pass_.
        generation : int, optional
            Number of a generation: its positions are put together from all its passes, position by tile,
            and sample is its sequence. 0 is the newest. A step as it is when absent.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Heatmap

        options = {
            "flag": flag,
            "part": part,
            "layers": layers,
            "step": step,
            "sample": sample,
            "head": head,
            "scale": scale,
            "transform": transform,
            "color_range": color_range,
            "phase": phase,
            "rank": rank,
            "pass": pass_,
            "generation": generation,
        }
        return self._show(Heatmap, options)

    def trend(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "all",
        statistic: Statistic = "rms",
        kind: Literal["lines", "heatmap"] = "lines",
        steps: StepRange | None = None,
        transform: Transform = "linear",
        color_range: Sequence[float] | None = None,
        phase: Phase = "train",
        rank: int | None = None,
        pass_: Pass = "forward",
        positions: Positions = "all",
        vector: int = 0,
        interval: Literal["none", "std", "ci95"] = "none",
        smoothing: int = 0,
        runs: Any = (),
        compare: Compare = "overlay",
        baseline: str | None = None,
        align: Align = "step",
        hidden: str | Sequence[str] = (),
        ignore_outliers: bool = False,
    ) -> Trend:
        """Draw a statistic of one flag per layer over steps, as lines or as layer × step cells.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers to draw, such as '0-3,7' or 'all'. Numbers will do too, such as ``3`` or ``range(4)``.
        statistic : str
            Over the finite values of the whole tensor of a layer and step; nonfinite counts the others.
            kept_…: over what the compressor kept of them. One of ``mean``, ``std``, ``rms``, ``min``,
            ``max``, ``skewness``, ``kurtosis``, ``nonfinite``, ``kept_mean``, ``kept_std``, ``kept_rms``,
            ``kept_min``, ``kept_max``, ``kept_abs_mean``.
        kind : {"lines", "heatmap"}
            A line for each layer, or layer × step cells.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        transform : {"linear", "log"}
            Scale of the values; log is symmetric about zero for signed values.
        color_range : (float, float), optional
            Lowest and highest value of the colours, which are then locked; those of the data when absent.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that
            replicas never mix.
        pass_ : {"forward", "backward"}
            backward shows the gradients of the same tensors. Python calls it pass_.
        positions : str, int or iterable of int
            Positions that enter, counted from 0, such as '0-15,31' or 'all'. Tensors without a position
            axis enter whole. Numbers will do too, such as ``3`` or ``range(4)``.
        vector : int
            Which vector of a projection, counted from 0. Other tensors have none.
        interval : {"none", "std", "ci95"}
            Band about the mean (only with the statistic mean), over positions and samples: one standard
            deviation, or a 95 % confidence interval. The interval takes positions for independent, which
            neighbours are not: the true one is wider.
        smoothing : int
            Trailing mean over this many points; 0 draws the numbers as they are.
        runs : run, str or sequence of them
            Other runs, or their ids, to compare with.
        compare : {"overlay", "difference", "ratio"}
            The runs over one another, or what each of the others is minus, or over, this one.
        baseline : str, optional
            Id of the run that the others are compared with as difference or ratio; this one when absent.
        align : {"step", "tokens", "time"}
            What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed
            (a scalar such as tokens says how many), or time since the run's first step.
        hidden : str or sequence of str
            Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run
            by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').
        ignore_outliers : bool
            Let the axis of values end where all but the outermost hundredth do; the caption says what lies
            outside.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Trend

        options = {
            "flag": flag,
            "part": part,
            "layers": layers,
            "statistic": statistic,
            "kind": kind,
            "steps": steps,
            "transform": transform,
            "color_range": color_range,
            "phase": phase,
            "rank": rank,
            "pass": pass_,
            "positions": positions,
            "vector": vector,
            "interval": interval,
            "smoothing": smoothing,
            "runs": runs,
            "compare": compare,
            "baseline": baseline,
            "align": align,
            "hidden": hidden,
            "ignore_outliers": ignore_outliers,
        }
        return self._show(Trend, options)

    def history(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "all",
        layer: int | None = None,
        step: int | None = None,
        statistic: Statistic = "rms",
        steps: StepRange | None = None,
        sample: int = 0,
        head: int = 0,
        transform: Transform = "linear",
        color_range: Sequence[float] | None = None,
        map_range: Sequence[float] | None = None,
        phase: Phase = "train",
        rank: int | None = None,
        pass_: Pass = "forward",
    ) -> History:
        """Draw a statistic of one flag as layer × step and, below it, the tensor of the chosen layer and step, with a slider over the steps.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers of the map, such as '0-3,7' or 'all'. Numbers will do too, such as ``3`` or ``range(4)``.
        layer : int, optional
            Layer whose tensor is drawn; the first when absent.
        step : int, optional
            Step whose tensor is drawn; follows the newest when absent.
        statistic : str
            Colour of the map, over the finite traced values of a layer and step; nonfinite counts the
            others. One of ``mean``, ``std``, ``rms``, ``min``, ``max``, ``skewness``, ``kurtosis``,
            ``nonfinite``, ``kept_mean``, ``kept_std``, ``kept_rms``, ``kept_min``, ``kept_max``,
            ``kept_abs_mean``.
        steps : int, range or slice, optional
            First and last step of the map, both included; all when absent. In Python a step, ``range(10,
            20)`` or ``slice(10, None)``, as everywhere there without the end.
        sample : int
            Sample of the batch, counted from 0.
        head : int
            Head, where the tensor has a head axis, counted from 0.
        transform : {"linear", "log"}
            Scale of the values; log is symmetric about zero for signed values.
        color_range : (float, float), optional
            Lowest and highest value of the tensor's colours, which are then locked; those of the data when
            absent.
        map_range : (float, float), optional
            The same of the map's colours.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that
            replicas never mix.
        pass_ : {"forward", "backward"}
            backward shows the gradients of the same tensors. Python calls it pass_.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import History

        options = {
            "flag": flag,
            "part": part,
            "layers": layers,
            "layer": layer,
            "step": step,
            "statistic": statistic,
            "steps": steps,
            "sample": sample,
            "head": head,
            "transform": transform,
            "color_range": color_range,
            "map_range": map_range,
            "phase": phase,
            "rank": rank,
            "pass": pass_,
        }
        return self._show(History, options)

    def distribution(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "all",
        tiles: Positions = "all",
        kind: Literal["map", "ridgeline", "quantiles"] = "map",
        steps: StepRange | None = None,
        transform: Transform = "linear",
        color_range: Sequence[float] | None = None,
        phase: Phase = "train",
        rank: int | None = None,
        replicas: Literal["lowest", "all"] = "lowest",
        pass_: Pass = "forward",
    ) -> Distribution:
        """Draw how the values of one flag are distributed over steps, from rows of the compressor Histogram: as a map, as ridges or as quantiles with their error.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers whose counts are added up, such as '0-3,7' or 'all'. Numbers will do too, such as ``3``
            or ``range(4)``.
        tiles : str, int or iterable of int
            Tiles of the histogram that are added up, counted from 0, such as '0-15,31' or 'all'. Numbers
            will do too, such as ``3`` or ``range(4)``.
        kind : {"map", "ridgeline", "quantiles"}
            The share of values in each bin by step, the same as ridges of some steps, or quantiles over
            steps.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        transform : {"linear", "log"}
            Scale of the values; log is symmetric about zero for signed values.
        color_range : (float, float), optional
            Lowest and highest value of the colours, which are then locked; those of the data when absent.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that
            replicas never mix.
        replicas : {"lowest", "all"}
            Whether the rows of one rank count, which rank names, or those of all ranks that sent some,
            added up.
        pass_ : {"forward", "backward"}
            backward shows the gradients of the same tensors. Python calls it pass_.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Distribution

        options = {
            "flag": flag,
            "part": part,
            "layers": layers,
            "tiles": tiles,
            "kind": kind,
            "steps": steps,
            "transform": transform,
            "color_range": color_range,
            "phase": phase,
            "rank": rank,
            "replicas": replicas,
            "pass": pass_,
        }
        return self._show(Distribution, options)

    def statistics(
        self,
        stat: Measured | MomentStatistic = "grad",
        statistic: MomentStatistic | None = None,
        kind: Literal[
            "overview", "lines", "layers", "layer_map", "item_map", "map", "tensors", "table"
        ] = "lines",
        *,
        by: str | Sequence[str] = ("layer",),
        pattern: str | None = None,
        where: Mapping[str, Any] | None = None,
        steps: StepRange | None = None,
        step: int | None = None,
        marks: Literal["lines", "bars"] = "lines",
        x: Literal["step", "samples"] = "step",
        show: Literal["raw", "relative", "delta", "percent"] = "raw",
        ratio: Literal["none", "grad_to_param", "gain"] = "none",
        transform: Transform = "linear",
        columns: Literal["step", "rank", "layer", "stage", "expert"] = "step",
        colors: Literal["continuous", "sigma"] = "continuous",
        cells: str | Sequence[str] = (),
        along: Literal["auto", "step", "rank", "layer", "stage", "expert", "name"] = "auto",
        color_range: Sequence[float] | None = None,
        smoothing: int = 0,
        mixed: bool = False,
        series: int = 40,
        runs: Any = (),
        compare: Compare = "overlay",
        align: Align = "step",
        hidden: str | Sequence[str] = (),
        ignore_outliers: bool = False,
        derive: str | None = None,
        filter: str | None = None,
    ) -> Statistics:
        """Draw the statistics of parameters, gradients and activations, over any grouping of tensors.

        ``run.statistics("residual", "kurtosis", by="layer")``. The widget's ``.df`` has the same rows as a
        ``pandas.DataFrame``.

        Parameters
        ----------
        stat : str
            What was measured. The last seven are of a cast to fewer bits: of underflow, overflow, saturated
            and subnormal the mean is the share of values. One of ``param``, ``grad``, ``activation``,
            ``dgrad``, ``residual``, ``residual_dgrad``, ``grad_unreduced``, ``param_origin``, ``exp_avg``,
            ``exp_avg_sq``, ``attention_entropy``, ``attention_max``, ``router_entropy``,
            ``router_similarity``, ``stable_rank``, ``kernel_norm``, ``underflow``, ``overflow``,
            ``saturated``, ``subnormal``, ``cast_error``, ``cast_scale``, ``cast_amax``. The name of a
            statistic is taken for ``statistic``, and gradients for what was measured:
            ``run.statistics(stat="kurtosis")`` is ``run.statistics("grad", "kurtosis")``.
        statistic : str, optional
            What is read of it; near_zero_share is the share of values of a size below 1e-8, nonfinite the
            number of NaN and infinite values. One of ``l2``, ``rms``, ``mean``, ``variance``, ``std``,
            ``skewness``, ``kurtosis``, ``excess_kurtosis``, ``min``, ``max``, ``near_zero_share``,
            ``nonfinite``. ``l2`` when absent.
        kind : str
            lines: each group over steps. overview: total, largest moves and families. layers: each layer at
            one step. map: each group × step, or × what columns says; layer_map and item_map: the same of
            layers or item types. tensors: single tensors over steps. table: the rows. One of ``overview``,
            ``lines``, ``layers``, ``layer_map``, ``item_map``, ``map``, ``tensors``, ``table``.
        by : str or sequence of str
            Columns that make a group: name, layer, stack, family, kind, module_type, item_type, role,
            expert, rank, stage, capture; an empty list is the total.
        pattern : str, optional
            Regular expression whose groups are the column 'capture'; names in which it finds nothing are
            left out.
        where : mapping, optional
            Which tensors take part, by the same columns, such as {'layer': '0-3', 'role': 'output', 'name':
            'mlp'}.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        step : int, optional
            Step of the layer chart, and of a map whose columns are not steps; follows the newest when
            absent.
        marks : {"lines", "bars"}
            How the layer chart is drawn.
        x : {"step", "samples"}
            What the horizontal axis is.
        show : str
            The numbers as they are; divided by the first of their series; minus it; or the change from it
            in per cent. The first is that of the whole run. One of ``raw``, ``relative``, ``delta``,
            ``percent``.
        ratio : {"none", "grad_to_param", "gain"}
            grad_to_param: gradients over parameters, by the same names. gain: what comes out of a module
            over what goes in (of dgrads in over out: the way the gradient goes).
        transform : {"linear", "log"}
            Scale of the values.
        columns : str
            What the columns of a map are: steps, or ranks, layers, stages or experts at one step. One of
            ``step``, ``rank``, ``layer``, ``stage``, ``expert``.
        colors : {"continuous", "sigma"}
            Colours of a map: without steps, or seven bands by the mean ± 1, 2 and 3 standard deviations of
            its cells.
        cells : str or sequence of str
            Cells of a map whose lines are drawn below it, as a click on them chooses: the values of the
            row's columns and that of the column as a list in JSON ('[3,120]': layer 3 at step 120).
        along : str
            What the lines of chosen cells go over. auto: what the map is of one of: ranks where its rows
            are not ranks and 'where' has some, tensors where its rows are ranks and 'where' has a name,
            else steps. One of ``auto``, ``step``, ``rank``, ``layer``, ``stage``, ``expert``, ``name``.
        color_range : (float, float), optional
            Lowest and highest value of the colours, which are then locked; those of the data when absent.
        smoothing : int
            Trailing mean over this many points; 0 draws the numbers as they are.
        mixed : bool
            Let inputs and outputs of modules enter one group, where the same values may count twice.
        series : int
            At most so many lines: those with the largest values. The caption says what is left out.
        runs : run, str or sequence of them
            Other runs, or their ids, to compare with.
        compare : {"overlay", "difference", "ratio"}
            The runs over one another, or what each of the others is minus, or over, this one.
        align : {"step", "tokens", "time"}
            What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed
            (a scalar such as tokens says how many), or time since the run's first step.
        hidden : str or sequence of str
            Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run
            by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').
        ignore_outliers : bool
            Let the axis of values end where all but the outermost hundredth do; the caption says what lies
            outside.
        derive : str, optional
            Of the table: new columns as expressions of arquero, such as 'share = d.value /
            op.max(d.value)', several with ';' between. Functions of several rows go over the rows of one
            group.
        filter : str, optional
            Of the table: which rows it shows, as an expression of arquero, such as 'd.value >
            op.mean(d.value)'.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Statistics

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
            "columns": columns,
            "colors": colors,
            "cells": cells,
            "along": along,
            "color_range": color_range,
            "smoothing": smoothing,
            "mixed": mixed,
            "series": series,
            "runs": runs,
            "compare": compare,
            "align": align,
            "hidden": hidden,
            "ignore_outliers": ignore_outliers,
            "derive": derive,
            "filter": filter,
        }
        return self._show(Statistics, options)

    def scalars_view(
        self,
        names: str | Sequence[str] | None = None,
        *,
        steps: StepRange | None = None,
        kind: Literal["lines", "page"] = "lines",
        search: str = "",
        folded: str | Sequence[str] = (),
        x: Literal["step", "time"] = "step",
        transform: Transform = "linear",
        smoothing: int = 0,
        runs: Any = (),
        compare: Compare = "overlay",
        baseline: str | None = None,
        aliases: str | Sequence[str] = (),
        align: Align = "step",
        hidden: str | Sequence[str] = (),
        ignore_outliers: bool = False,
    ) -> Scalars:
        """Draw named scalars over steps or time.

        Parameters
        ----------
        names : str or sequence of str, optional
            Names to draw; when absent every name that has 'loss' in it, or else all.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        kind : {"lines", "page"}
            lines: one picture, with a panel for each unit. page: a small picture for each scalar, in
            sections by the beginning of its name (train/, eval/).
        search : str
            Of the page: only scalars in whose names all of these words are found.
        folded : str or sequence of str
            Of the page: sections that are folded, such as 'train'.
        x : {"step", "time"}
            What the horizontal axis is.
        transform : {"linear", "log"}
            Scale of the values.
        smoothing : int
            Trailing mean over this many points; 0 draws the numbers as they are.
        runs : run, str or sequence of them
            Other runs, or their ids, to compare with.
        compare : {"overlay", "difference", "ratio"}
            The runs over one another, or what each of the others is minus, or over, this one.
        baseline : str, optional
            Id of the run that the others are compared with as difference or ratio; this one when absent.
        aliases : str or sequence of str
            What the runs are called here, this one first; '' keeps a run's own name. Runs of one name are a
            group: they have one colour, and are hidden together.
        align : {"step", "tokens", "time"}
            What the horizontal axis is, and so by what runs are compared: steps, tokens that were consumed
            (a scalar such as tokens says how many), or time since the run's first step.
        hidden : str or sequence of str
            Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run
            by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').
        ignore_outliers : bool
            Let the axis of values end where all but the outermost hundredth do; the caption says what lies
            outside.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Scalars

        options = {
            "names": names,
            "steps": steps,
            "kind": kind,
            "search": search,
            "folded": folded,
            "x": x,
            "transform": transform,
            "smoothing": smoothing,
            "runs": runs,
            "compare": compare,
            "baseline": baseline,
            "aliases": aliases,
            "align": align,
            "hidden": hidden,
            "ignore_outliers": ignore_outliers,
        }
        return self._show(Scalars, options)

    def health(
        self,
        *,
        severity: Literal["all", "critical", "warning", "note"] = "all",
        rule: str | None = None,
        steps: StepRange | None = None,
        name: str | None = None,
        step: int | None = None,
    ) -> Health:
        """Show whether a training is healthy: its first anomaly, what that reached next, and all alarms.

        Parameters
        ----------
        severity : str
            Alarms of this severity only. One of ``all``, ``critical``, ``warning``, ``note``.
        rule : str, optional
            Alarms of this rule only; of all when absent.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        name : str, optional
            Tensor or scalar whose line is drawn around an alarm; that of the first anomaly when absent.
        step : int, optional
            Step of that alarm; the first one of the tensor when absent.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Health

        options = {
            "severity": severity,
            "rule": rule,
            "steps": steps,
            "name": name,
            "step": step,
        }
        return self._show(Health, options)

    def timeline(
        self,
        ranks: str = "all",
        *,
        kind: Literal["lanes", "map"] = "lanes",
        steps: StepRange | None = None,
        path: bool = False,
        find: str = "",
        hidden: str | Sequence[str] = (),
    ) -> Timeline:
        """Show what each rank does in its steps, all on one clock, who makes the others wait, and what that costs.

        Parameters
        ----------
        ranks : str
            Ranks, such as '0-3,7'. Of more than 64 the first are drawn, those that make others wait among
            them.
        kind : {"lanes", "map"}
            A lane of spans for each rank, or how much longer each rank computes than its stage, rank ×
            step.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        path : bool
            Also draw the critical path: what each step waited for from its end back to its beginning, of at
            most 30 steps.
        find : str
            Spans with this in their name or kind are counted and can be gone to, one after the other.
        hidden : str or sequence of str
            Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run
            by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Timeline

        options = {
            "ranks": ranks,
            "kind": kind,
            "steps": steps,
            "path": path,
            "find": find,
            "hidden": hidden,
        }
        return self._show(Timeline, options)

    def tokens_view(
        self,
        generation: int | None = None,
        *,
        other: int | None = None,
        other_run: str | None = None,
        sequence: int = 0,
        color: Literal["probability", "surprise", "entropy", "rank", "none"] = "probability",
        position: int | None = None,
    ) -> Tokens:
        """Show the text that a model writes, token by token, with the probability of each and what else it could have been.

        Parameters
        ----------
        generation : int, optional
            Number of the generation; the newest when absent.
        other : int, optional
            Another generation to show beside it, with the first difference marked; of one under a
            perturbation its clean control when absent.
        other_run : str, optional
            Run of the other generation; the same run when absent.
        sequence : int
            Sequence of the generation, counted from 0; samples of one prompt are neighbours.
        color : str
            What colours the tokens: probability, surprise (−log2 of it, bits), entropy of the distribution
            (nats), or rank. One of ``probability``, ``surprise``, ``entropy``, ``rank``, ``none``.
        position : int, optional
            Position that is looked at, counted from 0; follows the newest, or what is pinned in another
            view, when absent.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Tokens

        options = {
            "generation": generation,
            "other": other,
            "other_run": other_run,
            "sequence": sequence,
            "color": color,
            "position": position,
        }
        return self._show(Tokens, options)

    def attention(
        self,
        layers: Layers = "0",
        heads: str | int | Iterable[int] = "all",
        *,
        generation: int | None = None,
        sequence: int = 0,
        step: int | None = None,
        kind: Literal["maps", "heads"] = "maps",
        measure: Literal["entropy", "distance", "first"] = "entropy",
        position: int | None = None,
        transform: Transform = "linear",
        color_range: Sequence[float] | None = None,
    ) -> Attention:
        """Draw attention probabilities of a generated text, layers × heads, or what distinguishes the heads.

        Parameters
        ----------
        generation : int, optional
            Number of the generation; the newest when absent.
        sequence : int
            Sequence of the generation, counted from 0; samples of one prompt are neighbours.
        step : int, optional
            Step of the training whose attention is drawn instead of a generation's, and sequence is its
            sample. When absent the generation's, and of a run that wrote nothing the newest step's.
        layers : str, int or iterable of int
            'all' or ranges such as '0-3,7'. Numbers will do too, such as ``3`` or ``range(4)``.
        heads : str, int or iterable of int
            Heads, such as '0-3', or 'all'. One layer and one head are drawn in full. Numbers will do too,
            such as ``3`` or ``range(4)``.
        kind : {"maps", "heads"}
            Query × key for each layer and head, or layer × head coloured by a measure of the head.
        measure : {"entropy", "distance", "first"}
            Of a head, over all queries: mean entropy of its attention (nats), mean distance to the key in
            tokens, or share on the first token.
        position : int, optional
            Position that is looked at, counted from 0; follows the newest, or what is pinned in another
            view, when absent.
        transform : {"linear", "log"}
            Scale of the values; log is symmetric about zero for signed values.
        color_range : (float, float), optional
            Lowest and highest value of the colours, which are then locked; those of the data when absent.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Attention

        options = {
            "generation": generation,
            "sequence": sequence,
            "step": step,
            "layers": layers,
            "heads": heads,
            "kind": kind,
            "measure": measure,
            "position": position,
            "transform": transform,
            "color_range": color_range,
        }
        return self._show(Attention, options)

    def projection(
        self,
        flag: str,
        *,
        part: str | None = None,
        layer: int = 0,
        keep_axes: bool = True,
        generations: str | int | Iterable[int] = "newest",
        method: Literal["pca", "umap"] = "pca",
        standardise: bool = False,
        across: int = 1,
        up: int = 2,
        neighbors: int = 15,
        seed: int = 0,
        color: Literal["prompt", "token", "position", "step"] = "prompt",
        group: str = "",
        position: int | None = None,
    ) -> Scatter:
        """Draw the vectors of tokens as points of a plane: PCA or UMAP of one flag.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layer : int
            Layer, counted from 0.
        keep_axes : bool
            Turn the points of each layer onto those of the layer before (Procrustes), so that they stay
            where they were when the layer changes. Otherwise the axes are each layer's own components.
        generations : str, int or iterable of int
            Generations whose tokens are drawn: 'newest', or numbers such as '3-5,8'. Numbers will do too,
            such as ``3`` or ``range(4)``.
        method : {"pca", "umap"}
            Principal components, with the variance that they explain, or UMAP, which keeps neighbours
            together and no distances.
        standardise : bool
            Divide each feature by its deviation first.
        across : int
            Principal component on the horizontal axis, counted from 1.
        up : int
            Principal component on the vertical axis.
        neighbors : int
            Neighbours that UMAP keeps together.
        seed : int
            Seed of UMAP.
        color : str
            What colours the points: the prompt, the token's text, its position, or the step. One of
            ``prompt``, ``token``, ``position``, ``step``.
        group : str
            Tokens that are looked at together, as generation:sequence:positions: '2:0:4-5,2:1:7'. Drawing a
            loop around them with Shift held, or a box with Ctrl and Shift, chooses them.
        position : int, optional
            Position that is marked in every sequence, counted from 0; what is pinned in another view when
            absent.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Scatter

        options = {
            "flag": flag,
            "part": part,
            "layer": layer,
            "keep_axes": keep_axes,
            "generations": generations,
            "method": method,
            "standardise": standardise,
            "across": across,
            "up": up,
            "neighbors": neighbors,
            "seed": seed,
            "color": color,
            "group": group,
            "position": position,
        }
        return self._show(Scatter, options)

    def lens(
        self,
        generation: int | None = None,
        *,
        sequence: int = 0,
        layers: Layers = "all",
        color: Literal["probability", "final", "rank", "entropy"] = "probability",
        position: int | None = None,
    ) -> Lens:
        """Show what each layer would predict at each position: the logit lens.

        Parameters
        ----------
        generation : int, optional
            Number of the generation; the newest when absent.
        sequence : int
            Sequence of the generation, counted from 0; samples of one prompt are neighbours.
        layers : str, int or iterable of int
            'all' or ranges such as '0-3,7'. Numbers will do too, such as ``3`` or ``range(4)``.
        color : str
            What colours a cell: the probability of its best candidate, that of the token that came in the
            end, the rank of that token, or the entropy (nats). One of ``probability``, ``final``, ``rank``,
            ``entropy``.
        position : int, optional
            Position that is looked at, counted from 0; follows the newest, or what is pinned in another
            view, when absent.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Lens

        options = {
            "generation": generation,
            "sequence": sequence,
            "layers": layers,
            "color": color,
            "position": position,
        }
        return self._show(Lens, options)

    def effects(
        self,
        generation: int | None = None,
        *,
        sequence: int = 0,
        kind: Literal["positions", "layers", "sweep"] = "positions",
        measure: Literal["kl", "changed", "distance", "divergence"] = "kl",
        position: int | None = None,
        transform: Transform = "linear",
    ) -> Effects:
        """Show what a perturbation changed: of each next token, of each layer, and over a sweep of settings.

        Parameters
        ----------
        generation : int, optional
            Number of the generation; the newest when absent.
        sequence : int
            Sequence of the generation, counted from 0; samples of one prompt are neighbours.
        kind : {"positions", "layers", "sweep"}
            A measure of each next token over positions; the distance of hidden states, layer × position; or
            a measure over the points of a sweep.
        measure : str
            Kullback-Leibler divergence (nats), change of the most probable token, relative distance of
            hidden states, or first position at which the text differs (of a sweep). One of ``kl``,
            ``changed``, ``distance``, ``divergence``.
        position : int, optional
            Position that is looked at, counted from 0; follows the newest, or what is pinned in another
            view, when absent.
        transform : {"linear", "log"}
            Scale of the values; log is symmetric about zero for signed values.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Effects

        options = {
            "generation": generation,
            "sequence": sequence,
            "kind": kind,
            "measure": measure,
            "position": position,
            "transform": transform,
        }
        return self._show(Effects, options)

    def pipeline_plan(
        self,
        schedule: Literal[
            "best",
            "measured",
            "gpipe",
            "1f1b",
            "interleaved_1f1b",
            "depth_first",
            "breadth_first",
            "megadpp",
            "zb_h1",
            "zb_h2",
            "zb_v",
            "dualpipe",
            "dualpipev",
            "search",
        ] = "best",
        *,
        kind: Literal["all", "plan", "memory", "schedules"] = "all",
        stages: int = 0,
        micro_batches: int = 0,
        chunks: int = 2,
        forward: float | None = None,
        input_gradient: float | None = None,
        weight_gradient: float | None = None,
        optimizer: float | None = None,
        latency: float | None = None,
        bandwidth: float | None = None,
        jitter: float | None = None,
        message_mb: float = 0,
        activation_mb: float = 0,
        weight_mb: float = 0,
        memory_gb: float | None = None,
        steps: StepRange | None = None,
        measured: bool = True,
        hidden: str | Sequence[str] = (),
    ) -> Pipeline:
        """Show what each pipeline stage does in a step: as planned by a schedule, as measured, and what other schedules would give in time and memory. Times that are not set here are the run's own where it recorded spans, else 1 ms.

        Parameters
        ----------
        schedule : str
            The schedule whose plan is drawn. best: the fastest within memory_gb; measured: the order in
            which the run's own steps ran. One of ``best``, ``measured``, ``gpipe``, ``1f1b``,
            ``interleaved_1f1b``, ``depth_first``, ``breadth_first``, ``megadpp``, ``zb_h1``, ``zb_h2``,
            ``zb_v``, ``dualpipe``, ``dualpipev``, ``search``.
        kind : str
            The plan as lanes of stages, its memory over time, the schedules side by side, or all three. One
            of ``all``, ``plan``, ``memory``, ``schedules``.
        stages : int
            Pipeline stages; 0: as many as the run has, 4 where it has none.
        micro_batches : int
            Micro-batches of a step; 0: as many as the run has, twice the stages where it has one.
        chunks : int
            Model chunks of a stage, for the schedules that take several.
        forward : float, optional
            ms of a forward pass of one micro-batch through one stage.
        input_gradient : float, optional
            ms of the part of its backward pass that gives the gradient of the stage's input.
        weight_gradient : float, optional
            ms of the part that gives the gradients of the weights.
        optimizer : float, optional
            ms of a stage's optimizer step.
        latency : float, optional
            ms before a message between two stages begins to arrive.
        bandwidth : float, optional
            GB/s of a link between two stages in each direction; 0: no limit.
        jitter : float, optional
            How much durations vary, % (standard deviation).
        message_mb : float
            MB of a micro-batch's activations between two stages.
        activation_mb : float
            MB that a stage keeps of one micro-batch for its backward pass.
        weight_mb : float
            MB of a stage's weights, gradients and optimizer state.
        memory_gb : float, optional
            GB that a stage may hold; none: no limit.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        measured : bool
            Lay the last measured step over the plan.
        hidden : str or sequence of str
            Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run
            by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Pipeline

        options = {
            "schedule": schedule,
            "kind": kind,
            "stages": stages,
            "micro_batches": micro_batches,
            "chunks": chunks,
            "forward": forward,
            "input_gradient": input_gradient,
            "weight_gradient": weight_gradient,
            "optimizer": optimizer,
            "latency": latency,
            "bandwidth": bandwidth,
            "jitter": jitter,
            "message_mb": message_mb,
            "activation_mb": activation_mb,
            "weight_mb": weight_mb,
            "memory_gb": memory_gb,
            "steps": steps,
            "measured": measured,
            "hidden": hidden,
        }
        return self._show(Pipeline, options)

    def split_plan(
        self,
        layout: Literal[
            "split", "run", "best", "ordinary", "recompute", "pipeline", "pipeline_recompute", "megafbd"
        ] = "split",
        *,
        kind: Literal["all", "plan", "map", "layouts"] = "all",
        rank_map: Literal["megalens", "megafbd", "one_flag"] = "megalens",
        tensor: int | None = None,
        pipeline: int | None = None,
        data: int | None = None,
        forward_tensor: int | None = None,
        last_forward: bool | None = None,
        devices: int | None = None,
        others: int | None = None,
        forward: float | None = None,
        backward: float | None = None,
        others_slower: float | None = None,
        micro_batches: int | None = None,
        model_layers: int | None = None,
        most_tensor: int | None = None,
        ahead: int | None = None,
        latency: float | None = None,
        bandwidth: float | None = None,
        message_mb: float = 0,
        activation_mb: float = 0,
        weight_mb: float = 0,
        state_mb: float | None = None,
        memory_gb: float | None = None,
        others_memory_gb: float | None = None,
        uncertainty: float = 5,
        steps: StepRange | None = None,
        measured: bool = True,
        hidden: str | Sequence[str] = (),
    ) -> Split:
        """Show which process does what where forward and backward passes run apart, what each does in a step, as planned and as measured, and whether that is worth it against other ways to train on the same devices. Times that are not set here are the run's own where it recorded spans.

        Parameters
        ----------
        layout : str
            The layout whose step is drawn. split: the best split; run: that of the run itself; best: the
            fastest of all; the others: the best of a family. One of ``split``, ``run``, ``best``,
            ``ordinary``, ``recompute``, ``pipeline``, ``pipeline_recompute``, ``megafbd``.
        kind : str
            The step as lanes of processes, the map of roles, the layouts side by side, or all three. One of
            ``all``, ``plan``, ``map``, ``layouts``.
        rank_map : {"megalens", "megafbd", "one_flag"}
            Whose map of roles is drawn: without a coordinator, that of MegaFBD with both of its flags, or
            what it means by one of them.
        tensor : int, optional
            Tensor-parallel degree of the map's backward processes; that of the layout when absent.
        pipeline : int, optional
            Stages of the map; those of the layout when absent.
        data : int, optional
            Replicas of the map; those of the layout when absent. Of MegaFBD's maps Megatron's data-parallel
            size is twice as much.
        forward_tensor : int, optional
            Tensor-parallel degree of the map's forward processes; that of the layout when absent.
        last_forward : bool, optional
            Whether the map's last stage has forward processes; as the layout when absent.
        devices : int, optional
            Devices of the first kind; of a split run those of forward processes.
        others : int, optional
            Devices of the second kind; of a split run those of backward processes. 0: none.
        forward : float, optional
            ms of a forward pass of one micro-batch through the whole model on a device of the first kind.
        backward : float, optional
            ms of its backward pass there.
        others_slower : float, optional
            How many times as long the second kind takes.
        micro_batches : int, optional
            Micro-batches of a step, of all replicas together.
        model_layers : int, optional
            Layers between which the model can be cut.
        most_tensor : int, optional
            Largest tensor-parallel degree that is tried.
        ahead : int, optional
            Micro-batches that a backward process recomputes ahead of their gradients.
        latency : float, optional
            ms before a message between two processes begins to arrive.
        bandwidth : float, optional
            GB/s of a link between two processes in each direction; 0: no limit.
        message_mb : float
            MB of a micro-batch's activations between two layers.
        activation_mb : float
            MB that the whole model keeps of one micro-batch for its backward pass.
        weight_mb : float
            MB of the whole model's weights.
        state_mb : float, optional
            MB of its weights, gradients and optimizer state together; that of the weights when absent.
        memory_gb : float, optional
            GB that a device of the first kind may hold; none: no limit.
        others_memory_gb : float, optional
            GB that a device of the second kind may hold; none: no limit.
        uncertainty : float
            By how much the times may be off, % (standard deviation): the verdict's interval comes from it.
        steps : int, range or slice, optional
            First and last step, both included; all steps when absent. In Python a step, ``range(10, 20)``
            or ``slice(10, None)``, as everywhere there without the end.
        measured : bool
            Lay the last measured step over the plan of the run's own layout.
        hidden : str or sequence of str
            Lines that are not drawn: a scalar, or a group, by its name, a layer by its number ('3'), a run
            by its id where each has one line. Of several columns as a list in JSON ('[3,"output"]').

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from ..pictures.widgets import Split

        options = {
            "layout": layout,
            "kind": kind,
            "rank_map": rank_map,
            "tensor": tensor,
            "pipeline": pipeline,
            "data": data,
            "forward_tensor": forward_tensor,
            "last_forward": last_forward,
            "devices": devices,
            "others": others,
            "forward": forward,
            "backward": backward,
            "others_slower": others_slower,
            "micro_batches": micro_batches,
            "model_layers": model_layers,
            "most_tensor": most_tensor,
            "ahead": ahead,
            "latency": latency,
            "bandwidth": bandwidth,
            "message_mb": message_mb,
            "activation_mb": activation_mb,
            "weight_mb": weight_mb,
            "state_mb": state_mb,
            "memory_gb": memory_gb,
            "others_memory_gb": others_memory_gb,
            "uncertainty": uncertainty,
            "steps": steps,
            "measured": measured,
            "hidden": hidden,
        }
        return self._show(Split, options)

    @abstractmethod
    def _show(self, kind: type[_V], options: Mapping[str, Any]) -> _V:
        """Return a widget of one kind on this run. The options are checked by the widget."""
