"""A run in a cell, with its views and its report. Widgets and report are loaded on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, nullcontext
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ..protocol.old_names import warn_old
from ..protocol.views import view_named
from ..runs import Run, open_all_runs, open_run
from ..runs import connect as connect_run
from ..runs.run_words import unknown_flag
from ..runs.storage import is_address
from ..slices import named, run_attributes
from .notebook_generated import NotebookViews

if TYPE_CHECKING:
    from pandas import DataFrame

    from ..pictures.widgets import Overview, View

_V = TypeVar("_V", bound="View")

__all__ = ["NotebookRun", "connect", "open", "open_all", "show"]


def connect(name: str | None = None, *, token: str | None = None, timeout: float = 10.0) -> NotebookRun:
    """Attach to a live run; one that has ended is opened from its recording, by its id, in ``megalens-runs``
    here or in a folder above.

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
    megalens.runs.ClientError
        When there is no such run; says what there is.
    """
    return NotebookRun(connect_run(name, token=token, timeout=timeout))


def open(
    path: str | PathLike[str], *, progress: Callable[[int, int, str], object] | None = None
) -> NotebookRun:
    """Open a recorded run, or raw-moment statistics that another logger wrote.

    Parameters
    ----------
    path : str or path
        The run folder, or its address on other storage (``s3://bucket/run``, with ``megalens[remote]``); a
        folder that holds exactly one; a ``.jsonl`` file of raw moments, a
        ``training_stats`` folder, or a folder that holds exactly one run of them.
    progress : callable, optional
        Called with (bytes done, bytes in all, what is being done) while JSONL is read for the first time;
        raise from it to cancel. A line of text when absent.

    Raises
    ------
    megalens.runs.ClientError
        When the folder holds no run that this version can read.
    """
    from ..runs.moments import ProgressBar

    with closing(ProgressBar()) if progress is None else nullcontext(progress) as reported:
        return NotebookRun(open_run(path, reported))


def open_all(
    path: str | PathLike[str], *, progress: Callable[[int, int, str], object] | None = None
) -> dict[str, NotebookRun]:
    """Open every run below a path, by label: recorded runs, and every ``training_stats`` folder at any depth.

    Files are read when a run is first asked for something, so this is quick however many there are.
    Parameters and errors are those of :func:`open`.
    """
    from ..runs.moments import ProgressBar

    return {label: NotebookRun(run) for label, run in open_all_runs(path, progress or ProgressBar()).items()}


def show(run: NotebookRun | Run | str | PathLike[str] | None = None, **options: Any) -> Overview:
    """Show a run at a glance in the cell: :meth:`NotebookRun.overview` of a live or recorded run.

    Parameters
    ----------
    run : run, str or path, optional
        A run; the folder of a recording; name, id or address of a live run. The newest live run when absent.
    **options
        Those of the view: ``names``, ``steps``.

    Raises
    ------
    megalens.runs.ClientError
        When there is no such run; says what there is.
    megalens.pictures.widgets.WidgetError
        Naming the option that the view does not take.
    """
    if isinstance(run, NotebookRun):
        return run.overview(**options)
    if isinstance(run, Run):
        return NotebookRun(run).overview(**options)
    is_folder = run is not None and (is_address(run) or Path(run).exists())
    opened = open(run) if run is not None and is_folder else connect(None if run is None else str(run))
    return opened.overview(**options)


class NotebookRun(NotebookViews):
    """A run, live or recorded, with its views.

    It has everything that :class:`megalens.runs.Run` has (``configure``, ``tensors``, ``scalars``, ``wait``
    …) and the views, which take exactly the options of ``protocol/views.schema.json`` and return a widget
    that draws in the cell.

    Parameters
    ----------
    run : megalens.runs.Run
        The run to show. Closing one closes the other.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def run(self) -> Run:
        """The run without the views."""
        return self._run

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in named("notebook"):
            return getattr(self._run, name)
        return run_attributes("notebook", self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *(name for name in dir(self._run) if not name.startswith("_"))})

    def __repr__(self) -> str:
        return repr(self._run)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        # In a cell the run shows itself at a glance. A terminal has words only, and waits for no picture.
        words = {"text/plain": repr(self)}
        if not _in_cell():
            return words
        try:
            return {**self.overview()._repr_mimebundle_(**kwargs), **words}
        except ImportError:
            # Widgets are installed with JupyterLab; a kernel may be without.
            return words

    def __enter__(self) -> NotebookRun:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run.close()

    def view(self, name: str, **options: Any) -> View:
        """Show any view by its name: one of Megalens's own, or one that a JupyterLab extension brings.

        ``run.view("weight_norms")`` shows the view of that name; of a view of our own it does what its method
        does.

        Parameters
        ----------
        name : str
            Name of the view.
        **options
            Its options. Those of a view that another package brings are checked in the browser, where the
            view is known.

        Raises
        ------
        megalens.pictures.widgets.WidgetError
            Naming the option that the view does not take.
        """
        from ..pictures.widgets import VIEW_CLASSES, OtherView

        kind = VIEW_CLASSES.get(view_named(name))
        if kind is None:
            return OtherView(self._reference(), {"view": name, **options})
        return self._show(kind, options)

    def explore(self, *args: Any, **options: Any) -> View:
        """Show :meth:`statistics` under its old name, with a DeprecationWarning."""
        warn_old("run.explore is called run.statistics now. The next release no longer has run.explore.")
        return self.statistics(*args, **options)

    def _show(self, kind: type[_V], options: Mapping[str, Any]) -> _V:
        shown = kind(self._reference(), kind.read(options), self._paint, self._frame, self._run)
        flag = shown.options.get("flag")
        if flag is not None and self._run.flags and flag not in self._run.flags:
            from ..pictures.widgets import WidgetError

            raise WidgetError(unknown_flag(flag, self._run.flags), "flag")
        return shown

    def report(
        self,
        path: str | PathLike[str],
        views: Sequence[View | Mapping[str, Any]] | None = None,
        title: str | None = None,
        *,
        language: str = "en",
        progress: Callable[[int, int, str], object] | None = None,
    ) -> Path:
        """Freeze views of this run into one file that shows them without a kernel and without a network.

        Parameters
        ----------
        path : str or path
            ``….html`` for a page, ``….ipynb`` for a notebook, ``….md`` for what happened in words.
        views : sequence, optional
            Widgets of this run, or options objects with ``view`` in them. When absent: the run at a
            glance, the scalars, and a heatmap and a trend of each of the first traced flags.
        title : str, optional
            Title of the page; the run's name when absent.
        language : str, optional
            ``"en"``, or ``"zh-CN"`` for Simplified Chinese. What the run itself says stays as it is.
        progress : callable, optional
            Called with (done, total, what comes next) before each view; raise from it to cancel.

        Returns
        -------
        pathlib.Path
            The file written.

        Raises
        ------
        megalens.pictures.report.ReportError
            Naming the view and the field at fault. Nothing is written then.
        """
        from ..pictures.report import write_report

        return write_report(self._run, path, views, title, language=language, progress=progress)

    def _reference(self) -> dict[str, Any]:
        from ..runs.statistics_run import StatisticsRun

        reference: dict[str, Any] = {"id": self._run.id, "name": self._run.name, "folder": self._folder()}
        if isinstance(self._run, StatisticsRun):
            reference["kind"] = "statistics"
        return reference

    def _folder(self) -> str | None:
        """Return the recorded folder relative to here, or None: an absolute path reveals too much."""
        folder = getattr(self._run, "folder", None)
        if folder is None:
            return None
        here = Path.cwd().resolve()
        resolved = Path(folder).resolve()
        if here == Path(here.anchor) or not resolved.is_relative_to(here):
            return None
        return resolved.relative_to(here).as_posix()

    def _paint(self, options: Mapping[str, Any]) -> tuple[str, str]:
        from ..pictures.widgets.picture import draw_picture

        return draw_picture(self._run, options)

    def _frame(self, options: Mapping[str, Any]) -> DataFrame:
        from ..runs.moments.frame import explored

        return explored(self._run.moment_source, options, live=self._run.live)


def _in_cell() -> bool:
    """Return whether what is displayed here is displayed by a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    marimo = sys.modules.get("marimo")
    return getattr(shell, "kernel", None) is not None or (marimo is not None and marimo.running_in_notebook())
