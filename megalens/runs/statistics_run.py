"""A run of which only another logger's files of statistics exist."""

from __future__ import annotations

import threading
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ..protocol import STREAMS, Streams, empty_table
from ..protocol.messages_generated import Status
from .dask_engine import DaskEngine
from .errors import ClientError, as_int
from .moments import MomentSource, Progress, StatisticsTree, rows_of
from .query import Query
from .run import ReadRun
from .status import RunStatus, bare_hello

if TYPE_CHECKING:
    from pandas import DataFrame

_LOOK_SECONDS = 0.2


class StatisticsRun(ReadRun):
    """Statistics that another logger wrote; every question reads what was appended."""

    _kind = "is read from files"

    def __init__(
        self, tree: StatisticsTree, progress: Progress | None = None, engine: DaskEngine | None = None
    ) -> None:
        self._tree = tree
        self._engine = engine
        self._progress = progress
        started = tree.root.stat().st_mtime
        self._hello = bare_hello({"id": tree.id, "name": tree.label[:200], "started": started})

    def _moments(self) -> MomentSource:
        return MomentSource(rows_of(self._tree), self._engine)

    def readings(self, kind: str) -> DataFrame:
        if self._tree.layout != "trainermon":
            return super().readings(kind)
        from .moments.frame import file_readings

        frame, problems = file_readings(self._tree, kind)
        for sentence in problems:
            warnings.warn(sentence, stacklevel=2)
        return frame

    @property
    def status(self) -> RunStatus:
        source = self.moment_source
        steps = [stat["last"] for stat in source.index()["stats"]]
        status: Status = {
            "type": "status",
            "state": "finished",
            "step": max([0, *steps]),
            "producers": [],
            "viewers": 0,
        }
        if source.warnings:
            status["warnings"] = source.warnings[:20]
        return RunStatus(status)

    @property
    def warnings(self) -> list[str]:
        return self.moment_source.warnings

    @property
    def truncated(self) -> list[str]:
        return []

    @property
    def folder(self) -> Path | None:
        return self._tree.root if self._tree.root.is_dir() else self._tree.root.parent

    @property
    def has_streams(self) -> bool:
        return False

    def wait(self, step: int | None = None, timeout: float | None = None) -> int:
        wanted = self.step + 1 if step is None else as_int(step, "step")
        end = None if timeout is None else time.monotonic() + timeout
        while self.step < wanted:
            if end is not None and time.monotonic() >= end:
                raise ClientError(
                    f"Step {wanted} did not come within {timeout:g} s; the files are at step {self.step}.",
                    code="timeout",
                )
            threading.Event().wait(_LOOK_SECONDS)
            self.moment_source.refresh()
        return self.step

    @property
    def _streams(self) -> Streams:
        return STREAMS

    def _read(self, stream: str, query: Query) -> pa.Table:
        return empty_table(stream)
