"""A report of each of many runs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...protocol import MegalensError
from ...runs import Run
from ...runs.many import Paths, RunProgress, ask_each
from .build import ReportError, build_report, check_format, write_file

_MOST_LETTERS = 120


def report_all(
    paths: Paths,
    folder: str | os.PathLike[str],
    views: Sequence[Mapping[str, Any]] | None = None,
    *,
    format: str = "html",
    language: str = "en",
    engine: Any = None,
    progress: RunProgress | None = None,
) -> dict[str, Path | MegalensError]:
    """Freeze views of each of many runs into a file, and return the files by the runs' paths.

    A run of which no report can be made has its error there, and the others have their reports.

    Parameters
    ----------
    paths : str, path or sequence of them
        As in :func:`ask_all`.
    folder : str or path
        Where the files are written, called as the runs' folders; it is made.
    views, format, language : optional
        As in :meth:`NotebookRun.report`, of all alike: ``html``, ``ipynb`` or ``md``.
    engine : dask.distributed.Client or str, optional
        As in :func:`open`: a task makes each report, and its file is written here.
    progress : callable, optional
        As in :func:`ask_all`.

    Raises
    ------
    ReportError
        For a folder that cannot be made, and another format.
    ClientError
        Where the engine is gone; the files that were written stay.
    """
    check_format(format)
    target = Path(folder).expanduser()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"Could not make {target.name}: {error.strerror}.", field="folder") from error
    taken: set[str] = set()
    found: dict[str, Path | MegalensError] = {}
    for path, answer in ask_each(paths, _report, views, format, language, engine=engine, progress=progress):
        if isinstance(answer, MegalensError):
            found[path] = answer
            continue
        file = target / f"{_name(path, taken)}.{format}"
        try:
            write_file(file, answer)
        except ReportError as error:
            found[path] = error
        else:
            found[path] = file
    return found


def _report(run: Run, views: Sequence[Any] | None, format: str, language: str) -> bytes:
    return build_report(run, views, format=format, language=language)


def _name(path: str, taken: set[str]) -> str:
    """Return a plain name of its own for a run's file."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(path).name)[:_MOST_LETTERS].strip("-.") or "run"
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name
