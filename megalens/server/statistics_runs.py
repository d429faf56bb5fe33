"""Runs that are trees of raw-moment files: opened by a user, or found next to run folders."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ..protocol import RAW_MOMENTS_FOLDER
from ..protocol.messages_generated import Hello, Status
from ..runs import ClientError
from ..runs.moments import StatisticsTree, find_trees
from ..runs.status import bare_hello
from .errors import ServerError, closed_words, require, some_of

_MOST_RUNS = 1000
_KNOWN_SECONDS = 5.0


@dataclass
class ServedStatistics:
    """One tree. Its id follows from its path, so that it survives a restart of the server."""

    tree: StatisticsTree
    _times: tuple[float, float, float] = (float("-inf"), 0.0, 0.0)

    @property
    def id(self) -> str:
        return self.tree.id

    def times(self) -> tuple[float, float]:
        """Return when it was begun and last written, by its files, at most seconds old."""
        now = time.monotonic()
        if now - self._times[0] > _KNOWN_SECONDS:
            with contextlib.suppress(OSError, ClientError):
                begun = (self.tree.root if self.tree.root.is_dir() else self.tree.root.parent).stat().st_mtime
                written = max((file.path.stat().st_mtime for file in self.tree.files()), default=begun)
                self._times = (now, min(begun, written), written)
        return self._times[1:]

    def hello(self, name: str) -> Hello:
        """Return a minimal ``hello``: no model, no flags."""
        return bare_hello({"id": self.id, "name": name, "started": self.times()[0]})

    def status(self, step: int) -> Status:
        return {"type": "status", "state": "finished", "step": max(step, 0), "producers": [], "viewers": 0}


class StatisticsRuns:
    """The trees that the server knows while it runs. Its methods read files: call them in a worker thread.

    ``hidden`` says whether Jupyter would hide a path, which is given relative to the root.
    """

    def __init__(self, root: Path, hidden: Callable[[str], bool]) -> None:
        self._root = root
        self._hidden = hidden
        self._lock = threading.Lock()
        self._runs: dict[str, ServedStatistics] = {}
        self._looked: set[Path] = set()

    def open(self, path: str) -> tuple[list[ServedStatistics], list[str]]:
        """Add the runs of a tree that a user names; return them, and sentences about unreadable folders.

        Raises ``ServerError``: 400 for no path, 403 for one out of the root, 404 for one without statistics.
        """
        folder, shown = self.resolve(path)
        closed: list[OSError] = []
        try:
            trees = self._confined(find_trees(folder, closed), self._root)
        except ClientError as error:
            raise _in_words(error) from error
        except OSError as error:
            raise ServerError(
                409, "unreadable", f"Could not look into {shown}: {error.strerror}.", "path"
            ) from error
        if not trees:
            raise _outside()
        with self._lock:
            fresh = [ServedStatistics(tree) for tree in trees if tree.id not in self._runs]
            if len(self._runs) + len(fresh) > _MOST_RUNS:
                raise ServerError(
                    413,
                    "too-large",
                    f"There are {len(trees)} runs in {shown}. Name a folder with fewer.",
                    "path",
                )
            self._runs.update((run.id, run) for run in fresh)
            runs = [self._runs[tree.id] for tree in trees]
        return runs, self._left_out(closed)

    def look(self, folders: Iterable[Path]) -> None:
        """Add the trees right below some folders."""
        for folder in folders:
            home = folder / RAW_MOMENTS_FOLDER
            # One folder that may not be looked into hides no other.
            with contextlib.suppress(ClientError, OSError):
                if (
                    home in self._looked
                    or len(self._runs) >= _MOST_RUNS
                    or not home.is_dir()
                    or home.is_symlink()
                ):
                    continue
                for tree in self._confined(find_trees(home), folder.resolve()):
                    with self._lock:
                        self._runs.setdefault(tree.id, ServedStatistics(tree))
                self._looked.add(home)

    def all(self) -> list[ServedStatistics]:
        """Return the runs whose files still exist, also unreadable ones."""
        with self._lock:
            return [run for run in self._runs.values() if _is_there(run.tree.root)]

    def get(self, run_id: str) -> ServedStatistics | None:
        with self._lock:
            return self._runs.get(run_id)

    def _left_out(self, errors: list[OSError]) -> list[str]:
        return some_of(
            [closed_words(Path(error.filename).relative_to(self._root).as_posix(), error) for error in errors]
        )

    @staticmethod
    def _confined(trees: list[StatisticsTree], within: Path) -> list[StatisticsTree]:
        inside = [tree for tree in trees if tree.root.resolve().is_relative_to(within)]
        return [replace(tree, within=within) for tree in inside]

    def resolve(self, path: str) -> tuple[Path, str]:
        """Return a user's path, and its name for sentences; raises as :meth:`open`."""
        require("\0" not in path, "path must be the text of a path below the server's root.", "path")
        root = self._root.as_posix()
        text = path.strip()
        # Somebody may paste what a terminal shows.
        if (text + "/").startswith(root.rstrip("/") + "/"):
            text = text.removeprefix(root).lstrip("/")
        parts = [part for part in text.split("/") if part not in ("", ".")]
        shown = "/".join(parts) or "the server's root"
        if ".." in parts:
            raise _outside()
        if parts and self._hidden("/".join(parts)):
            raise ServerError(404, "not-found", f"There is nothing at {shown:.200}.", "path")
        try:
            resolved = self._root.joinpath(*parts).resolve(strict=True)
        except (OSError, RuntimeError) as error:
            if text.startswith(("/", "~")):
                # An absolute path outside of the root: this server must not reveal whether it exists.
                raise _outside() from error
            raise ServerError(404, "not-found", f"There is nothing at {shown:.200}.", "path") from error
        if resolved != self._root and self._root not in resolved.parents:
            raise _outside()
        return resolved, shown[:200]


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        # Opening it reports why it cannot be read.
        return True


def _outside() -> ServerError:
    return ServerError(
        403,
        "forbidden",
        "This path leads out of the Jupyter server's root folder, and only what is below it is read. Give "
        "the path as the file browser shows it, or start Jupyter in a folder above the statistics.",
        "path",
    )


def _in_words(error: ClientError) -> ServerError:
    status = {"not-found": 404, "bad-parameter": 400}.get(error.code, 409)
    return ServerError(status, error.code, error.message, "path")
