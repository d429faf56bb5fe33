"""The runs that views compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from .errors import ClientError
from .open_run import open_run
from .run import Run
from .run_folder import RunFolder

__all__ = ["Others", "beside", "kept_open", "nobody"]

Others = Callable[[str], Run | None]
"""Opens a run by its id; None where there is none that could be read."""


def nobody(run_id: str) -> Run | None:
    """Know no other runs."""
    return None


def beside(run: Run) -> Others:
    """Return what opens the recordings that lie beside a run's own."""
    home = None if run.folder is None else run.folder.parent

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
    named = Path(run_id).name
    if named == run_id:
        # Where the hub put it, unless somebody gave the folder another name.
        yield home / run_id
    with suppress(OSError):
        yield from sorted(place for place in home.iterdir() if place.name != run_id)


@contextmanager
def kept_open(others: Others, settle: Callable[[Run], object] | None = None) -> Iterator[Others]:
    """Open each run once, let it settle where that is asked, and close all of them in the end."""
    opened: dict[str, Run | None] = {}

    def once(run_id: str) -> Run | None:
        if run_id not in opened:
            run = opened[run_id] = others(run_id)
            if run is not None and settle is not None:
                settle(run)
        return opened[run_id]

    try:
        yield once
    finally:
        for run in opened.values():
            if run is not None:
                run.close()
