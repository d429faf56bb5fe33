"""From a run and a list of views to a file. The whole text of it is made in TypeScript, by the engine's job ``report``."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ...protocol.version import own_version
from ...runs import Run, RunFolder
from ...runs.answers import rows_of
from ...runs.other_runs import Others, answers_beside
from ..engine import EngineError, run_job
from .check import check_views
from .errors import ReportError
from .traced import traced_flags

__all__ = ["Progress", "build_report", "write_report"]

Progress = Callable[[int, int, str], object]
"""Called with (done, total, what comes next). Whatever it raises ends the report, and nothing is written."""

_FORMATS = ("html", "ipynb")
_PARTS = Path(__file__).parent / "runtime" / "report-page.json"
# Seconds that V8 may take for one report.
_TIMEOUT = 600.0
_SETTLE_LOOKS, _SETTLE_SECONDS = 10, 0.15


def build_report(
    run: Run,
    views: Sequence[Any] | None = None,
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
        Live or recorded. A live one is frozen as it is now, with all that its recording has where this machine has that.
    views : sequence, optional
        Options objects, each with ``view``, or widgets; when absent scalars and statistics where there are some, and trend and heatmap of the first
        traced flag.
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
        raise ReportError(f"format must be html or ipynb, got {format!r:.50}.", field="format")
    if title is not None and not isinstance(title, str):
        raise ReportError(f"title must be text, got {title!r:.50}.", field="title")
    _settle(run)
    args = {
        "run": run.id,
        "views": None if views is None else check_views(run, views),
        "title": title,
        "format": format,
        "folder": None if run.live or run.folder is None else folder or f"megalens-runs/{run.folder.name}",
        "made": time.time(),
        "version": own_version(),
        "traced": traced_flags(run),
        "parts": _parts() if format == "html" else None,
    }
    with answers_beside(run, others, _settle) as answers:
        try:
            _, text = run_job("report", args, answers, progress=progress, timeout=_TIMEOUT)
        except EngineError as error:
            raise ReportError(error.message, field=error.field) from error
    return text


def write_report(
    run: Run,
    path: str | os.PathLike[str],
    views: Sequence[Any] | None = None,
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
    if not isinstance(path, (str, os.PathLike)):
        raise ReportError(f"path must be the name of a file, got {path!r:.100}.", field="path")
    target = Path(path).expanduser()
    kind = target.suffix.removeprefix(".").lower()
    if kind not in _FORMATS:
        raise ReportError(
            f"A report's name must end in .html or .ipynb, got {target.name!r:.100}.", field="path"
        )
    if not target.parent.is_dir():
        raise ReportError(
            f"There is no folder {target.parent.name!r:.100} to write {target.name} into. Make it first.",
            field="path",
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


def _settle(run: Run) -> None:
    """Let what a hub keeps for those who come late arrive, where that is what is read: a run that was just connected to has nothing yet."""
    if isinstance(rows_of(run), RunFolder):
        return
    held = -1
    for _ in range(_SETTLE_LOOKS if run.live else 0):
        run.moment_source.refresh()
        moments = sum(each["rows"] for each in run.moment_source.index()["stats"])
        before, held = held, run.tensors().num_rows + run.scalars().num_rows + moments
        if held == before and held > 0:
            return
        time.sleep(_SETTLE_SECONDS)


def _relative(run: Run, target: Path) -> str | None:
    if run.folder is None:
        return None
    whole, here = run.folder.resolve(), target.parent.resolve()
    return (
        whole.relative_to(here).as_posix()
        if whole.is_relative_to(here) and here != Path(here.anchor)
        else None
    )


@cache
def _parts() -> Any:
    """Return the script and the styles of a page, as ``scripts/build-bundles.mjs`` made them."""
    try:
        return json.loads(_PARTS.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ReportError(
            "This installation lacks the report's script. Reinstall megalens; in a checkout run: npm run build:bundles"
        ) from None
