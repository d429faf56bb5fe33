"""The recordings in the run folders."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..protocol import shown_text
from ..runs import ClientError
from ..runs.run_index import ListedRun, RunIndex
from .errors import closed_words


class RecordedRuns:
    """The recordings of the run folders. Its methods read files, one thread at a time.

    ``left_out`` has sentences about what the last :meth:`find` left out.
    """

    def __init__(self, root: Path, run_folders: Iterable[str], log: logging.Logger) -> None:
        self.left_out: list[str] = []
        self._root = root
        self._folders = [(root / Path(folder).expanduser()) for folder in run_folders]
        # The administrator may name a link; one inside that leads elsewhere is somebody else's choice.
        self._within = [root, *(folder.resolve() for folder in self._folders)]
        self._log = log
        self._index = RunIndex(root)
        self._told: set[Path] = set()
        self._relative: dict[Path, str | None] = {}

    def find(self, also: Iterable[Path]) -> tuple[dict[str, ListedRun], list[Path]]:
        """Return the recordings by their runs, and the other folders; ``also`` are run folders elsewhere."""
        left_out: list[str] = []
        found: dict[str, ListedRun] = {}
        others = []
        for candidate in [*self._candidates(left_out), *also]:
            try:
                run = self._index.run(candidate)
            except ClientError as error:
                left_out.append(f"{self.called(candidate)}: {error.message}")
                self._tell(candidate, error)
                run = None
            except OSError as error:
                left_out.append(closed_words(self.called(candidate), error))
                continue
            if run is not None:
                found.setdefault(run.id, run)
                for part in run.earlier:
                    found.setdefault(part.id, part)
            else:
                others.append(candidate)
        self.left_out = left_out
        self._index.save()
        return found, others

    def may_delete(self, folder: Path) -> bool:
        """Whether a folder is inside a run folder, and no link."""
        resolved = folder.resolve()
        return not folder.is_symlink() and resolved not in self._within and self._is_within(resolved)

    def forget(self, folder: Path) -> None:
        self._index.forget(folder)

    def called(self, folder: Path) -> str:
        """Return the folder's name for sentences: its own path, not a link's target."""
        with contextlib.suppress(ValueError):
            folder = folder.relative_to(self._root)
        return shown_text(folder.name if folder.is_absolute() else folder.as_posix(), 200)

    def bytes(self, run: ListedRun) -> int:
        return self._index.bytes(run)

    def relative(self, path: Path) -> str | None:
        """Return a folder's path from the root; None for one outside of it, or that cannot be sent."""
        home = path.parent
        # Below a folder that may not be looked into nothing is known, and a link's target may change.
        if os.path.islink(path) or not os.access(home, os.X_OK):
            return self._relative_now(path)
        if home not in self._relative:
            self._relative[home] = self._relative_now(home)
        within = self._relative[home]
        try:
            path.name.encode("utf-8")
        except ValueError:
            return None
        return None if within is None else path.name if within == "." else f"{within}/{path.name}"

    def _relative_now(self, path: Path) -> str | None:
        try:
            text = path.resolve().relative_to(self._root).as_posix()
            # A name that is no UTF-8 text cannot be sent.
            text.encode("utf-8")
        except (ValueError, OSError):
            return None
        return text

    def _candidates(self, left_out: list[str]) -> Iterator[Path]:
        """Yield the folders that may have runs, and note those that cannot be read."""
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
                            f"{self.called(entry)} is a link that leads out of the run folders, and is not "
                            "followed."
                        )
                        continue
                    yield entry
                except OSError as error:
                    # A link to an unreadable folder, which hides no other one.
                    left_out.append(closed_words(self.called(entry), error))

    def _is_within(self, path: Path) -> bool:
        return any(path.is_relative_to(folder) for folder in self._within)

    def _tell(self, path: Path, error: ClientError) -> None:
        if path not in self._told:
            self._told.add(path)
            self._log.warning(
                "Megalens leaves the run folder %s out: %s", shown_text(path.name), shown_text(error)
            )
