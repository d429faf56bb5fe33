"""The producer thread: takes what the training thread hands over, makes frames of it and sends them to the hub."""

from __future__ import annotations

import functools
import json
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..protocol import ProtocolError, encode_frame, encode_message
from .batch import (
    RAW_BYTES,
    Batch,
    Row,
    ScalarRow,
    count_rows,
    finish_rows,
    scalars_table,
    split_rows,
    tensors_table,
)
from .health import Health
from .hub_process import HubAddress, HubProcess
from .link import Link, LinkLost
from .staging import Stage, StagePool

__all__ = ["Control", "Producer", "Reply"]

log = logging.getLogger("megalens")

_FRAME_BYTES = 32 << 20
_ROW_BYTES = 60 << 20
_STATUS_SECONDS = 1.0
_SCALARS_SECONDS = 0.2
_RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SCRATCH = RAW_BYTES // 4
_KEPT_SCALARS = 10_000


@dataclass(frozen=True)
class Control:
    """Something that came from the hub; ``message`` is None when the connection is gone."""

    link: Link
    message: dict[str, Any] | ProtocolError | None


@dataclass(frozen=True)
class Reply:
    """A control message to send, in its order among the batches."""

    make: Callable[[], dict[str, Any]]


class Producer:
    """Sends batches to a hub from a thread of its own.

    Parameters
    ----------
    address : HubAddress
        The hub to begin with.
    process : HubProcess or None
        Ours to start again once, when it is our own hub.
    rank : int
        Rank of this process.
    announce : callable
        Gives the ``announce`` message as of now.
    configure : callable
        Takes a patch and an id, arranges that it is applied and gives the ``configured`` answer; raises ``ProtocolError``.
    stages : StagePool
        Where the memory of a batch goes back to.
    decode : callable, optional
        Text of one token id.
    queue_bytes : int
        Bytes that may wait before the newest rows are given up.
    """

    def __init__(
        self,
        address: HubAddress,
        process: HubProcess | None,
        *,
        rank: int,
        peer: dict[str, Any],
        announce: Callable[[], dict[str, Any]],
        configure: Callable[[dict[str, Any], str], dict[str, Any]],
        stages: StagePool,
        decode: Callable[[int], str] | None = None,
        queue_bytes: int = 64 << 20,
    ) -> None:
        self._queue: queue.SimpleQueue[Batch | Control | Reply | None] = queue.SimpleQueue()
        self._address = address
        self._process = process
        self._rank = rank
        self._peer = peer
        self._announce = announce
        self._configure = configure
        self._decode = functools.lru_cache(65536)(decode) if decode is not None else None
        self._queue_bytes = queue_bytes
        self._stages = stages
        self._tiles = StagePool()
        self._scratch = Stage(_SCRATCH)
        self._link: Link | None = None
        self._seq = 0
        self._restarts = 0
        self._tries = 0
        self._retry_at = 0.0
        self._closing = False
        self._unsent: deque[tuple[int, float, str, float, str]] = deque(maxlen=_KEPT_SCALARS)
        self._overhead_at = self._status_at = self._scalars_at = time.monotonic()
        self._spent_ns = self._cpu_ns = 0
        # Each of the two is written by one thread only, so that neither needs a lock.
        self._put_bytes = 0
        self._taken_bytes = 0
        self.health = Health()
        self.run_id = address.run_id
        self.connected = threading.Event()
        self.untraced = False
        """True once the hub is given up for good: the tracer takes its hooks off."""
        self._thread = threading.Thread(target=self._run, name="megalens-producer", daemon=True)
        self._thread.start()

    # Training thread.

    def put(self, batch: Batch) -> None:
        """Hand over a batch. Never waits: when too much is waiting, its rows are given up and counted."""
        if batch.nbytes and self._put_bytes - self._taken_bytes + batch.nbytes > self._queue_bytes:
            self.health.given_up_rows += count_rows(batch.rows)
            batch.rows, batch.nbytes = [], 0
        self._put_bytes += batch.nbytes
        self._queue.put(batch)

    def reply(self, make: Callable[[], dict[str, Any]]) -> None:
        """Send a control message after the batches that were handed over before."""
        self._queue.put(Reply(make))

    def close(self, timeout: float = 10.0) -> None:
        """Send what is waiting, say goodbye, and end the thread. Safe twice."""
        if not self._closing:
            self._closing = True
            self._queue.put(None)
        self._thread.join(timeout)
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

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:  # A fault here must be said, and must end nothing but the tracing.
            self.health.warn(
                f"Tracing has stopped after an error of its own: {type(error).__name__}: {error}"
            )
            log.debug("producer thread", exc_info=True)
            self.untraced = True
        finally:
            link, self._link = self._link, None
            if link is not None:
                link.close()

    def _loop(self) -> None:
        self._connect()
        while True:
            try:
                item = self._queue.get(timeout=self._patience())
            except queue.Empty:
                item = ()  # type: ignore[assignment]
                self._send_scalars()
            if item is None:
                break
            if isinstance(item, Batch):
                self._batch(item)
            elif isinstance(item, Control):
                self._control(item)
            elif isinstance(item, Reply):
                self._say(item.make())
            if self._link is None and not self.untraced and time.monotonic() >= self._retry_at:
                self._connect()
            if time.monotonic() - self._status_at >= _STATUS_SECONDS:
                self._send_status()
        self._send_scalars()
        self._send_status()
        self._say({"type": "goodbye", "reason": "finished"})

    def _patience(self) -> float:
        if self._link is not None or self.untraced:
            return _SCALARS_SECONDS if self._unsent else _STATUS_SECONDS
        return min(_STATUS_SECONDS, max(0.01, self._retry_at - time.monotonic()))

    def _connect(self) -> None:
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
        self._say(self._announce())
        self._send_scalars()

    def _lost(self, why: str) -> None:
        """Decide what comes after a broken connection: the same hub again, our own hub started anew once, or none."""
        self._link = None
        self.connected.clear()
        if self.untraced or self._closing:
            return
        if self._process is None or (self._process.alive and self._tries < 3):
            delay = _RETRY_SECONDS[min(self._tries, len(_RETRY_SECONDS) - 1)]
            self._tries += 1
            self._retry_at = time.monotonic() + delay
            if self._tries == 2:
                self.health.warn(f"The hub cannot be reached ({why}). Training goes on; trying again.")
            return
        if self._restarts:
            self._give_up(
                f"The hub ended a second time, at step {self.health.step}. Training goes on untraced."
            )
            return
        self._restarts += 1
        self._tries = 0
        try:
            self._address = self._process.start()
        except Exception as error:
            self._give_up(f"The hub ended at step {self.health.step} and could not be started again. {error}")
            return
        self.health.warn(
            f"The hub ended and was restarted at step {self.health.step}. What follows is in a new recording."
        )
        self._retry_at = 0.0

    def _give_up(self, text: str) -> None:
        self.health.warn(text)
        self.untraced = True

    def _batch(self, batch: Batch) -> None:
        if batch.ready is not None:
            batch.ready.synchronize()
        self.health.step = max(self.health.step, batch.step)
        if batch.probes is not None:
            self.health.probes = batch.probes
            if batch.probes[0] == 0 and batch.probes[1]:
                self.health.warn(
                    "No probe fired in a step that was to be traced. A compiled model (torch.compile) calls no hooks: "
                    "run it uncompiled to see its tensors."
                )
        self._spent_ns += batch.spent_ns
        self._send_tensors(batch)
        for scalar in batch.scalars:
            self._keep_scalar(scalar)
        if batch.wall_ns:
            now = time.monotonic()
            self.health.step_ended()
            cpu = time.thread_time_ns()
            self.health.overhead.add(self._spent_ns + cpu - self._cpu_ns, batch.wall_ns)
            self._spent_ns, self._cpu_ns = 0, cpu
            percent = self.health.overhead.percent
            if percent is not None and now - self._overhead_at >= 1.0:
                self._overhead_at = now
                self._unsent.append((batch.step, time.time(), "megalens_overhead", percent, "%"))
        # Every message wakes the hub and each viewer: numbers travel with the tensors, or a few times a second.
        if batch.rows or time.monotonic() - self._scalars_at >= _SCALARS_SECONDS:
            self._send_scalars()
        self._taken_bytes += batch.nbytes

    def _send_tensors(self, batch: Batch) -> None:
        stage = self._tiles.take()
        finished = finish_rows(batch.rows, stage, self._scratch)
        if batch.stage is not None:
            self._stages.give(batch.stage)
        for rows in split_rows(finished, _FRAME_BYTES):
            self.health.sent(batch.step, self._send_rows(batch.step, rows, stage))
        self._tiles.give(stage)

    def _send_rows(self, step: int, rows: Sequence[Row], stage: Stage) -> int:
        if any(row.values.nbytes > _ROW_BYTES for row in rows):
            self.health.lost_rows += len(rows)
            self.health.warn(
                f"{rows[0].meta.flag} is larger than one message may be ({_ROW_BYTES >> 20} MiB). Compress it more."
            )
            return 0
        labels = self._labels if self._decode else None
        table, counts = tensors_table(step, self._rank, rows, labels, stage)
        self.health.count_nonfinite(step, rows, counts)
        return self._send_frame("tensors", table, step)

    def _keep_scalar(self, row: ScalarRow) -> None:
        try:
            value = float(row.value)
        except (TypeError, ValueError, RuntimeError):
            self.health.warn(f"{row.name} was logged with something that is not one number; it is left out.")
            return
        self._unsent.append((row.step, row.time, row.name, value, row.unit))

    def _send_scalars(self) -> None:
        self._scalars_at = time.monotonic()
        if self._unsent and self._link is not None:
            rows = list(self._unsent)
            if self._send_frame("scalars", scalars_table(self._rank, rows), max(row[0] for row in rows)):
                self._unsent.clear()

    def _send_frame(self, stream: str, table: Any, step: int) -> int:
        """Send one frame and return its size; 0 when there is no hub to take it."""
        if self._link is not None:
            self._seq += 1
            frame = encode_frame(stream, table, step=step, seq=self._seq)
            try:
                self._link.send(frame)
                return len(frame)
            except LinkLost as error:
                self._lost(str(error))
        if stream == "tensors":
            self.health.lost_rows += table.num_rows
        return 0

    def _labels(self, row: Row) -> list[str]:
        if row.meta.flag != "InputTokens" or row.meta.part != "ids" or self._decode is None:
            return []
        try:
            return [self._decode(int(number)) for number in row.values.reshape(-1).tolist()]
        except Exception as error:  # The tokenizer is the user's.
            self.health.warn(
                f"The tokenizer could not decode ids ({type(error).__name__}). Tokens are shown without text."
            )
            self._decode = None
            return []

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
            self._say(answer)
        elif message["type"] == "error":
            self.health.warn(f"The hub refused something: {message['message']}")

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
                self._link.send(json.dumps(self.health.status(), ensure_ascii=False, allow_nan=False))
            except LinkLost as error:
                self._lost(str(error))
