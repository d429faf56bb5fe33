"""The recordings in the run folders."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..protocol import shown_text
from ..runs import ClientError, RunFolder
from .errors import closed_words
from .run_notes import file_stamp


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
        self._headers: dict[Path, tuple[tuple[int, int, int], RunFolder | ClientError]] = {}

    def find(self, also: Iterable[Path]) -> tuple[dict[str, RunFolder], list[Path]]:
        """Return the recordings by their runs, and the other folders; ``also`` are run folders elsewhere."""
        left_out: list[str] = []
        found: dict[str, RunFolder] = {}
        others = []
        for candidate in [*self._candidates(left_out), *also]:
            try:
                run = self._header(candidate)
            except ClientError as error:
                left_out.append(f"{self.called(candidate)}: {error.message}")
                run = None
            except OSError as error:
                left_out.append(closed_words(self.called(candidate), error))
                continue
            if run is not None:
                found.setdefault(run.id, run)
                for part, _ in run.earlier:
                    found.setdefault(part.id, part)
            else:
                others.append(candidate)
        self.left_out = left_out
        return found, others

    def may_delete(self, folder: Path) -> bool:
        """Whether a folder is inside a run folder, and no link."""
        resolved = folder.resolve()
        return not folder.is_symlink() and resolved not in self._within and self._is_within(resolved)

    def forget(self, folder: Path) -> None:
        self._headers.pop(folder, None)

    def called(self, folder: Path) -> str:
        """Return the folder's name for sentences: its own path, not a link's target."""
        with contextlib.suppress(ValueError):
            folder = folder.relative_to(self._root)
        return shown_text(folder.name if folder.is_absolute() else folder.as_posix(), 200)

    def relative(self, path: Path) -> str | None:
        """Return a folder's path from the root; None for one outside of it, or that cannot be sent."""
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

    def _header(self, path: Path) -> RunFolder | None:
        """Return the run of a folder, or None; raises ClientError or OSError where that cannot be known."""
        stamp = file_stamp(path / "run.json")
        if stamp is None:
            return None
        known = self._headers.get(path)
        if known is None or known[0] != stamp:
            try:
                # A growing run's description is rewritten every few seconds; what is known of its files
                # stays.
                older = known[1] if known is not None else None
                run: RunFolder | ClientError = (
                    older.reopened() if isinstance(older, RunFolder) else RunFolder(path)
                )
            except ClientError as error:
                self._log.warning(
                    "Megalens leaves the run folder %s out: %s", shown_text(path.name), shown_text(error)
                )
                run = error
            known = self._headers[path] = (stamp, run)
        if isinstance(known[1], ClientError):
            raise known[1]
        return known[1]
