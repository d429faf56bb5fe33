"""The hub's own messages, ``hello`` and ``status``, made once for all and no more often than useful.

A run's rows are checked, counted, stored for later viewers, recorded, and sent to viewers.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..protocol import (
    BIT_CAUGHT_UP,
    FrameChecker,
    check_message,
    decode_frame,
    encode_frame,
    encode_message,
    stream_schema,
)
from ..protocol.arrow_columns import arrow_batch
from ..protocol.messages_generated import Dropped, Hello, HelloResumed, Overhead
from .batch_connection import BATCH_BYTES, chunks_of
from .connections import WarningLog
from .history import Backlog, StreamHistory
from .live_frame import LiveFrame, admit_frame
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
        self._coming: list[LiveFrame] = []
        self._coming_bytes = 0
        self._describe_due = False
        self._described = self._state.state

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
        if self._viewers:
            if not self._coming:
                asyncio.get_running_loop().call_soon(self.pass_on)
            self._coming.append(frame)
            self._coming_bytes += frame.size
            if self._coming_bytes >= BATCH_BYTES:
                self.pass_on()
        self._changed()

    def pass_on(self) -> None:
        """Send viewers the frames that came since the last time.

        A thousand producers send at once, and all viewers that keep up are sent the same bytes: they are put
        together once for all of them.
        """
        frames, self._coming, self._coming_bytes = self._coming, [], 0
        if not frames:
            return
        viewers = list(self._viewers.values())
        keep_up = any(viewer.takes_now for viewer in viewers)
        chunks = list(chunks_of(piece for frame in frames for piece in frame.wire())) if keep_up else []
        for viewer in viewers:
            viewer.forward(frames, chunks)

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
        # Whoever opens the folder of a training that goes on reads there how it is.
        if self._describe_due or (self.closing is None and self._state.state != self._described):
            self.describe()

    def describe(self) -> None:
        self._describe_due = False
        self._described = self._state.state
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


_HELLO_SECONDS = 0.5
_LEAST_SECONDS = 0.5
_MOST_SECONDS = 2.0
_MANY_RANKS = 256
_OWN_NUMBER = -1
_OWN = str(_OWN_NUMBER)

_COST_SECONDS, _LEAST_COST_SECONDS = 30.0, 2.0


class HubCost:
    """CPU time of this process in the last half minute, as per cent of a processor core.

    Of training steps that follow each other that is per cent of step time. ``recorder_seconds`` gives the CPU
    time of the thread that records, which is listed separately.
    """

    def __init__(self, recorder_seconds: Callable[[], float]) -> None:
        self._recorder_seconds = recorder_seconds
        self._samples: deque[tuple[float, float, float]] = deque()

    def sample(self) -> None:
        """Read the clocks; a few times a second."""
        now = time.monotonic()
        self._samples.append((now, time.process_time(), self._recorder_seconds()))
        while now - self._samples[0][0] > _COST_SECONDS:
            self._samples.popleft()

    def added_to(self, overhead: Overhead) -> Overhead:
        """Return what producers measured with what this process costs; unchanged while that is unknown."""
        if not self._samples:
            return overhead
        (began, cpu, recorded), (now, all_cpu, all_recorded) = self._samples[0], self._samples[-1]
        if now - began < _LEAST_COST_SECONDS:
            return overhead
        recorder = 100 * (all_recorded - recorded) / (now - began)
        hub = max(0.0, 100 * (all_cpu - cpu) / (now - began) - recorder)
        more = hub + recorder
        shifted: Overhead = {
            **overhead,
            "percent": overhead["percent"] + more,
            "low": overhead["low"] + more,
            "high": overhead["high"] + more,
            "hub": hub,
            "recorder": recorder,
        }
        return shifted


class Broadcaster:
    """Sends viewers and producers what the hub knows.

    A job of a thousand processes announces itself a thousand times within seconds: viewers are sent the first
    announcement at once, and then all that came meanwhile.
    """

    def __init__(
        self,
        state: RunState,
        viewers: Mapping[int, Session],
        leaders: Callable[[], list[Session]],
        recorder: Callable[[], Recorder | None],
    ) -> None:
        self._state = state
        self._viewers = viewers
        self._leaders = leaders
        self._recorder = recorder
        self.cost = HubCost(lambda: 0.0 if (recorder := self._recorder()) is None else recorder.cpu_seconds)
        """What this process costs."""
        self._hello: tuple[int, str] = (-1, "")
        self._short_hello: tuple[float, str] = (float("-inf"), "")
        self._hello_due = False
        self._hello_sent = float("-inf")
        self._status_sent = float("-inf")
        self._producers_sent = self._cost_read = float("-inf")
        self._viewers_sent = -1

    def hello(self, resumed: HelloResumed | None = None) -> str:
        """Return the text of ``hello`` as of now."""
        state = self._state
        if self._hello[0] != state.version:
            self._hello = (state.version, _without_seq(state.hello()))
        more = f',"resumed":{json.dumps(resumed)}' if resumed else ""
        return f'{self._hello[1][:-1]},"seq":{state.seq}{more}}}'

    def short_hello(self) -> str:
        """Return the text of ``hello`` for a producer, without flags and the other processes."""
        now = time.monotonic()
        if now - self._short_hello[0] > _HELLO_SECONDS:
            hello = self._state.hello()
            if hello["layout"]:
                hello["layout"] = hello["layout"].copy()
                hello["layout"].pop("ranks", None)
            hello["flags"] = []
            hello.pop("sites", None)
            hello.pop("streams", None)
            self._short_hello = (now, _without_seq(hello))
        return f'{self._short_hello[1][:-1]},"seq":{self._state.seq}}}'

    def announce(self, *, at_once: bool = False) -> None:
        """Send viewers a new ``hello`` soon; ``at_once`` where they cannot read what follows without it."""
        self._hello_due = True
        if at_once or time.monotonic() - self._hello_sent >= _HELLO_SECONDS:
            self._tell_hello()

    def status(self, viewer: Session, shared: str | None = None) -> str:
        """Return the text of ``status`` for one viewer; ``shared`` is its part for all viewers."""
        shared = shared or self._shared_status()
        streams = _json(self._state.stream_figures(viewer.queue.dropped))
        return f'{shared[:-1].replace(_OWN, str(viewer.queue.dropped_rows), 1)},"streams":{streams}}}'

    def tick(self, *, changed: bool) -> bool:
        """Send what is due, and return whether viewers were sent the ``status``."""
        now = time.monotonic()
        if self._hello_due and now - self._hello_sent >= _HELLO_SECONDS:
            self._tell_hello()
        viewers = len(self._viewers)
        if viewers != self._viewers_sent or now - self._producers_sent >= _MOST_SECONDS:
            self._tell_producers()
        if now - self._cost_read >= _MOST_SECONDS:
            self._cost_read = now
            self.cost.sample()
        # What a thousand processes do is a hundred kB.
        many = len(self._state.attached) > _MANY_RANKS
        least = 2 * _LEAST_SECONDS if many else _LEAST_SECONDS
        if now - self._status_sent < (least if changed else _MOST_SECONDS):
            return False
        self._status_sent = now
        if viewers:
            shared = self._shared_status()
            for viewer in list(self._viewers.values()):
                viewer.enqueue(self.status(viewer, shared))
        return True

    def _shared_status(self) -> str:
        recorder = self._recorder()
        status = self._state.status()
        status["viewers"] = len(self._viewers)
        if "overhead" in status:
            status["overhead"] = self.cost.added_to(status["overhead"])
        status["recording"] = recorder.status() if recorder else {"state": "off"}
        dropped: Dropped = {
            "viewer": _OWN_NUMBER,
            "producer": self._state.producer_drops(),
            "recorder": recorder.dropped_rows if recorder else 0,
        }
        # First, so that no text of anybody's can come before the number that is put in for each viewer.
        status = {"type": "status", "dropped": dropped, **status}
        # Checked part by part when it came; to check a thousand ranks again takes longer than to write them.
        return _json(status)

    def _tell_hello(self) -> None:
        self._hello_due, self._hello_sent = False, time.monotonic()
        if self._viewers:
            text = self.hello()
            for viewer in list(self._viewers.values()):
                viewer.enqueue(text)

    def somebody_looks(self) -> None:
        """Notify producers at once of the first viewer: until then they send steps together."""
        if self._viewers_sent <= 0:
            self._tell_producers()

    def _tell_producers(self) -> None:
        self._viewers_sent, self._producers_sent = len(self._viewers), time.monotonic()
        state = self._state
        text = encode_message(
            {"type": "status", "state": state.state, "step": state.step, "viewers": len(self._viewers)}
        )
        for producer in self._leaders():
            producer.tell(text)


def _without_seq(hello: Hello) -> str:
    check_message(hello)
    return _json({name: value for name, value in hello.items() if name != "seq"})


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
