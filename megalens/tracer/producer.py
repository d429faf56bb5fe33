"""The producer thread: takes what the training thread hands over, makes frames of it and sends them to the hub."""

from __future__ import annotations

import json
import queue
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..protocol import ProtocolError, encode_frame, encode_message
from .batch import Batch, Row, split_rows, tensors_table
from .early_frames import EarlyFrames
from .gatherers import Gatherers, IGatherer
from .hub_process import HubAddress, HubProcess
from .joiner import Joiner
from .link import Link, LinkLost
from .numbers_out import NumbersOut
from .recent_steps import RecentSteps
from .staging import Stage, StagePool
from .token_texts import TokenTexts
from .worker import Errand, Pieces, Reply, Worker

__all__ = ["Control", "Producer"]

_FRAME_BYTES = 32 << 20
_ROW_BYTES = 60 << 20
_STATUS_SECONDS = 1.0
_SCALARS_SECONDS = 0.2
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LAST_SECONDS = 2.0
_MOST_REFUSALS = 3
_MOMENT_ROWS = 100_000


@dataclass(frozen=True)
class Control:
    """Something that came from the hub; ``message`` is None when the connection is gone."""

    link: Link
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
        self._joiner = joiner
        self._gatherers = Gatherers()
        self._report, self._viewers, self._hub_is, self._moved = report, viewers, hub_is, moved
        self._stepped = stepped
        self._hubless = hubless
        self._address = address
        self._process = process
        self._rank = rank
        self._peer = peer
        self._announce = announce
        self._configure = configure
        self._texts = None if decode is None else TokenTexts(decode, self.health.warn)
        self._link: Link | None = None
        self._seq = 0
        self._recent = RecentSteps()
        self._restarted = False
        self._refusals = 0
        self._tries = 0
        self._retry_at = 0.0
        self._numbers = NumbersOut(self.health.warn)
        self._overhead_at = self._status_at = time.monotonic()
        self._early = EarlyFrames(address is None and not hubless)
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
        self.errand(lambda: self._gatherers.add(gatherer))

    def status_now(self) -> None:
        """Send a ``status`` at once: something happened that viewers should not wait for."""
        self._queue.put(())

    def close(self, timeout: float = 10.0, *, finished: bool = True) -> None:
        """Send what is waiting, say goodbye where the training finished, and end the thread. Safe twice."""
        super().close(timeout, finished=finished)
        if self._thread.is_alive():
            link = self._link
            if link is not None:
                link.abort()
            self._thread.join(2.0)

    @property
    def hub_pid(self) -> int | None:
        """Process of our own hub."""
        return None if self._process is None else self._process.pid

    # Producer thread.

    def _leave(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _loop(self) -> None:
        self._connect()
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
                self._take_pieces(item)
            elif isinstance(item, Control):
                self._control(item)
            elif isinstance(item, Errand):
                item.run()
            elif isinstance(item, Reply):
                self._say(item.make())
            elif isinstance(item, HubAddress):
                self._address, self._retry_at = item, 0.0
            elif item == ():
                self._status_at = 0.0
            self._send_ready()
            if self._link is None and not self.untraced and time.monotonic() >= self._retry_at:
                self._connect()
            if time.monotonic() - self._status_at >= _STATUS_SECONDS:
                self._send_status()
        self._send_last()
        self._send_scalars()
        self._send_status()
        if self._finished:
            self._say({"type": "goodbye", "reason": "finished"})

    def _send_last(self) -> None:
        """Wait a moment for what other processes have of the last step."""
        deadline = time.monotonic() + _LAST_SECONDS
        while (self._joiner is not None and self._joiner.waiting) or self._gatherers.waiting:
            left = deadline - time.monotonic()
            try:
                item = self._queue.get(timeout=max(0.0, left))
            except queue.Empty:
                item = None
            if isinstance(item, Pieces):
                self._take_pieces(item)
            elif isinstance(item, Errand):
                item.run()
            self._send_ready(everything=left <= 0)

    def _patience(self) -> float:
        if self._link is not None or self.untraced or self._address is None:
            return _SCALARS_SECONDS if len(self._numbers) else _STATUS_SECONDS
        return min(_STATUS_SECONDS, max(0.01, self._retry_at - time.monotonic()))

    def _connect(self) -> None:
        if self._address is None:
            return
        try:
            link = Link(
                self._address, self._peer, lambda link, message: self._queue.put(Control(link, message))
            )
        except LinkLost as error:
            self._lost(str(error))
            return
        self.run_id = link.hello["run"]["id"]
        self._link = link
        self._tries = 0
        self.connected.set()
        self._hub_is(True)
        self._say(self._announce())
        self._send_early()
        self._send_scalars()
        if restarted := self._recent.hub_is_back(self.health.step):
            self.health.warn(restarted)

    def _send_early(self) -> None:
        try:
            for frame in self._early.take():
                if self._link is None:
                    break
                self._link.send(frame)
        except LinkLost as error:
            self._lost(str(error))

    def _lost(self, why: str) -> None:
        """Decide what comes after a broken connection: the same hub again, our own hub started anew once, or none."""
        self._link = None
        self.connected.clear()
        self._hub_is(False)
        if self.untraced or self._closing:
            return
        if self._process is None or (self._process.alive and self._tries < 3):
            delay = _RETRY_SECONDS[min(self._tries, len(_RETRY_SECONDS) - 1)]
            self._tries += 1
            self._retry_at = time.monotonic() + delay
            if self._tries == 2:
                self.health.warn(f"The hub cannot be reached ({why}). Training goes on; trying again.")
            return
        if self._restarted:
            self._give_up(
                f"The hub ended a second time, at step {self.health.step}. Training goes on untraced."
            )
            return
        self._restarted = True
        self._tries = 0
        self._recent.hub_ended(self.health.step)
        try:
            self._address = self._process.start()
        except Exception as error:
            self._give_up(f"The hub ended at step {self.health.step} and could not be started again. {error}")
            return
        self._moved(self._address)
        self._retry_at = 0.0

    def _give_up(self, text: str) -> None:
        self.health.warn(text)
        self.untraced = True

    def _batch(self, batch: Batch) -> None:
        rows, stage = self._finish(batch)
        if self._joiner is None:
            self._send_tensors(batch.step, rows, stage)
        else:
            self._joiner.put(batch, rows, stage)
        for scalar in batch.scalars:
            self._numbers.keep(scalar)
        if batch.wall_ns:
            now = time.monotonic()
            self._step_ended(batch.wall_ns)
            if self._stepped is not None:
                self._stepped(batch.step, not batch.control, batch.wall_ns)
            percent = self.health.overhead.percent
            if percent is not None and now - self._overhead_at >= 1.0:
                self._overhead_at = now
                self._numbers.add(batch.step, "megalens_overhead", percent, "%")
        # Every message wakes the hub and each viewer: numbers travel with the tensors, or a few times a second.
        if batch.rows or self._numbers.due:
            self._send_scalars()
        self._taken_bytes += batch.nbytes

    def _take_pieces(self, item: Pieces) -> None:
        assert self._joiner is not None
        try:
            self._joiner.take(item.rank, item.meta, item.payload)
        except (KeyError, ValueError, TypeError) as error:
            self.health.warn(f"Rank {item.rank} sent something that cannot be read: {str(error)[:200]}")

    def _send_ready(self, *, everything: bool = False) -> None:
        self._gatherers.send_ready(everything=everything)
        if self._joiner is None:
            return
        # What waits in the queue may be the very pieces: nobody is late while this thread is behind.
        for waiting, rows in self._joiner.ready(everything=everything, caught_up=self.caught_up()):
            # Joined values lie elsewhere than in the stage.
            self._send_tensors(waiting.batch.step, rows, None if waiting.needs else waiting.stage)
            if waiting.needs and waiting.stage is not None:
                self._tiles.give(waiting.stage)
        self.health.unjoined_rows = self._joiner.lost_rows

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
        return self._send_frame("tensors", table, step)

    def send_moments(self, table: Any, step: int) -> None:
        """Send rows of statistics; in the thread."""
        for first in range(0, table.num_rows, _MOMENT_ROWS):
            part = table.slice(first, _MOMENT_ROWS)
            sent = self._send_frame("moments", part, step)
            if sent:
                self.health.sent(step, sent)
            elif not self._hubless:
                self.health.lost_rows += part.num_rows

    def _send_scalars(self) -> None:
        if self._link is not None:
            self._numbers.send(self._rank, lambda table, step: self._send_frame("scalars", table, step))

    def _send_frame(self, stream: str, table: Any, step: int) -> int:
        """Send one frame and return its size; 0 when there is no hub to take it."""
        if self._link is not None:
            self._seq += 1
            frame = encode_frame(stream, table, step=step, seq=self._seq)
            try:
                self._link.send(frame)
                if stream == "tensors":
                    self._recent.note(step)
                return len(frame)
            except LinkLost as error:
                self._lost(str(error))
        elif self._early.room:
            # Nobody has said yet where the hub is.
            self._seq += 1
            frame = encode_frame(stream, table, step=step, seq=self._seq)
            self._early.keep(frame)
            return len(frame)
        if stream == "tensors":
            self.health.lost_rows += table.num_rows
        return 0

    def _control(self, item: Control) -> None:
        if item.link is not self._link:
            return
        message = item.message
        if message is None:
            self._lost("the connection broke")
        elif isinstance(message, ProtocolError):
            self._say(message.to_message())
        elif message["type"] == "configure":
            try:
                answer = self._configure(message["patch"], message["id"])
            except ProtocolError as error:
                answer = error.to_message(message["id"])
            if answer is not None:
                self._say(answer)
        elif message["type"] == "status":
            self._viewers(int(message.get("viewers", 0)))
        elif message["type"] == "error":
            self.health.warn(f"The hub refused something: {message['message']}")
            self._refusals += message["code"] == "refused" and "reply_to" not in message
            if self._refusals >= _MOST_REFUSALS:
                self._give_up("The hub does not take this process, so it is not traced. Training goes on.")

    def _say(self, message: dict[str, Any]) -> None:
        if self._link is None:
            return
        try:
            self._link.send(encode_message(message))
        except LinkLost as error:
            self._lost(str(error))
        except ProtocolError as error:
            self.health.warn(f"A message of the tracer's own was wrong: {error}")

    def _send_status(self) -> None:
        self._status_at = time.monotonic()
        if self._link is not None:
            try:
                self._link.send(
                    json.dumps(self._report(self.health.status()), ensure_ascii=False, allow_nan=False)
                )
            except LinkLost as error:
                self._lost(str(error))
