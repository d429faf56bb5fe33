"""Where the moments of a step go from the training thread: on rank 0 into rows, on the others to rank 0."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ....protocol import StepReadings
from ...errors import said
from ..frames import STREAM, MomentFrames
from .gathering import Gathering, WholeStep
from .names import NameList
from .packing import pack, unpack
from .part import Figures, MeasuredStep

if TYPE_CHECKING:
    from ...host import Host

__all__ = ["Collector", "MemberCollector", "RootCollector"]

_MOST_WAITING = 64
_MOST_BYTES = 64 << 20


class Collector:
    """Hands steps over to the producer thread. Never waits: of too many the newest is given up and counted.

    Parameters
    ----------
    host : Host
        Where everything goes.
    names : NameList
        What this process's ids stand for.
    own : callable, optional
        Takes what this process measured of a step, in the producer thread.
    at_once : bool
        Whether somebody waits for each step: then no step waits for those after it.
    """

    def __init__(
        self,
        host: Host,
        names: NameList,
        own: Callable[[StepReadings], None] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        self._host = host
        self._at_once = at_once
        self._names, self._take_readings = names, own
        self._told = self._noted = 0
        # Each is written by one thread only, so that neither needs a lock.
        self._put = self._taken = 0

    def put(self, step: MeasuredStep) -> None:
        """Take a step, in the training thread."""
        host = self._host
        if not host.sends:
            return
        waiting = self._put - self._taken
        if waiting >= _MOST_WAITING:
            host.lose(sum(len(part.ids) for part in step.parts), "waiting")
            host.warn(
                f"The statistics of step {step.step} were given up: earlier ones still wait to be sent."
            )
            return
        self._put += 1
        host.later(lambda: self._own(step), patient=not self._at_once and waiting < _MOST_WAITING // 2)

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another process sent, in the thread of the connections."""

    def tell_anew(self) -> None:
        """Say all names again: something did not arrive."""

    def end(self) -> None:
        """Take nothing more; what came is still sent."""

    def _own(self, step: MeasuredStep) -> None:
        self._taken += 1
        try:
            self._take_own(step)
        except Exception as error:  # Tracing goes on without these.
            self._host.warn(
                f"The statistics of step {step.step} were lost to an error of their own: {type(error).__name__}: {str(error)[:200]}"
            )

    def _take_own(self, step: MeasuredStep) -> None:
        raise NotImplementedError

    def _figures(self, step: MeasuredStep) -> list[Figures]:
        figures = step.figures()
        if self._take_readings is not None:
            rank = self._host.place.rank
            readings = [self._names.readings(part, rank) for part in figures]
            try:
                self._take_readings(StepReadings(step.step, step.samples, readings))
            except Exception as error:  # What somebody does with them is no reason not to send them.
                self._host.warn(f"What takes the statistics of step {step.step} failed: {said(error)}")
        return figures


class MemberCollector(Collector):
    """Of every process but rank 0.

    Parameters
    ----------
    host, names, own, at_once
        As for :class:`Collector`.
    by_rank : bool
        Whether rank 0 takes what is only judged, too.
    """

    def __init__(
        self,
        host: Host,
        names: NameList,
        own: Callable[[StepReadings], None] | None = None,
        *,
        at_once: bool = False,
        by_rank: bool = False,
    ) -> None:
        super().__init__(host, names, own, at_once=at_once)
        self._by_rank = by_rank

    def tell_anew(self) -> None:
        """Say all names again."""
        self._told = self._noted = 0

    def _take_own(self, step: MeasuredStep) -> None:
        figures = [part for part in self._figures(step) if part.counted or self._by_rank]
        told, self._told = self._told, len(self._names)
        noted = self._noted
        meta, arrays = pack(step.step, step.samples, figures, self._names, told, noted)
        self._noted = noted + len(meta["dtypes"])
        self._host.tell(0, meta, arrays)


class RootCollector(Collector):
    """Of rank 0, or of a job of one process.

    Parameters
    ----------
    host, names, own, at_once
        As for :class:`Collector`.
    keep : callable, optional
        Takes each step too; for files.
    by_rank : bool
        Whether such a step has what each process measured.
    recorded : callable, optional
        Takes a step and gives the statistics of it that are sent; all when absent.
    """

    def __init__(
        self,
        host: Host,
        names: NameList,
        keep: Callable[[WholeStep], None] | None = None,
        *,
        at_once: bool = False,
        by_rank: bool = False,
        recorded: Callable[[int], Collection[str]] | None = None,
        own: Callable[[StepReadings], None] | None = None,
    ) -> None:
        super().__init__(host, names, own, at_once=at_once)
        self._keep, self._recorded = keep, recorded
        self._gathering = Gathering(
            host.place.world_size, host.name_of, host.gone, host.warn, by_rank=by_rank
        )
        self._frames = MomentFrames(host.place.rank)
        self._came_bytes = self._read_bytes = 0
        self._ended = False
        host.gather(self)

    @property
    def waiting(self) -> bool:
        """Whether a step waits for other processes."""
        return self._gathering.waiting

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""
        return self._ended and not self.waiting

    def end(self) -> None:
        """Take nothing more, once what was handed over before is taken."""
        self._host.later(self._end)

    def _end(self) -> None:
        self._ended = True

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another process sent."""
        if not self._host.sends:
            return
        if self._came_bytes - self._read_bytes > _MOST_BYTES:
            # The step is then one that this process did not send.
            return
        self._came_bytes += len(payload)
        self._host.later(lambda: self._of_other(rank, meta, payload))

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what is complete, in the producer thread."""
        for whole in self._gathering.ready(self._host.caught_up, everything=everything):
            if whole.left_out:
                self._host.lose(whole.left_out, "unsent")
            sent = whole
            if self._recorded is not None:
                known = self._recorded(whole.step)
                sent = replace(whole, stats=[each for each in whole.stats if each.stat in known])
            for frame in self._frames.of(sent):
                self._host.send(STREAM, frame, whole.step)
            if self._keep is not None and any(len(each.rows) for each in whole.stats):
                self._keep(sent)

    def _take_own(self, step: MeasuredStep) -> None:
        figures = self._figures(step)
        told, self._told = self._told, len(self._names)
        new = self._names.since(told)[: self._told - told]
        dtypes = self._names.noted(self._noted)
        self._noted += len(dtypes)
        self._gathering.take(
            self._host.place.rank, step.step, step.samples, self._names.stage, told, new, figures, dtypes
        )

    def _of_other(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        self._read_bytes += len(payload)
        try:
            names, figures = unpack(meta, payload)
            at, samples, stage, first = (int(meta[key]) for key in ("step", "samples", "stage", "first"))
            dtypes = [(int(place), str(dtype)) for place, dtype in meta["dtypes"]]
            self._gathering.take(rank, at, samples, stage, first, names, figures, dtypes)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            self._host.warn(
                f"{self._host.name_of(rank)} sent statistics that cannot be read: {str(error)[:200]}"
            )
