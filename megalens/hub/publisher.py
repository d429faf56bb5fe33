"""A run's rows are checked, counted, stored for later viewers, recorded, and sent to viewers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..protocol import BIT_CAUGHT_UP, FrameChecker, decode_frame, encode_frame, stream_schema
from ..protocol.arrow_columns import arrow_batch
from .history import Backlog, StreamHistory
from .live_frame import admit_frame
from .minute_log import WarningLog
from .recorder import Recorder
from .run_state import RunState

if TYPE_CHECKING:
    from .session import Session


class Publisher:
    """Checks and numbers the frames of a run, and passes each on to everybody.

    ``changed`` is called when there is something new for viewers. ``closing`` is the task that closes the
    recording, once the training is over.
    """

    def __init__(
        self,
        state: RunState,
        backlog_bytes: int,
        viewers: Mapping[int, Session],
        changed: Callable[[], None],
    ) -> None:
        self.recorder: Recorder | None = None
        self.closing: asyncio.Task[None] | None = None
        self._state = state
        self._viewers = viewers
        self._changed = changed
        self._checker = FrameChecker()
        self._history = StreamHistory(backlog_bytes, state.streams)
        self._skipped: set[str] = set()
        self._warnings = WarningLog()
        self._describe_due = False

    def publish(self, data: bytes | bytearray, rank: int | None = None) -> None:
        """Check a frame of a producer, or of the hub itself, and pass it on to everybody.

        Raises ``ProtocolError``: ``bad-frame`` or ``version-mismatch``.
        """
        header = decode_frame(data, self._state.streams)
        if not header.known:
            if header.stream not in self._skipped:
                self._skipped.add(header.stream)
                self._state.warn(
                    f"The hub skips the stream {header.stream}, which it does not know. "
                    "Update the hub, or let the producer announce it."
                )
            return
        frame, body = admit_frame(
            self._checker, header, data, self._state.seq + 1, header.bits & ~BIT_CAUGHT_UP
        )
        self._state.saw(frame, body, rank)
        self._history.append(frame)
        if self.recorder:
            self.recorder.put(body, frame.step, len(data))
        for viewer in list(self._viewers.values()):
            viewer.enqueue(frame)
        self._changed()

    def backlog(self, since: int | None, max_bytes: int | None) -> Backlog:
        """See :meth:`StreamHistory.backlog`."""
        return self._history.backlog(since, max_bytes)

    def audit(self, who: str, action: str, detail: dict[str, Any], step: int | None = None) -> None:
        """Add a row to the run's ``audit`` stream."""
        step = self._state.step if step is None else step
        text = json.dumps(detail, ensure_ascii=False, separators=(",", ":"))
        row = {"step": [step], "time": [time.time()], "who": [who], "action": [action], "detail": [text]}
        self.publish(encode_frame("audit", arrow_batch(row, stream_schema("audit")), step=step))

    def record_warnings(self, who: str, warnings: Iterable[str]) -> None:
        """Record the warnings that viewers were shown live."""
        for text in self._warnings.new(warnings):
            self.audit(who, "warning", {"text": text})

    # -- the recording ---------------------------------------------------------------------------------------

    def describe_soon(self) -> None:
        """Have ``run.json`` rewritten at the next :meth:`describe_if_due`."""
        self._describe_due = True

    def describe_if_due(self) -> None:
        if self._describe_due and self.recorder:
            self._describe_due = False
            self.describe()

    def describe(self) -> None:
        if self.recorder:
            self.recorder.describe(self._state.description())

    def close_recording(self) -> None:
        """Begin to close the recording, unless that is under way or nothing has come since."""
        if self.recorder is None:
            return
        if self.closing is not None and not (self.closing.done() and self.recorder.behind):
            return
        for text in (*self.recorder.sentences, *self.recorder.totals()):
            self._state.warn(text)
        self.record_warnings("hub", list(self._state.warnings))
        self.closing = asyncio.create_task(asyncio.to_thread(self.recorder.close, self._state.description()))
        self.closing.add_done_callback(lambda _: self._changed())

    @property
    def recorded(self) -> bool:
        """Whether the recording is closed, or there is none."""
        return self.recorder is None if self.closing is None else self.closing.done()
