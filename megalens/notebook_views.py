"""The views of a run as a person asks for them in a cell. The widgets, and what draws their pictures, are loaded on first use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from .widgets import Heatmap, History, Scalars, Trend

__all__ = ["NotebookViews"]

Phase = Literal["train", "eval", "generate"]
Pass = Literal["forward", "backward"]
FORWARD: Pass = "forward"
Transform = Literal["linear", "log"]
Statistic = Literal["mean", "std", "min", "max", "rms", "abs_mean", "nonfinite"]
Layers = str | int | Iterable[int]
Positions = str | int | Iterable[int]


class NotebookViews(ABC):
    """The views, which take exactly the options of ``protocol/views.schema.json`` and return a widget that draws in the cell."""

    def heatmap(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "1",
        step: int | None = None,
        sample: int = 0,
        head: int = 0,
        scale: Literal["shared", "own"] = "shared",
        transform: Transform = "linear",
        phase: Phase = "train",
        rank: int | None = None,
        pass_: Pass = FORWARD,
    ) -> Heatmap:
        """Draw one flag as position × tile, one layer or small multiples, with a step slider.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers to draw, such as ``"1-4,7"``, ``"all"`` or ``range(1, 5)``.
        step : int, optional
            Step to draw; follows the newest when absent.
        sample, head : int
            Which sample of the batch, and which head where there is a head axis, counted from 0.
        scale : {"shared", "own"}
            One colour scale for all layers, or one each.
        transform : {"linear", "log"}
            ``log`` is symmetric about zero for signed values.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix.
        pass_ : {"forward", "backward"}
            ``backward`` shows the gradients of the same tensors.

        Raises
        ------
        megalens.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from .widgets import Heatmap

        options = {
            "flag": flag,
            "part": part,
            "layers": layers,
            "step": step,
            "sample": sample,
            "head": head,
            "scale": scale,
            "transform": transform,
            "phase": phase,
            "rank": rank,
            "pass": pass_,
        }
        return Heatmap(self._reference(), options, self._painter())

    def trend(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "all",
        statistic: Statistic = "rms",
        kind: Literal["lines", "heatmap"] = "lines",
        steps: Sequence[int] | None = None,
        transform: Transform = "linear",
        phase: Phase = "train",
        rank: int | None = None,
        pass_: Pass = FORWARD,
        positions: Positions = "all",
        vector: int = 0,
        interval: Literal["none", "std", "ci95"] = "none",
    ) -> Trend:
        """Draw a statistic of one flag per layer over steps.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers to draw.
        statistic : str
            Over the finite traced values of a layer and step; ``nonfinite`` counts the others.
        kind : {"lines", "heatmap"}
            A line for each layer, or layer × step cells.
        steps : (int, int), optional
            Inclusive first and last step; all when absent.
        transform : {"linear", "log"}
            Scale of the values.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix.
        pass_ : {"forward", "backward"}
            ``backward`` shows the gradients of the same tensors.
        positions : str, int or iterable of int
            Positions that enter, counted from 0, such as ``"0-15"``; tensors without a position axis enter whole.
        vector : int
            Which vector of a projection, counted from 0.
        interval : {"none", "std", "ci95"}
            Band about the mean (``statistic="mean"``) over positions and samples: one standard deviation, or a 95 % confidence interval. The
            latter takes positions for independent, which neighbours are not: the true one is wider.

        Raises
        ------
        megalens.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from .widgets import Trend

        options = {
            "flag": flag,
            "part": part,
            "layers": layers,
            "statistic": statistic,
            "kind": kind,
            "steps": steps,
            "transform": transform,
            "phase": phase,
            "rank": rank,
            "pass": pass_,
            "positions": positions,
            "vector": vector,
            "interval": interval,
        }
        return Trend(self._reference(), options, self._painter())

    def scalars_view(
        self,
        names: str | Sequence[str] | None = None,
        *,
        steps: Sequence[int] | None = None,
        x: Literal["step", "time"] = "step",
        transform: Transform = "linear",
        smoothing: int = 0,
    ) -> Scalars:
        """Draw named scalars over steps or time.

        Parameters
        ----------
        names : str or sequence of str, optional
            Names to draw; every name that has ``loss`` in it when absent, else all.
        steps : (int, int), optional
            Inclusive first and last step; all when absent.
        x : {"step", "time"}
            What the horizontal axis is.
        transform : {"linear", "log"}
            Scale of the values.
        smoothing : int
            Trailing mean over this many points; 0 draws the numbers as they are.

        Raises
        ------
        megalens.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from .widgets import Scalars

        options = {"names": names, "steps": steps, "x": x, "transform": transform, "smoothing": smoothing}
        return Scalars(self._reference(), options, self._painter())

    def history(
        self,
        flag: str,
        *,
        part: str | None = None,
        layers: Layers = "all",
        layer: int | None = None,
        step: int | None = None,
        statistic: Statistic = "rms",
        steps: Sequence[int] | None = None,
        sample: int = 0,
        head: int = 0,
        transform: Transform = "linear",
        phase: Phase = "train",
        rank: int | None = None,
        pass_: Pass = FORWARD,
    ) -> History:
        """Draw a statistic of one flag as layer × step and, below it, the tensor of the chosen layer and step, with a slider.

        Parameters
        ----------
        flag : str
            Trace point by name.
        part : str, optional
            Named part (q, k, v …); the first when absent.
        layers : str, int or iterable of int
            Layers of the map.
        layer : int, optional
            Layer whose tensor is drawn; the first when absent.
        step : int, optional
            Step whose tensor is drawn; follows the newest when absent.
        statistic : str
            Colour of the map, over the finite traced values of a layer and step.
        steps : (int, int), optional
            Inclusive first and last step of the map; all when absent.
        sample, head : int
            Which sample of the batch, and which head where there is a head axis, counted from 0.
        transform : {"linear", "log"}
            ``log`` is symmetric about zero for signed values.
        phase : {"train", "eval", "generate"}
            What the model was doing.
        rank : int, optional
            Global rank whose rows are shown; of each layer the lowest that has it when absent, so that replicas never mix.
        pass_ : {"forward", "backward"}
            ``backward`` shows the gradients of the same tensors.

        Raises
        ------
        megalens.widgets.WidgetError
            Naming the argument that is not one of the above.
        """
        from .widgets import History

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
            "phase": phase,
            "rank": rank,
            "pass": pass_,
        }
        return History(self._reference(), options, self._painter())

    @abstractmethod
    def _reference(self) -> dict[str, Any]:
        """Return the run's id, name and folder."""

    @abstractmethod
    def _painter(self) -> Callable[[Mapping[str, Any]], tuple[str, str]]:
        """Return what draws the static picture of checked options."""
