"""The producer thread: takes what the training thread hands over, makes frames of it and sends them to the hub."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...protocol import FrameTemplate, ProtocolError
from ..tensors.batch import Batch, Row, split_rows, tensors_table
from ..tensors.joining.joiner import Joiner
from ..tensors.joining.piece_gatherer import PieceGatherer
from ..tensors.staging import Stage, StagePool
from ..tensors.token_texts import TokenTexts
from .gatherers import Gatherers, IGatherer
from .hub_connection import HubConnection
from .hub_link import HubLink
from .hub_process import HubAddress, HubProcess
from .scalars import ScalarQueue
from .worker import Pieces, Reply, Task, Worker

__all__ = ["Control", "Producer"]

_FRAME_BYTES = 32 << 20
_ROW_BYTES = 60 << 20
_STATUS_SECONDS = 1.0
_SCALARS_SECONDS = 0.2
_LAST_SECONDS = 2.0
_MOST_REFUSALS = 3


@dataclass(frozen=True)
class Control:
    """Something that came from the hub; ``message`` is None when the connection is gone."""

    link: HubLink
    message: dict[str, Any] | ProtocolError | None


class Producer(Worker):
    """Sends batches to a hub.

    Parameters
    ----------
    address : HubAddress or None
        The hub to begin with; None until :meth:`move` says where it is.
    process : HubProcess or None
        Ours to start again once, when it is our own hub.
    rank : int
        Rank of this process.
    announce : callable
        Gives the ``announce`` message as of now.
    configure : callable
        Takes a patch and an id, arranges that it is applied and gives the ``configured`` answer, or None where that comes later; raises ``ProtocolError``.
    stages : StagePool
        Where the memory of a batch goes back to.
    decode : callable, optional
        Text of one token id.
    joiner : Joiner, optional
        Where batches wait for pieces of other ranks.
    report : callable, optional
        Adds to the ``status`` message what this thread does not know.
    viewers : callable, optional
        Takes how many viewers the hub has.
    hub_is : callable, optional
        Takes whether a hub is connected.
    moved : callable, optional
        Takes the address of a hub that was started anew.
    stepped : callable, optional
        Takes each step with whether it was traced and how long it took, in ns.
    hubless : bool
        Whether no hub will ever be said.
    queue_bytes : int
        Bytes that may wait before the newest rows are given up.
    """

    def __init__(
        self,
        address: HubAddress | None,
        process: HubProcess | None,
        *,
        rank: int,
        peer: dict[str, Any],
        announce: Callable[[], dict[str, Any]],
        configure: Callable[[dict[str, Any], str], dict[str, Any] | None],
        stages: StagePool,
        decode: Callable[[int], str] | None = None,
        joiner: Joiner | None = None,
        report: Callable[[dict[str, Any]], dict[str, Any]] = lambda status: status,
        viewers: Callable[[int], None] = lambda count: None,
        hub_is: Callable[[bool], None] = lambda there: None,
        moved: Callable[[HubAddress], None] = lambda address: None,
        stepped: Callable[[int, bool, int], None] | None = None,
        hubless: bool = False,
        queue_bytes: int = 64 << 20,
    ) -> None:
        super().__init__(stages, queue_bytes)
        self._gatherers = Gatherers()
        self._pieces: PieceGatherer | None = None
        if joiner is not None:
            self._pieces = PieceGatherer(joiner, self._send_tensors, self._tiles, self.health, self.caught_up)
            self._gatherers.add(self._pieces)
        self._hub = HubConnection(
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
        self._texts = None if decode is None else TokenTexts(decode, self.health.warn)
        self._refusals = 0
        self._scalars = ScalarQueue(self.health.warn)
        self._overhead_at = self._status_at = time.monotonic()
        self.run_id = None if address is None else address.run_id
        self._thread.start()

    # Other threads.

    def move(self, address: HubAddress) -> None:
        """Use the hub that is there."""
        self._queue.put(address)

    def pieces(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Hand over what another rank of the tensor-parallel group sent."""
        self._queue.put(Pieces(rank, meta, payload))

    def caught_up(self) -> bool:
        """Return whether everything that was handed over has been taken."""
        return self._queue.empty()

    def gathers(self, gatherer: IGatherer) -> None:
        """Look after a gatherer from now on, until it is done."""
        self.task(lambda: self._gatherers.add(gatherer))

    def status_now(self) -> None:
        """Send a ``status`` at once: something happened that viewers should not wait for."""
        self._queue.put(())

    def close(self, timeout: float = 10.0, *, finished: bool = True) -> None:
        """Send what is waiting, say goodbye where the training finished, and end the thread. Safe twice."""
        self._hub.last()
        super().close(timeout, finished=finished)
        if self._thread.is_alive():
            self._hub.abort()
            self._thread.join(2.0)

    @property
    def hub_pid(self) -> int | None:
        """Process of our own hub."""
        return self._hub.pid

    @property
    def piece_bytes(self) -> int:
        """Bytes of pieces that other ranks sent."""
        return 0 if self._pieces is None else self._pieces.bytes_received

    # Producer thread.

    def _leave(self) -> None:
        self._hub.close()

    def _loop(self) -> None:
        self._hub.open()
        while True:
            try:
                item = self._queue.get(timeout=self._patience())
            except queue.Empty:
                item = ...
                self._send_scalars()
            if item is None:
                break
            if isinstance(item, Batch):
                self._batch(item)
            elif isinstance(item, Pieces):
                self._of_other(item)
            elif isinstance(item, Control):
                self._control(item)
            elif isinstance(item, Task):
                item.run()
            elif isinstance(item, Reply):
                self._hub.say(item.make())
            elif isinstance(item, HubAddress):
                self._hub.move(item)
            elif item == ():
                self._status_at = 0.0
            self._gatherers.send_ready()
            self._hub.open()
            if time.monotonic() - self._status_at >= _STATUS_SECONDS:
                self._send_status()
        self._send_last()
        self._send_scalars()
        self._send_status()
        if self._finished:
            self._hub.say({"type": "goodbye", "reason": "finished"})

    def _send_last(self) -> None:
        """Wait a moment for what other processes have of the last step."""
        deadline = time.monotonic() + _LAST_SECONDS
        while self._gatherers.waiting:
            left = deadline - time.monotonic()
            try:
                item = self._queue.get(timeout=max(0.0, left))
            except queue.Empty:
                item = None
            if isinstance(item, Pieces):
                self._of_other(item)
            elif isinstance(item, Task):
                item.run()
            self._gatherers.send_ready(everything=left <= 0)

    def _patience(self) -> float:
        wait = self._hub.wait
        if wait is None:
            return _SCALARS_SECONDS if len(self._scalars) else _STATUS_SECONDS
        return min(_STATUS_SECONDS, max(0.01, wait))

    def _hub_came(self, hello: dict[str, Any]) -> None:
        self.run_id = hello["run"]["id"]
        self.connected.set()
        self._hub_is(True)
        self._hub.say(self._announce())
        self._hub.send_early()
        self._send_scalars()

    def _hub_went(self) -> None:
        self.connected.clear()
        self._hub_is(False)

    def _nobody_left(self) -> None:
        self.untraced = True

    def _batch(self, batch: Batch) -> None:
        rows, stage = self._finish(batch)
        if self._pieces is None:
            self._send_tensors(batch.step, rows, stage)
        else:
            self._pieces.put(batch, rows, stage)
        for scalar in batch.scalars:
            self._scalars.keep(scalar)
        if batch.wall_ns:
            now = time.monotonic()
            self._step_ended(batch.wall_ns)
            if self._stepped is not None:
                self._stepped(batch.step, not batch.control, batch.wall_ns)
            percent = self.health.overhead.percent
            if percent is not None and now - self._overhead_at >= 1.0:
                self._overhead_at = now
                self._scalars.add(batch.step, "megalens_overhead", percent, "%")
        # Every message wakes the hub and each viewer: numbers travel with the tensors, or a few times a second.
        if batch.rows or self._scalars.due:
            self._send_scalars()
        self._taken_bytes += batch.nbytes

    def _of_other(self, item: Pieces) -> None:
        assert self._pieces is not None
        self._pieces.take(item.rank, item.meta, item.payload)

    def _send_tensors(self, step: int, rows: Sequence[Row], stage: Stage | None) -> None:
        for part in split_rows(rows, _FRAME_BYTES):
            self.health.sent(step, self._send_rows(step, part, stage))
        if stage is not None:
            self._tiles.give(stage)

    def _send_rows(self, step: int, rows: Sequence[Row], stage: Stage | None) -> int:
        if any(row.values.nbytes > _ROW_BYTES for row in rows):
            self.health.lost_rows += len(rows)
            self.health.warn(
                f"{rows[0].meta.flag} is larger than one message may be ({_ROW_BYTES >> 20} MiB). Compress it more."
            )
            return 0
        table, counts = tensors_table(step, self._rank, rows, self._texts, stage)
        self.health.count_nonfinite(step, rows, counts)
        sent = self._hub.send_frame("tensors", table, step)
        if not sent:
            self.health.lost_rows += table.num_rows
        return sent

    def send_moments(self, rows: FrameTemplate, step: int) -> None:
        """Send rows of statistics; in the thread."""
        sent = self._hub.send_made("moments", step, lambda seq: rows.frame(step=step, seq=seq))
        if sent:
            self.health.sent(step, sent)
        elif not self._hubless:
            self.health.lost_rows += rows.rows

    def _send_scalars(self) -> None:
        if self._hub.there:
            self._scalars.send(self._rank, lambda table, step: self._hub.send_frame("scalars", table, step))

    def _control(self, item: Control) -> None:
        if not self._hub.is_current(item.link):
            return
        message = item.message
        if message is None:
            self._hub.lost("the connection broke")
        elif isinstance(message, ProtocolError):
            self._hub.say(message.to_message())
        elif message["type"] == "configure":
            try:
                answer = self._configure(message["patch"], message["id"])
            except ProtocolError as error:
                answer = error.to_message(message["id"])
            if answer is not None:
                self._hub.say(answer)
        elif message["type"] == "status":
            self._viewers(int(message.get("viewers", 0)))
        elif message["type"] == "error":
            self.health.warn(f"The hub refused something: {message['message']}")
            self._refusals += message["code"] == "refused" and "reply_to" not in message
            if self._refusals >= _MOST_REFUSALS:
                self._hub.give_up(
                    "The hub does not take this process, so it is not traced. Training goes on."
                )

    def _send_status(self) -> None:
        self._status_at = time.monotonic()
        if self._hub.there:
            status = self._report(self.health.status())
            # Made once a second by this package itself: it is not checked against the schema each time.
            self._hub.send(json.dumps(status, ensure_ascii=False, allow_nan=False))
