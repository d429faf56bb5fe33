"""Which recordings lie in the run folders."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..protocol import shown_text
from ..runs import ClientError, RunFolder
from .left_out import closed_words
from .run_notes import file_stamp

__all__ = ["RecordedRuns"]


class RecordedRuns:
    """The recordings of the run folders. Its methods read files, one thread at a time.

    Parameters
    ----------
    root : Path
        The Jupyter server's root folder, resolved.
    run_folders : iterable of str
        Folders that hold run folders, relative to the root or absolute.
    log : logging.Logger
        Where trouble is told.

    Attributes
    ----------
    left_out : list of str
        Sentences on what the last :meth:`find` left out.
    """

    def __init__(self, root: Path, run_folders: Iterable[str], log: logging.Logger) -> None:
        self.left_out: list[str] = []
        self._root = root
        self._folders = [(root / Path(folder).expanduser()) for folder in run_folders]
        # A folder that the administrator names may be a link; one in it that leads elsewhere is somebody else's choice.
        self._within = [root, *(folder.resolve() for folder in self._folders)]
        self._log = log
        self._headers: dict[Path, tuple[tuple[int, int, int], RunFolder | ClientError]] = {}

    def find(self, also: Iterable[Path]) -> tuple[dict[str, RunFolder], list[Path]]:
        """Return the recordings by their runs, and the folders that are none; ``also`` are run folders that lie elsewhere."""
        left_out: list[str] = []
        found: dict[str, RunFolder] = {}
        others = []
        for place in [*self._places(left_out), *also]:
            try:
                run = self._header(place)
            except ClientError as error:
                left_out.append(f"{self.called(place)}: {error.message}")
                run = None
            except OSError as error:
                left_out.append(closed_words(self.called(place), error))
                continue
            if run is not None:
                found.setdefault(run.id, run)
                for part, _ in run.earlier:
                    found.setdefault(part.id, part)
            else:
                others.append(place)
        self.left_out = left_out
        return found, others

    def may_delete(self, folder: Path) -> bool:
        """Whether a folder lies in the run folders, is none of them, and no link."""
        place = folder.resolve()
        return not folder.is_symlink() and place not in self._within and self._is_within(place)

    def forget(self, folder: Path) -> None:
        """Forget what is known of a folder that was deleted."""
        self._headers.pop(folder, None)

    def called(self, place: Path) -> str:
        """Return how sentences call a folder: by where it lies and not where it leads."""
        with contextlib.suppress(ValueError):
            place = place.relative_to(self._root)
        return shown_text(place.name if place.is_absolute() else place.as_posix(), 200)

    def relative(self, path: Path) -> str | None:
        """Return a folder's path from the root; None for one that lies elsewhere or cannot be sent."""
        try:
            text = path.resolve().relative_to(self._root).as_posix()
            # A name that is no UTF-8 text cannot be sent.
            text.encode("utf-8")
        except (ValueError, OSError):
            return None
        return text

    def _places(self, left_out: list[str]) -> Iterator[Path]:
        """Give the folders in which runs may lie, and note which cannot be looked into."""
        for folder in self._folders:
            try:
                entries = sorted(folder.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                left_out.append(closed_words(self.called(folder), error))
                continue
            for entry in entries:
                try:
                    if not entry.is_dir():
                        continue
                    if entry.is_symlink() and not self._is_within(entry.resolve()):
                        left_out.append(
                            f"{self.called(entry)} is a link that leads out of the run folders, and is not followed."
                        )
                        continue
                    yield entry
                except OSError as error:
                    # A link to where nobody may look, which hides no other folder.
                    left_out.append(closed_words(self.called(entry), error))

    def _is_within(self, place: Path) -> bool:
        return any(place.is_relative_to(folder) for folder in self._within)

    def _header(self, place: Path) -> RunFolder | None:
        """Return the run of a folder, or None where it holds none; raises ClientError or OSError where nobody can tell."""
        stamp = file_stamp(place / "run.json")
        if stamp is None:
            return None
        known = self._headers.get(place)
        if known is None or known[0] != stamp:
            try:
                # A run that is going on is described anew every few seconds: what is known of its files stays.
                older = known[1] if known is not None else None
                run: RunFolder | ClientError = (
                    older.again() if isinstance(older, RunFolder) else RunFolder(place)
                )
            except ClientError as error:
                self._log.warning(
                    "Megalens leaves the run folder %s out: %s", shown_text(place.name), shown_text(error)
                )
                run = error
            known = self._headers[place] = (stamp, run)
        if isinstance(known[1], ClientError):
            raise known[1]
        return known[1]
