"""The producer thread of a process that sends to a hub: makes frames of what tasks give it."""

from __future__ import annotations

import contextlib
import json
import logging
import queue
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...protocol import FrameTemplate, ProtocolError, Stream, Streams
from ...protocol.arrow_columns import arrow_batch
from ...protocol.messages_generated import (
    Announce,
    Cancel,
    ConfigPatch,
    Configured,
    Generate,
    Generating,
    Hello,
    Message,
    Peer,
    Status,
)
from ..errors import as_protocol_error, plain_text
from .hub_connection import HubConnection
from .hub_link import HubLink
from .hub_process import HubAddress, HubProcess
from .worker import MOST_SCALARS, SCALARS_SECONDS, IGatherer, Rows, ScalarQueue, StepCost, Worker

log = logging.getLogger("megalens")

_MOST_FRAME_BYTES = 60 << 20
"""Of a frame's rows, below the 64 MiB of a message."""
_STATUS_SECONDS = 1.0
_LAST_SECONDS = 5.0
_HUB_SECONDS = 5.0
_MOST_REFUSALS = 3
_RECORDING_SECONDS = 120.0
"""How long a training waits at its end for its recording to be packed."""
_REPORT_SECONDS = 3.0


@dataclass(frozen=True)
class Control:
    """A message from the hub; ``message`` is None when the connection is gone."""

    link: HubLink
    message: Message | ProtocolError | None


