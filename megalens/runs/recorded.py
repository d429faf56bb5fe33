"""A run read from its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from ..protocol import Streams
from ..protocol.messages_generated import ConfigPatch, Status
from .arguments import whole
from .errors import ClientError
from .query import Query
from .run import Run
from .run_folder import RunFolder
from .status import RunStatus

if TYPE_CHECKING:
    from .moments import MomentSource

__all__ = ["RecordedRun"]


class RecordedRun(Run):
    """A recorded run. Rows are read when asked for, and only those that are asked for."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._hello = folder.hello()
        self._status: Status | None = None
        self._moments: MomentSource | None = None

    @property
    def live(self) -> bool:
        """Whether rows may still arrive: never."""
        return False

    @property
    def status(self) -> RunStatus:
        """What the recording knows of the run's end. Reading it goes through a stream that was cut short once."""
        if self._status is None:
            self._status = self._folder.status()
        return RunStatus(self._status)

    @property
    def warnings(self) -> list[str]:
        """Sentences about what is missing or cut short."""
        return list(self.status.get("warnings", []))

    @property
    def truncated(self) -> list[str]:
        """Streams whose file was cut short; they are read up to their last whole message."""
        return self._folder.truncated()

    @property
    def folder(self) -> Path | None:
        """The run folder."""
        return self._folder.path

    def wait(self, step: int | None = None, timeout: float | None = None) -> int:
        """Return the newest step when the recording reaches ``step``."""
        step = None if step is None else whole(step, "step")
        if step is not None and step <= self.step:
            return self.step
        wanted = "another step" if step is None else f"step {step}"
        raise ClientError(
            f"This run is recorded and ends at step {self.step}: {wanted} will not come.", code="closed"
        )

    @property
    def moment_source(self) -> MomentSource:
        """What can be asked of the statistics; read on the first use."""
        if self._moments is None:
            from .moments import MomentSource, recorded_rows

            self._moments = MomentSource(recorded_rows(self._folder.path))
            self._moments.refresh()
        return self._moments

    def close(self) -> None:
        """Let go of what is held of the statistics; everything stays readable. Safe twice."""
        if self._moments is not None:
            self._moments.close()
            self._moments = None

    @property
    def _streams(self) -> Streams:
        return self._folder.streams

    def _read(self, stream: str, query: Query) -> pa.Table:
        return self._folder.read(stream, query)

    def _configure(self, patch: ConfigPatch, timeout: float) -> int:
        raise ClientError(
            f"{self.name} is a recorded run, so nothing of it can be changed. Connect to a live run with connect().",
            code="recorded",
        )
