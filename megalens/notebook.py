"""What a person types in a cell: a run with its views and its report. Composes client, widgets and report; loads the last two on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from .client import Run, open_run
from .client import connect as connect_run

if TYPE_CHECKING:
    from .widgets import Heatmap, History, Scalars, Trend, View

__all__ = ["NotebookRun", "connect", "open"]

Phase = Literal["train", "eval", "generate"]
Pass = Literal["forward", "backward"]
FORWARD: Pass = "forward"
Transform = Literal["linear", "log"]
Statistic = Literal["mean", "std", "min", "max", "rms", "abs_mean", "nonfinite"]
Layers = str | int | Iterable[int]
Positions = str | int | Iterable[int]


def connect(name: str | None = None, *, token: str | None = None, timeout: float = 10.0) -> NotebookRun:
    """Attach to a live run.

    Parameters
    ----------
    name : str, optional
        Name or id of the run, or the ``ws://`` address of its hub; the newest live run when absent.
    token : str, optional
        The hub's token, needed with an address only.
    timeout : float
        Seconds to wait for the hub's answer.

    Raises
    ------
    megalens.client.ClientError
        When there is no such run; says what there is.
    """
    return NotebookRun(connect_run(name, token=token, timeout=timeout))


def open(path: str | PathLike[str]) -> NotebookRun:
    """Open a recorded run's folder.

    Raises
    ------
    megalens.client.ClientError
        When the folder holds no run that this version can read.
    """
    return NotebookRun(open_run(path))


class NotebookRun:
    """A run, live or recorded, with its views.

    It has everything that :class:`megalens.client.Run` has (``configure``, ``tensors``, ``scalars``, ``wait`` …) and the views, which
    take exactly the options of ``protocol/views.schema.json`` and return a widget that draws in the cell.

    Parameters
    ----------
    run : megalens.client.Run
        The run to show. Closing one closes the other.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        """The run without the views."""
        return self._run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._run, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._run) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return repr(self._run)

    def __enter__(self) -> NotebookRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.close()

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

    def report(
        self,
        path: str | PathLike[str],
        views: Sequence[View | Mapping[str, Any]] | None = None,
        title: str | None = None,
        *,
        progress: Callable[[int, int, str], object] | None = None,
    ) -> Path:
        """Freeze views of this run into one file that shows them without a kernel and without a network.

        Parameters
        ----------
        path : str or path
            ``….html`` for a page, ``….ipynb`` for a notebook.
        views : sequence, optional
            Widgets of this run, or options objects with ``view`` in them. When absent: the scalars, and a heatmap and a trend of each
            of the first traced flags.
        title : str, optional
            Title of the page; the run's name when absent.
        progress : callable, optional
            Called with (done, total, what comes next) before each view; raise from it to cancel.

        Returns
        -------
        pathlib.Path
            The file written.

        Raises
        ------
        megalens.report.ReportError
            Naming the view and the field at fault. Nothing is written then.
        """
        from .report import write_report

        recipe = None if views is None else [dict(getattr(view, "options", view)) for view in views]
        return write_report(self._run, path, recipe, title, progress=progress)

    def _reference(self) -> dict[str, Any]:
        return {"id": self._run.id, "name": self._run.name, "folder": self._folder()}

    def _folder(self) -> str | None:
        """Return the recorded folder relative to here, or None: an absolute path says too much about a machine."""
        folder = getattr(self._run, "folder", None)
        if folder is None:
            return None
        here = Path.cwd().resolve()
        whole = Path(folder).resolve()
        if here == Path(here.anchor) or not whole.is_relative_to(here):
            return None
        return whole.relative_to(here).as_posix()

    def _painter(self) -> Callable[[Mapping[str, Any]], tuple[str, str]]:
        def paint(options: Mapping[str, Any]) -> tuple[str, str]:
            from .report import draw_picture

            return draw_picture(self._run, options)

        return paint