class Producer(Worker):
    """Sends rows to a hub, and answers it.

    Parameters
    ----------
    address : HubAddress or None
        The hub to begin with; None until :meth:`move` names it.
    process : HubProcess or None
        Our own hub, to be restarted once.
    configure : callable
        Takes a patch and an id, arranges that it is applied and gives the ``configured`` answer, or None
        where that comes later; raises ``ProtocolError``.
    request : callable
        Takes a ``generate`` or ``cancel`` message and gives the ``generating`` answer; raises
        ``ProtocolError``.
    report : callable, optional
        Adds to the ``status`` message what this thread does not know.
    viewers : callable, optional
        Takes how many viewers the hub has.
    hub_is : callable, optional
        Takes whether a hub is connected.
    moved : callable, optional
        Takes the address of a restarted hub.
    stepped : callable, optional
        Takes each step with whether it was traced, how long it took, and how much of that the training thread
        was inside of the tracer, in ns.
    hubless : bool
        Whether there will never be a hub.
    """

    def __init__(
        self,
        address: HubAddress | None,
        process: HubProcess | None,
        *,
        rank: int,
        peer: Peer,
        announce: Callable[[], Announce],
        configure: Callable[[ConfigPatch, str], Configured | None],
        request: Callable[[Generate | Cancel], Generating],
        report: Callable[[Status], Status] = lambda status: status,
        viewers: Callable[[int], None] = lambda count: None,
        hub_is: Callable[[bool], None] = lambda there: None,
        moved: Callable[[HubAddress], None] = lambda address: None,
        stepped: Callable[[int, bool, int, int], None] | None = None,
        hubless: bool = False,
        streams: Streams,
    ) -> None:
        super().__init__()
        self._gatherers: list[IGatherer] = []
        self.hub = HubConnection(
            address,
            process,
            peer=peer,
            health=self.health,
            hubless=hubless,
            received=lambda link, message: self._queue.put(Control(link, message)),
            came=self._hub_came,
            went=self._hub_went,
            moved=moved,
            given_up=self._nobody_left,
        )
        self._report, self._viewers, self._hub_is = report, viewers, hub_is
        self._stepped = stepped
        self._hubless = hubless
        self._rank = rank
        self._announce = announce
        self._configure = configure
        self._request = request
        self._streams = streams
        self._sent = self._sent_goodbye = False
        self._refusals = 0
        self._scalars = ScalarQueue(self.health.warn)
        self._numbers: deque[tuple[int, str, float]] = deque(maxlen=MOST_SCALARS)
        self._counted = 0
        self._overhead_at = self._status_at = time.monotonic()
        self.run_id = None if address is None else address.run_id

    # Other threads.

    def move(self, address: HubAddress) -> None:
        """Use another hub."""
        self._queue.put(address)

    def gather(self, gatherer: IGatherer) -> None:
        """Poll a gatherer from now on, until it is done."""
        self.task(lambda: self._gatherers.append(gatherer))

    def reply(self, make: Callable[[], Message]) -> None:
        """Send a control message after all that was handed over before."""
        self.task(lambda: self.hub.say(make()))

    def status_now(self) -> None:
        """Send a ``status`` at once: something happened that viewers should not wait for."""
        self._queue.put(())

    def close(self, timeout: float = 10.0, *, finished: bool = True) -> None:
        """Send what waits and end the thread. Safe twice.

        Where the training finished, a shutdown message is sent, and the hub is waited for until its recording
        is complete. What is still to be sent is waited for while some of it goes out every ``timeout``.
        """
        self.hub.last()
        until = time.monotonic() + _RECORDING_SECONDS
        before = -1
        while self.hub.frames > before and time.monotonic() < until:
            before = self.hub.frames
            super().close(timeout, finished=finished)
            if self._sent_goodbye or not self._thread.is_alive():
                break
        if self._sent_goodbye:
            self._thread.join(_RECORDING_SECONDS)
        if self._thread.is_alive():
            if waiting := self._put_bytes - self._taken_bytes:
                self.health.warn(
                    f"The tracer was closed while {waiting / 1e6:.3g} MB waited to be sent, of which the hub "
                    f"took nothing for {timeout:g} s: the last rows up to step {self.health.step} are lost."
                )
            self.hub.abort()
            self._thread.join(2.0)

    # Producer thread.

    def _leave(self) -> None:
        self.hub.close()

    def _loop(self) -> None:
        self.hub.open()
        while True:
            try:
                item = self._queue.get(timeout=self._patience())
            except queue.Empty:
                item = ...
            self._do_all()
            with self._unharmed():
                self._take(item)
            self._count_all()
            self.send_ready()
            if item is None:
                break
            # Every message wakes the hub and each viewer: numbers travel with other rows, or a few times a
            # second.
            if self._sent or self._scalars.due:
                self._send_scalars()
            self._sent = False
            with self._unharmed():
                self.hub.open()
            if time.monotonic() - self._status_at >= _STATUS_SECONDS:
                with self._unharmed():
                    self._send_status()
        lasts = (
            self._await_hub, self._send_last, self._send_scalars, self.health.sum_up, self._send_status
        )  # fmt: skip
        for last in lasts:
            with self._unharmed():
                last()
        if self._finished:
            self.hub.say({"type": "goodbye", "reason": "finished"})
            self._sent_goodbye = True
            self._wait_for_recording()

    def _take(self, item: Any) -> None:
        """Deal with one item of the queue."""
        if item is ...:
            self._send_scalars()
        elif isinstance(item, Control):
            try:
                self._control(item)
            finally:
                item.link.taken()
        elif isinstance(item, HubAddress):
            self.hub.move(item)
        elif item == ():
            self._status_at = 0.0

    def _await_hub(self) -> None:
        """Wait a moment for the hub to become known: a training may be over before."""
        deadline = time.monotonic() + _HUB_SECONDS
        while self.hub.awaited and (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                item = self._queue.get(timeout=min(left, 0.1))
                if item is not None:
                    self._take(item)
            self._do_all()
            self.hub.open()

    def _send_last(self) -> None:
        """Wait a moment for other processes' parts of the last step."""
        deadline = time.monotonic() + _LAST_SECONDS
        while any(gatherer.waiting for gatherer in self._gatherers):
            left = deadline - time.monotonic()
            with contextlib.suppress(queue.Empty):
                self._queue.get(timeout=max(0.0, left))
            self._do_all()
            self.send_ready(everything=left <= 0)
            if left <= 0:
                break

    def _wait_for_recording(self) -> None:
        """Wait while the hub reports that it writes; it closes the connection when that is complete."""
        began = reported = time.monotonic()
        heard = began
        while self.hub.there:
            now = time.monotonic()
            try:
                item = self._queue.get(
                    timeout=max(0.0, min(heard + _LAST_SECONDS, began + _RECORDING_SECONDS) - now)
                )
            except queue.Empty:
                break
            if not isinstance(item, Control):
                continue
            item.link.taken()
            if item.message is None:
                return
            if isinstance(item.message, ProtocolError) or item.message["type"] != "status":
                continue
            recording = item.message.get("recording")
            if recording is not None and recording["state"] == "on":
                heard = time.monotonic()
                if heard - reported >= _REPORT_SECONDS:
                    reported = heard
                    size = recording.get("bytes", 0) / 1e6
                    log.warning(
                        "Waiting for the recording to be whole: %.0f MB, %.0f s.", size, heard - began
                    )

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what gatherers have complete. In the thread."""
        for gatherer in self._gatherers:
            with self._unharmed():
                gatherer.send_ready(everything=everything)
                if gatherer.done:
                    self._gatherers = [each for each in self._gatherers if each is not gatherer]

    def _patience(self) -> float:
        wait = self.hub.wait
        if wait is None:
            # Where nobody looks, numbers go once a second, with all else.
            return SCALARS_SECONDS if self.watched and len(self._scalars) else _STATUS_SECONDS
        return min(_STATUS_SECONDS, max(0.01, wait))

    def _hub_came(self, hello: Hello) -> None:
        self.run_id = hello["run"]["id"]
        self._hub_is(True)
        self.hub.say(self._announce())
        # Whoever waited for it may ask the hub at once for what was announced.
        self.connected.set()
        self.hub.send_early()
        self._send_scalars()

    def _hub_went(self) -> None:
        self.connected.clear()
        self._hub_is(False)

    def _nobody_left(self) -> None:
        self.untraced = True

    def _count(self, cost: StepCost) -> None:
        super()._count(cost)
        if cost.ready is not None:
            cost.ready.synchronize()
        for scalar in cost.scalars:
            value = self._scalars.take(scalar)
            if value is not None:
                self._numbers.append((scalar.step, plain_text(scalar.name), value))
        self._counted = max(self._counted, cost.step if cost.wall_ns else 0)
        if cost.wall_ns:
            now = time.monotonic()
            if self._stepped is not None:
                self._stepped(cost.step, not cost.control, cost.wall_ns, cost.spent_ns)
            percent = self.health.overhead.percent
            if percent is not None and now - self._overhead_at >= 1.0:
                self._overhead_at = now
                self._scalars.add(cost.step, "megalens_overhead", percent, "%")

    def send(self, stream: str, rows: Rows, step: int) -> int:
        """Send rows of a stream, in the thread; return how many bytes, 0 where they are lost.

        They go in one frame, unless that would be larger than a message may be.
        """
        # Before it is sent: should the hub die over it, this step is one of those that are named.
        self.health.step = max(self.health.step, step)
        if isinstance(rows, FrameTemplate):
            sent = self.hub.send_made(step, lambda seq: [rows.frame(step=step, seq=seq)])
            return self._sent_rows(stream, rows.rows, [step], sent)
        declared = self._streams.named(stream)
        size = 0
        for batch in _in_frames(_batch(rows, declared)):
            steps = [step]
            if batch.num_rows and "step" in declared.schema.names:
                steps = batch.column("step").unique().to_pylist()
            if batch.nbytes > _MOST_FRAME_BYTES:
                words = f"{batch.nbytes / 1e6:.3g} MB a row; {_MOST_FRAME_BYTES / 1e6:.3g} MB at most"
                self.health.lose(1, "too-large", f"Rows of {stream}", min(steps), size=words)
                continue
            sent = self.hub.send_frame(declared, batch, step, min(steps))
            size += self._sent_rows(stream, batch.num_rows, steps, sent)
        return size

    def _sent_rows(self, stream: str, count: int, steps: list[int], sent: int) -> int:
        """Count rows of a frame of ``sent`` bytes, 0 where no hub took it; return that."""
        if sent:
            self._sent = True
            self.health.sent(steps, sent)
        elif not self._hubless:
            self.health.lose(count, "unsent", f"Rows of {stream}", min(steps))
        return sent

    def numbers(self, step: int) -> dict[str, float] | None:
        """See :meth:`Host.numbers`. In the thread."""
        if self._counted < step:
            return None
        taken = {}
        while self._numbers and self._numbers[0][0] <= step:
            _, name, value = self._numbers.popleft()
            taken[name] = value
        return taken

    def _send_scalars(self) -> None:
        if self.hub.there:
            self._scalars.send(self._rank, lambda table, step: self.hub.send_frame("scalars", table, step))

    def _control(self, item: Control) -> None:
        if not self.hub.is_current(item.link):
            return
        message = item.message
        if message is None:
            self.hub.lost("the connection broke")
        elif isinstance(message, ProtocolError):
            self.hub.say(message.to_message())
        elif message["type"] == "configure":
            # Whoever asks looks, also where the count of viewers is still on its way.
            self.watched = True
            try:
                answer: Message | None = self._configure(message["patch"], message["id"])
            except Exception as error:
                answer = as_protocol_error(error, "This change").to_message(message["id"])
            if answer is not None:
                self.hub.say(answer)
        elif message["type"] == "generate" or message["type"] == "cancel":
            try:
                self.hub.say(self._request(message))
            except Exception as error:
                self.hub.say(as_protocol_error(error, "This request").to_message(message["id"]))
        elif message["type"] == "status":
            self.watched = message.get("viewers", 1) > 0
            self._viewers(message.get("viewers", 0))
        elif message["type"] == "error":
            self.health.warn(f"The hub refused something: {message['message']}")
            self._refusals += message["code"] == "refused" and "reply_to" not in message
            if self._refusals >= _MOST_REFUSALS:
                self.hub.give_up("The hub does not take this process, so it is not traced. Training goes on.")

    def _send_status(self) -> None:
        self._status_at = time.monotonic()
        if self.hub.there:
            status = self._report(self.health.status())
            # Made once a second by this package itself: it is not checked against the schema each time.
            self.hub.send(json.dumps(status, ensure_ascii=False, allow_nan=False))


def _in_frames(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Give a batch in parts that a message can carry, one row at least."""
    if batch.nbytes <= _MOST_FRAME_BYTES or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _in_frames(batch.slice(0, half))
    yield from _in_frames(batch.slice(half))


def _batch(rows: Any, declared: Stream) -> Any:
    """Return rows as a batch of their stream; columns by name become one here, outside of the step."""
    if isinstance(rows, pa.RecordBatch):
        return rows
    return arrow_batch(rows, declared.schema)
