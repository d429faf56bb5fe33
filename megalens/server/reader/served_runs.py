"""The runs that requests name, as the reading process sees them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from ...runs import ClientError, Run, RunFolder, connect, open_run
from ...runs.answers import NoRows, StreamRows
from ...runs.moments import MomentSource, RecordedRows, StatisticsTree, rows_of
from ...runs.statistics_run import StatisticsRun
from ..errors import ServerError, no_run
from .between import RunPlace

# What is known of the files of a run stays with its folder's object.
_MOST_FOLDERS = 64


class ServedRuns:
    """Opens runs where the Jupyter server found them. Its methods read files: use a worker thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: dict[str, RunPlace] = {}
        self._folders: OrderedDict[str, RunFolder] = OrderedDict()

    def found(self, places: Mapping[str, RunPlace]) -> None:
        """Take where runs are, from a request that is about them."""
        self._places.update(places)

    def name(self, run_id: str) -> str:
        return self._place(run_id)["name"]

    def tree(self, run_id: str) -> StatisticsTree | None:
        """Return a run that is a tree of statistics."""
        tree = self._place(run_id).get("tree")
        if tree is None:
            return None
        within = tree["within"]
        return StatisticsTree(
            tree["label"], Path(tree["root"]), tree["layout"], None if within is None else Path(within)
        )

    def folder(self, run_id: str) -> RunFolder:
        """Return a recorded run; raises ``ServerError`` 404, or 409 for one that cannot be read."""
        place = self._place(run_id)
        if "folder" not in place:
            raise ServerError(
                404,
                "not-found",
                "This run is live and not recorded: connect to it instead of reading its folder.",
            )
        path = place["folder"]
        with self._lock:
            known = self._folders.pop(path, None)
        try:
            # Two requests may read at once.
            folder = RunFolder(path) if known is None else known.reopened()
        except ClientError as error:
            raise ServerError(409, error.code, error.message, error.field) from error
        with self._lock:
            self._folders[path] = folder
            if len(self._folders) > _MOST_FOLDERS:
                self._folders.popitem(last=False)
        return folder

    def rows(self, run_id: str) -> StreamRows:
        """Return a recorded run's source of rows, none of a tree of statistics; raises as :meth:`folder`."""
        return NoRows() if self.tree(run_id) is not None else self.folder(run_id)

    def moments(self, run_id: str) -> MomentSource:
        """Return the unread statistics of a run, which the caller closes; raises as :meth:`folder`."""
        tree = self.tree(run_id)
        return MomentSource(rows_of(tree) if tree else RecordedRows(self.folder(run_id).path))

    def statistics_path(self, run_id: str) -> Path:
        """Return the path of a run's statistics; raises as :meth:`folder`."""
        tree = self.tree(run_id)
        return tree.root if tree else self.folder(run_id).path

    def run(self, run_id: str) -> Run:
        """Return a run as a kernel has it, which the caller closes; raises as :meth:`folder`."""
        place = self._place(run_id)
        if "hub" in place:
            address, token = place["hub"]
            return connect(address, token=token)
        tree = self.tree(run_id)
        return open_run(self.folder(run_id).path) if tree is None else StatisticsRun(tree)

    def _place(self, run_id: str) -> RunPlace:
        place = self._places.get(run_id)
        if place is None:
            raise no_run(run_id)
        return place
