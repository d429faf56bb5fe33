"""Opening what is on disk: recorded runs, and raw-moment statistics that another logger wrote."""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..protocol import shown_text
from .dask_engine import DaskEngine
from .errors import ClientError, bad_argument
from .foreign_files import foreign_recording
from .recorded import RecordedRun, run_of_attempt
from .run import Run
from .run_folder import RunFolder
from .storage import is_address

if TYPE_CHECKING:
    from .answers import RunAnswers
    from .moments import Progress

_MOST_NAMED = 10

Others = Callable[[str], Run | None]
"""Opens a run by its id; None where none can be read."""


# The runs that views compare with.
def neighbouring_runs(run: Run) -> Others:
    """Return what opens the recordings in the same folder as a run's own."""
    home = None if run.folder is None else run_of_attempt(run.folder).parent

    def other(run_id: str) -> Run | None:
        for folder in _candidates(home, run_id):
            with suppress(ClientError, OSError):
                if RunFolder(folder).id == run_id:
                    return open_run(folder)
        return None

    return other


def neighbours(run: Run) -> Iterator[RunFolder]:
    """Yield the recordings in the same folder as a run's own, without its own."""
    home = None if run.folder is None else run_of_attempt(run.folder).parent
    for file in [] if home is None else sorted(home.glob("*/run.json")):
        with suppress(ClientError, OSError):
            folder = RunFolder(file.parent)
            if folder.id != run.id:
                yield folder


def _candidates(home: Path | None, run_id: str) -> Iterator[Path]:
    if home is None:
        return
    of, attempt, number = run_id.rpartition(".attempt-")
    if attempt and Path(of).name == of and number.isdecimal():
        yield home / of / "attempts" / number
    named = Path(run_id).name
    if named == run_id:
        # The hub's folder, unless somebody renamed it.
        yield home / run_id
    with suppress(OSError):
        yield from sorted(folder for folder in home.iterdir() if folder.name != run_id)


@contextmanager
def compared_answers(
    run: Run, others: Others | None = None, settle: Callable[[Run], object] | None = None
) -> Iterator[Callable[[str], RunAnswers | None]]:
    """Yield what answers for a run and those it is compared with, by id (None: no such run), and close those
    at the end.

    ``others`` opens them, each once; the neighbouring recordings when absent. ``settle`` is called with each.
    """
    from .answers import RunAnswers

    other = others or neighbouring_runs(run)
    opened: dict[str, Run | None] = {run.id: run}

    def answers(run_id: str) -> RunAnswers | None:
        if run_id not in opened:
            found = opened[run_id] = other(run_id)
            if found is not None and settle is not None:
                settle(found)
        known = opened[run_id]
        return None if known is None else RunAnswers(known)

    try:
        yield answers
    finally:
        for each in opened.values():
            if each is not None and each is not run:
                each.close()


def open_run(
    path: str | os.PathLike[str], progress: Progress | None = None, engine: Any | None = None
) -> Run:
    """Open one run.

    Parameters
    ----------
    path : str or path
        The run folder; its address on other storage (``s3://bucket/run``, ``gs://``, ``az://``, ``hf://``,
        ``https://``: what fsspec has a package for), of which streams are fetched into the cache when they
        are read; a folder with exactly one run, or with the ranks, nodes or restarts of one job, which become
        one run; a pattern of such folders (``runs/job-*/``), which do whatever they are called; a ``.jsonl``
        file of raw moments, a ``training_stats`` folder, or a folder with exactly one run of them; a folder
        with traces of PyTorch's profiler or of MegatronApp, a file for each rank, or one file in Chrome's
        trace format; logs of nvidia-dlfw-inspect; TensorBoard's event files.
    progress : callable, optional
        Called with (bytes done, bytes in all, what is being done) while JSONL or traces are read for the
        first time; raise from it to cancel.
    engine : dask.distributed.Client or str, optional
        A Dask cluster that reads recordings and answers questions, or its scheduler's address
        (``megalens[dask]``). Its workers see the folder at the same path.

    Warns
    -----
    UserWarning
        As in :func:`open_all_runs`.

    Raises
    ------
    ClientError
        When there is no run that this version can read; says what it is instead.
    """
    if engine is None:
        return _opened(path, progress, None)
    connected = DaskEngine(engine)
    try:
        return _opened(path, progress, connected)
    except BaseException:
        connected.close()
        raise


