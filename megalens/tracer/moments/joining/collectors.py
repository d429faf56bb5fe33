"""Where the statistics of a step go from the training thread: on rank 0 into rows, on the others to rank 0."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...sending.producer import Producer
from ...sending.worker import Worker
from ..frames import MomentFrames
from .gathering import Gathering, WholeStep
from .names import NameList
from .packing import pack, unpack
from .part import MeasuredStep

__all__ = ["MemberCollector", "RootCollector"]

_MOST_WAITING = 64
_MOST_BYTES = 64 << 20


class _Collector:
    """Hands steps over to the producer thread. Never waits: of too many the newest is given up and counted."""

    def __init__(self, worker: Worker, names: NameList) -> None:
        self._worker = worker
        self._names = names
        # Each is written by one thread only, so that neither needs a lock.
        self._put = self._taken = 0

    def put(self, parts: MeasuredStep) -> None:
        """Take a step, in the training thread."""
        worker = self._worker
        if not worker.alive:
            return
        if self._put - self._taken >= _MOST_WAITING:
            worker.health.given_up_rows += sum(len(part.ids) for part in parts.parts)
            worker.health.warn(
                f"The statistics of step {parts.step} were given up: earlier ones still wait to be sent."
            )
            return
        self._put += 1
        worker.task(lambda: self._own(parts))

    def _own(self, parts: MeasuredStep) -> None:
        self._taken += 1
        try:
            self._take_own(parts)
        except Exception as error:  # Tracing goes on without these.
            self._worker.health.warn(
                f"The statistics of step {parts.step} were lost to an error of their own: {type(error).__name__}: {str(error)[:200]}"
            )

    def _take_own(self, parts: MeasuredStep) -> None:
        raise NotImplementedError


class MemberCollector(_Collector):
    """Of every process but rank 0.

    Parameters
    ----------
    worker : Worker
        Its producer thread.
    names : NameList
        What ids stand for.
    send : callable
        Takes a description and arrays for rank 0; never waits.
    """

    def __init__(
        self,
        worker: Worker,
        names: NameList,
        send: Callable[[dict[str, Any], Sequence[np.ndarray]], None],
    ) -> None:
        super().__init__(worker, names)
        self._send = send
        self._told = 0

    def tell_anew(self) -> None:
        """Say all names again: something did not arrive."""
        self._told = 0

    def _take_own(self, parts: MeasuredStep) -> None:
        figures = parts.figures()
        told, self._told = self._told, len(self._names)
        meta, arrays = pack(parts.step, parts.samples, figures, self._names, told)
        self._send(meta, arrays)


class RootCollector(_Collector):
    """Of rank 0, or of a job of one process.

    Parameters
    ----------
    producer : Producer
        Its producer thread.
    names : NameList
        What its own ids stand for.
    rank, world_size : int
        Its place in the job.
    name : callable
        Gives what people are told of a rank.
    gone : callable
        Gives whether a rank has left.
    keep : callable, optional
        Takes each step too; for files.
    """

    def __init__(
        self,
        producer: Producer,
        names: NameList,
        *,
        rank: int,
        world_size: int,
        name: Callable[[int], str],
        gone: Callable[[int], bool],
        keep: Callable[[WholeStep], None] | None = None,
    ) -> None:
        super().__init__(producer, names)
        self._producer = producer
        self._rank = rank
        self._name = name
        self._keep = keep
        self._gathering = Gathering(world_size, name, gone, producer.health.warn)
        self._frames = MomentFrames(rank)
        self._told = 0
        self._came_bytes = self._read_bytes = 0
        self._ended = False
        producer.gathers(self)

    @property
    def waiting(self) -> bool:
        """Whether a step waits for other processes."""
        return self._gathering.waiting

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""
        return self._ended and not self.waiting

    def end(self) -> None:
        """Take nothing more; what came is still sent."""
        self._worker.task(self._end)

    def _end(self) -> None:
        self._ended = True

    def take(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another process sent, in the peers' thread."""
        if not self._worker.alive:
            return
        if self._came_bytes - self._read_bytes > _MOST_BYTES:
            # The step is then one that this process did not send.
            return
        self._came_bytes += len(payload)
        self._worker.task(lambda: self._of_other(rank, meta, payload))

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what is complete, in the producer thread."""
        for whole in self._gathering.ready(self._producer.caught_up, everything=everything):
            self._producer.health.lost_rows += whole.left_out
            for frame in self._frames.of(whole):
                self._producer.send_moments(frame, whole.step)
            if self._keep is not None and any(len(each.rows) for each in whole.stats):
                self._keep(whole)

    def _take_own(self, parts: MeasuredStep) -> None:
        figures = parts.figures()
        told, self._told = self._told, len(self._names)
        self._gathering.take(
            self._rank,
            parts.step,
            parts.samples,
            self._names.stage,
            told,
            self._names.since(told)[: self._told - told],
            figures,
        )

    def _of_other(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        self._read_bytes += len(payload)
        try:
            names, figures = unpack(meta, payload)
            self._gathering.take(
                rank,
                int(meta["step"]),
                int(meta["samples"]),
                int(meta["stage"]),
                int(meta["first"]),
                names,
                figures,
            )
        except (KeyError, ValueError, TypeError, IndexError) as error:
            self._producer.health.warn(
                f"{self._name(rank)} sent statistics that cannot be read: {str(error)[:200]}"
            )
