"""From a run and a list of views to a file."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..client import Run
from ..client.other_runs import Others, beside, kept_open
from .draw import check_views, make_pictures
from .errors import ReportError
from .facts import read_facts
from .ipynb import build_notebook
from .page import build_page
from .picture import Picture
from .source import traced_flags
from .words import clean

__all__ = ["Progress", "build_report", "default_views", "write_report"]

Progress = Callable[[int, int, str], object]
"""Called with (done, total, what comes next). Whatever it raises ends the report, and nothing is written."""

_FORMATS = ("html", "ipynb")
_MOST_LAYERS = 9
_SETTLE_LOOKS, _SETTLE_SECONDS = 10, 0.15
# No page has more to give to the steps of its heatmaps: the script and the pictures take the rest.
_FRAME_ROOM = 1_200_000


def build_report(
    run: Run,
    views: Sequence[Mapping[str, Any]] | None = None,
    *,
    title: str | None = None,
    format: str = "html",
    folder: str | None = None,
    others: Others | None = None,
    progress: Progress | None = None,
) -> bytes:
    """Freeze views of a run.

    Parameters
    ----------
    run : Run
        Live or recorded. A live one is frozen as it is now.
    views : sequence of mapping, optional
        Options objects, each with ``view``; :func:`default_views` when absent.
    title : str, optional
        Title; the run's name when absent.
    format : {"html", "ipynb"}
        A page that draws without kernel and network, or a notebook with the views' own code.
    folder : str, optional
        Run folder as a notebook report opens it, relative to where the notebook will lie; ``megalens-runs/<folder>`` when absent.
    others : callable, optional
        Opens a run that a view compares with by its id, or gives None; it is closed here. When absent: the recordings beside this one.
    progress : callable, optional
        See :data:`Progress`.

    Returns
    -------
    bytes
        UTF-8 text of the file.

    Raises
    ------
    ReportError
        Naming the view and the field at fault.
    """
    if format not in _FORMATS:
        raise ReportError(f"format must be html or ipynb, and {format!r:.50} came.", field="format")
    if title is not None and not isinstance(title, str):
        raise ReportError(f"title must be text, and {title!r:.50} came.", field="title")
    _settle(run)
    checked = check_views(run, default_views(run) if views is None else views)
    total = 2 * len(checked)
    pictures: list[Picture] = []
    heatmaps = sum(options["view"] in ("heatmap", "history") for options in checked)
    room = _FRAME_ROOM // max(1, heatmaps) if format == "html" else 0
    with kept_open(others or beside(run), _settle) as opened:
        for place, options in enumerate(checked):
            where = f"views[{place}]"
            if progress:
                progress(place, total, f"Reading {options.get('flag') or options['view']}")
            reading = _within(progress, place, total)
            pictures += make_pictures(run, options, where, room=room, others=opened, progress=reading)
    facts = read_facts(run)
    heading = title or facts.name
    drawing = _after(progress, len(checked), total)
    if format == "html":
        text = build_page(facts, pictures, heading, progress=drawing)
    else:
        text = build_notebook(facts, pictures, heading, _opening(run, folder), progress=drawing)
    if progress:
        progress(total, total, "Done")
    return text.encode("utf-8")


def write_report(
    run: Run,
    path: str | os.PathLike[str],
    views: Sequence[Mapping[str, Any]] | None = None,
    title: str | None = None,
    *,
    progress: Progress | None = None,
) -> Path:
    """Freeze views of a run into a file, whole or not at all.

    Parameters
    ----------
    run, views, title, progress
        As for :func:`build_report`.
    path : str or path
        ``….html`` or ``….ipynb``. A file that is there is replaced.

    Returns
    -------
    pathlib.Path
        The file written.

    Raises
    ------
    ReportError
        When the name has another ending, the folder cannot be written, or a view is wrong.
    """
    target = Path(path).expanduser()
    kind = target.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise ReportError(
            f"A report's name ends in .html or .ipynb, and {target.name!r:.100} came.", field="path"
        )
    data = build_report(
        run, views, title=title, format=kind, folder=_relative(run, target), progress=progress
    )
    temporary: str | None = None
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    except OSError as error:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
        reason = error.strerror or str(error)
        raise ReportError(
            f"Could not write {target.name}: {reason}. Choose a folder that exists and can be written.",
            field="path",
        ) from error
    return target


def default_views(run: Run) -> list[dict[str, Any]]:
    """Return the views of a report that nobody chose: scalars and statistics where there are some, and heatmap and trend of the first traced flag."""
    statistics = any(each["rows"] for each in run.moment_source.index()["stats"])
    views: list[dict[str, Any]] = [] if statistics and not run.scalars().num_rows else [{"view": "scalars"}]
    if statistics:
        views.append({"view": "moments"})
    traced = [row["flag"] for row in traced_flags(run).to_pylist() if row["flag"] != "InputTokens"]
    order = list(run.flags)
    for flag in sorted(
        dict.fromkeys(traced), key=lambda each: order.index(each) if each in order else len(order)
    )[:1]:
        known = run.flags[flag]["layers"] if flag in run.flags else []
        layers = "all" if len(known) <= _MOST_LAYERS else str(known[0])
        views += [{"view": "trend", "flag": flag}, {"view": "heatmap", "flag": flag, "layers": layers}]
    return views


def _settle(run: Run) -> None:
    """Let what a hub keeps for those who come late arrive: a run that was just connected to has nothing yet."""
    held = -1
    for _ in range(_SETTLE_LOOKS if run.live else 0):
        run.moment_source.refresh()
        moments = sum(each["rows"] for each in run.moment_source.index()["stats"])
        before, held = held, run.tensors().num_rows + run.scalars().num_rows + moments
        if held == before and held > 0:
            return
        time.sleep(_SETTLE_SECONDS)


def _opening(run: Run, folder: str | None) -> str:
    if run.live or run.folder is None:
        return f'megalens.connect("{run.id}")'
    return f'megalens.open("{folder or f"megalens-runs/{clean(run.folder.name)}"}")'


def _relative(run: Run, target: Path) -> str | None:
    if run.folder is None:
        return None
    whole, here = run.folder.resolve(), target.parent.resolve()
    return (
        whole.relative_to(here).as_posix()
        if whole.is_relative_to(here) and here != Path(here.anchor)
        else None
    )


def _within(progress: Progress | None, place: int, total: int) -> Callable[[float], object] | None:
    if progress is None:
        return None
    return lambda share: progress(place, total, f"Reading, {share:.0%}")


def _after(progress: Progress | None, done: int, total: int) -> Progress | None:
    if progress is None:
        return None
    return lambda place, _, words: progress(done + place, total, words)
