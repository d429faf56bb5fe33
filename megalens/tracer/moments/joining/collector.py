"""A process's part in the statistics of its job: what is logged, and who takes it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...place import Place
from ...sending.producer import Producer
from ...sending.worker import Worker
from ..intervals import Intervals
from .collectors import MemberCollector, RootCollector
from .gathering import WholeStep
from .names import NameList
from .part import MeasuredStep

__all__ = ["Post"]

_MOST_EARLY = 256


class Post:
    """Takes steps from the training thread while something is logged, and what other processes send to rank 0.

    Parameters
    ----------
    place : Place
        Where this process stands.
    name : callable
        Gives what people are told of a rank.
    gone : callable
        Gives whether a rank has left.
    """

    def __init__(self, place: Place, name: Callable[[int], str], gone: Callable[[int], bool]) -> None:
        self._place, self._name, self._gone = place, name, gone
        self._desk: RootCollector | MemberCollector | None = None
        self._early: deque[tuple[int, dict[str, Any], memoryview]] = deque(maxlen=_MOST_EARLY)
        self._order = threading.Lock()
        self.intervals = Intervals()
        """What is logged when."""

    def begin(
        self,
        worker: Worker | None,
        send: Callable[[dict[str, Any], Sequence[np.ndarray]], None] | None,
        intervals: Intervals,
        names: NameList,
        keep: Callable[[WholeStep], None] | None,
    ) -> None:
        """Take statistics from now on.

        Parameters
        ----------
        worker : Worker or None
            The producer thread; without one nothing is taken.
        send : callable or None
            Takes a description and arrays for rank 0, where there are several processes.
        intervals : Intervals
            What is logged when.
        names : NameList
            Of this process's tensors.
        keep : callable, optional
            Takes what rank 0 sends, too.
        """
        self.intervals = intervals
        if isinstance(self._desk, RootCollector):
            self._desk.end()
        if isinstance(worker, Producer) and self._place.rank == 0:
            desk = RootCollector(
                worker,
                names,
                rank=0,
                world_size=self._place.world_size,
                name=self._name,
                gone=self._gone,
                keep=keep,
            )
            with self._order:
                while self._early:
                    desk.take(*self._early.popleft())
                self._desk = desk
        elif worker is not None and send is not None:
            self._desk = MemberCollector(worker, names, send)

    def end(self) -> None:
        """Log nothing more here. What other processes still send of the steps so far is taken: they may be behind."""
        self.intervals = Intervals()

    def put(self, parts: MeasuredStep) -> None:
        """Take a step, in the training thread."""
        if self._desk is not None:
            self._desk.put(parts)

    def take(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another process sent, in the peers' thread."""
        with self._order:
            if isinstance(self._desk, RootCollector):
                self._desk.take(rank, meta, payload)
            else:
                # It is ahead of this process, which has not been asked to log yet.
                self._early.append((rank, meta, payload))

    def tell_anew(self) -> None:
        """Describe everything anew: something that was described may not have arrived."""
        if isinstance(self._desk, MemberCollector):
            self._desk.tell_anew()