def _opened(path: str | os.PathLike[str], progress: Progress | None, engine: DaskEngine | None) -> Run:
    if is_address(path):
        from .remote import mirrored

        return RecordedRun(RunFolder(mirrored(str(path), progress)), engine)
    chosen = _path(path)
    if engine is not None:
        # Workers have another working folder.
        chosen = chosen.absolute()
    if _is_pattern(chosen):
        return _opened_job(_matching(chosen), str(path), None, engine)
    folders = _recorded(chosen)
    if len(folders) == 1:
        return RecordedRun(RunFolder(folders[0]), engine)
    if folders:
        return _opened_job(folders, str(path), chosen, engine)
    if (foreign := foreign_recording(chosen, progress)) is not None:
        return RecordedRun(foreign, engine)
    if not chosen.is_dir() and chosen.suffix != ".jsonl":
        return RecordedRun(RunFolder(chosen), engine)
    from .moments import find_trees
    from .statistics_run import StatisticsRun

    closed: list[OSError] = []
    try:
        trees = find_trees(chosen, closed)
    except ClientError as error:
        if error.code != "not-found":
            raise
        what = error.message.partition(". ")[0]
        raise ClientError(
            f"{what}. Give the folder of one recorded run, such as megalens-runs/<run id>, or one of raw "
            "moments, such as training_stats.",
            code=error.code,
        ) from error
    if len(trees) > 1:
        raise _several(chosen, [tree.label for tree in trees])
    _warn(closed, 5)
    run = StatisticsRun(trees[0], progress, engine)
    # Errors in the files are raised now, not at the first question.
    _ = run.moment_source
    return run


def _is_pattern(chosen: Path) -> bool:
    return any(mark in str(chosen) for mark in "*?[") and not chosen.exists()


def run_folders(path: str | os.PathLike[str]) -> list[Path]:
    """Return the run folders that a pattern names or that lie in a folder; none for anything else."""
    if is_address(path):
        return []
    chosen = _path(path)
    return _matching(chosen) if _is_pattern(chosen) else _recorded(chosen)


def _matching(pattern: Path) -> list[Path]:
    """Return the run folders that match, or that lie in folders which do."""
    named = sorted(Path(found) for found in glob.glob(str(pattern)))
    return [folder for found in named for folder in _recorded(found)]


def _opened_job(folders: list[Path], asked: str, within: Path | None, engine: DaskEngine | None) -> Run:
    """Return the recordings as one run. Where nobody has said that they are a job (``within`` is the folder
    in which they lie), they must be one beyond doubt.
    """
    from .job import JobFolder, JobRun

    if not folders:
        raise ClientError(
            f"No run folder matches {shown_text(asked, 200)}. Give a pattern such as runs/job-*/."
        )
    if len(folders) == 1:
        return RecordedRun(RunFolder(folders[0]), engine)
    job = JobFolder(folders, engine)
    if within is not None and not job.is_plain:
        raise _several(within, [folder.name for folder in folders])
    return JobRun(job, engine)


def open_all_runs(path: str | os.PathLike[str], progress: Progress | None = None) -> dict[str, Run]:
    """Open every run below a path, by label.

    Parameters
    ----------
    path : str or path
        A folder of recorded runs, or one with any number of ``training_stats`` folders at any depth. A run of
        the latter is called by the folder above ``training_stats``, leaving out a level ``tensorboard`` or
        ``tb``; equal labels get `` #1``, `` #2``. Files are read when a run is first asked for something.
    progress : callable, optional
        As in :func:`open_run`.

    Warns
    -----
    UserWarning
        For folders that may not be looked into: runs below them are left out.

    Raises
    ------
    ClientError
        When there is none.
    """
    from .moments import find_trees
    from .statistics_run import StatisticsRun

    chosen = _path(path)
    runs: dict[str, Run] = {folder.name: RecordedRun(RunFolder(folder)) for folder in _recorded(chosen)}
    closed: list[OSError] = []
    try:
        trees = find_trees(chosen, closed)
    except ClientError:
        if not runs:
            raise
        trees = []
    _warn(closed, 4)
    for tree in trees:
        label, number = tree.label, 1
        while label in runs:
            number += 1
            label = f"{tree.label} #{number}"
        runs[label] = StatisticsRun(tree, progress)
    return runs


def _path(path: str | os.PathLike[str]) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise bad_argument("path", "the path of a folder or file", path)
    if isinstance(path, str) and path.startswith("file://"):
        from urllib.request import url2pathname

        path = url2pathname(path.removeprefix("file://"))
    return Path(path).expanduser()


def _recorded(chosen: Path) -> list[Path]:
    if not chosen.is_dir():
        return []
    if (chosen / "run.json").is_file():
        return [chosen]
    return sorted(entry.parent for entry in chosen.glob("*/run.json"))


def _warn(closed: list[OSError], frames: int) -> None:
    if closed:
        more = f" Nor can {len(closed) - 1} more folders." if len(closed) > 1 else ""
        # Where the notebook's own call is.
        warnings.warn(
            shown_text(
                f"{closed[0].filename} cannot be looked into: {closed[0].strerror}.{more} Runs below are "
                "left out."
            ),
            stacklevel=frames,
        )


def _several(chosen: Path, names: list[str]) -> ClientError:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ClientError(
        f"{chosen.name} holds {len(names)} runs. Open one of them, or all with open_all; ranks and "
        f"restarts of one job open as one run with {chosen.name}/*. They are "
        f"{', '.join(names[-_MOST_NAMED:])}{more}."
    )
