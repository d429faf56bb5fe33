"""Files of other tools that a slice opens as a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..slices import find_slices, load

if TYPE_CHECKING:
    from .moments import Progress
    from .run_folder import RunFolder


class _Holds(Protocol):
    def __call__(self, path: Path, within: Path | None = None) -> bool: ...


class _Reads(Protocol):
    def __call__(
        self, path: Path, progress: Progress | None = None, within: Path | None = None
    ) -> RunFolder: ...


class ForeignFiles(NamedTuple):
    """How a slice opens files of other tools.

    Attributes
    ----------
    holds : callable
        Whether a path looks like such files, judged by the beginnings of some. Links out of ``within`` are
        not followed.
    read : callable
        Returns their recording, converting what changed; ``progress`` is that of :func:`megalens.open`.
        Raises ``ClientError``.
    """

    holds: _Holds
    read: _Reads


def foreign_recording(
    path: Path, progress: Progress | None = None, within: Path | None = None
) -> RunFolder | None:
    """Return the recording of files that some slice opens; None where none does."""
    for each in find_slices():
        if each.opens:
            files: ForeignFiles = load(each.opens)
            if files.holds(path, within):
                return files.read(path, progress, within)
    return None
