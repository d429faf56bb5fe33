"""The runs that requests name, as the reading process sees them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from ...runs import ClientError, Run, RunFolder, connect
from ...runs.answers import NoRows, StreamRows
from ...runs.dask_engine import DaskEngine, each_on
from ...runs.moments import MomentSource, RecordedRows, StatisticsTree, rows_of
from ...runs.recorded import RecordedRun
from ...runs.statistics_run import StatisticsRun
from ...runs.storage import cache_home
from ..errors import ServerError, no_run, not_recorded
from .between import RunPlace

# What is known of the files of a run stays with its folder's object.
_MOST_FOLDERS = 64
_WITHOUT = "unset MegalensExtension.engine, the setting of this Jupyter server, and start it again"


class ServedRuns:
    """Opens runs where the Jupyter server found them. Its methods read files: use a worker thread.

    ``engine`` is the address of a Dask scheduler that answers what it can of the questions, or nothing.
    """

    def __init__(self, engine: str = "") -> None:
        self._engine_address = engine
        self._engine: DaskEngine | None = None
        self._connecting = threading.Lock()
        self._lock = threading.Lock()
        self._places: dict[str, RunPlace] = {}
        self._folders: OrderedDict[str, RunFolder] = OrderedDict()

    def engine(self, run_id: str) -> DaskEngine | None:
        """Return the engine, which whoever asks may not close; None where there is none, or where its workers
        would not see the run: in this machine's cache. Raises ``ClientError``.
        """
        if Path(self._place(run_id).get("folder", "")).is_relative_to(cache_home()):
            return None
        with self._connecting:
            if self._engine is None and self._engine_address:
                self._engine = DaskEngine(self._engine_address, _WITHOUT)
            return self._engine

    def found(self, places: Mapping[str, RunPlace]) -> None:
        """Take where runs are, from a request that is about them."""
        self._places.update(places)

    def name(self, run_id: str) -> str:
        return self._place(run_id)["name"]

    def tree(self, run_id: str) -> StatisticsTree | None:
        """Return a run that is a tree of statistics."""
        tree = self._place(run_id).get("tree")
        return None if tree is None else StatisticsTree.of(**tree)

    def folder(self, run_id: str) -> RunFolder:
        """Return a recorded run; raises ``ServerError`` 404, or 409 for one that cannot be read."""
        place = self._place(run_id)
        if "folder" not in place:
            raise not_recorded()
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
        if tree is not None:
            return MomentSource(rows_of(tree))
        engine = self.engine(run_id)
        return MomentSource(RecordedRows(self.folder(run_id).path, each_on(engine)), engine)

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
        if tree is not None:
            return StatisticsRun(tree)
        engine = self.engine(run_id)
        return RecordedRun(self.folder(run_id), None if engine is None else engine.lent())

    def _place(self, run_id: str) -> RunPlace:
        place = self._places.get(run_id)
        if place is None:
            raise no_run(run_id)
        return place
