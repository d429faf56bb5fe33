"""The runs that views compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .answers import RunAnswers
from .attempts import run_of_attempt
from .errors import ClientError
from .open_run import open_run
from .run import Run
from .run_folder import RunFolder

__all__ = ["Others", "answers_beside", "beside"]

Others = Callable[[str], Run | None]
"""Opens a run by its id; None where there is none that could be read."""


def beside(run: Run) -> Others:
    """Return what opens the recordings that lie beside a run's own."""
    home = None if run.folder is None else run_of_attempt(run.folder).parent

    def other(run_id: str) -> Run | None:
        for place in _places(home, run_id):
            with suppress(ClientError, OSError):
                if RunFolder(place).id == run_id:
                    return open_run(place)
        return None

    return other


def _places(home: Path | None, run_id: str) -> Iterator[Path]:
    if home is None:
        return
    of, attempt, number = run_id.rpartition(".attempt-")
    if attempt and Path(of).name == of and number.isdecimal():
        yield home / of / "attempts" / number
    named = Path(run_id).name
    if named == run_id:
        # Where the hub put it, unless somebody gave the folder another name.
        yield home / run_id
    with suppress(OSError):
        yield from sorted(place for place in home.iterdir() if place.name != run_id)


@contextmanager
def answers_beside(
    run: Run, others: Others | None = None, settle: Callable[[Run], object] | None = None
) -> Iterator[Callable[[str], RunAnswers | None]]:
    """Give what answers for a run and for those that it is compared with, by their ids; None for one that there is not.

    Parameters
    ----------
    run : Run
        Stays open.
    others : callable, optional
        Opens the other runs, each once; the recordings beside the run's own when absent. They are closed in the end.
    settle : callable, optional
        Called with each run that was opened.
    """
    other = others or beside(run)
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
