"""Statistics from the training thread to rank 0, and there to frames of the stream ``moments``."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...protocol import MOMENT_COLUMNS, FrameTemplate, StepReadings, stream_schema
from ...protocol.arrow_columns import arrow_column
from ..errors import describe_error
from .gathering import CompleteStep, Gathering, Merged
from .part import COLUMNS, Figures, MeasuredStep, NameList

if TYPE_CHECKING:
    from ..instrument import Host

_MOST_WAITING = 64
_MOST_BYTES = 64 << 20

STREAM = "moments"
_FRAME_ROWS = 100_000
_MOST_KNOWN = 8
_Kind = tuple[tuple[object, ...], ...]


def pack(
    step: int, samples: int, figures: Sequence[Figures], names: NameList, sent: int, noted: int = 0
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return a description and arrays: names that are new to rank 0, then ids and rows of each statistic.

    Without figures there is a message too, so that nobody waits. Rank 0 knows the first ``sent`` names and
    ``noted`` types of number.
    """
    new = json.dumps(names.since(sent)).encode()
    meta: dict[str, Any] = {
        "step": step,
        "samples": samples,
        "stage": names.stage,
        "first": sent,
        "names": len(new),
        "dtypes": names.noted(noted),
        "parts": [
            {
                "stat": part.stat,
                "rows": len(part.ids),
                "gradient_stage": part.gradient_stage,
                "loss_scale": part.loss_scale if math.isfinite(part.loss_scale) else None,
                "counted": part.counted,
                "micro_batch": part.micro_batch,
            }
            for part in figures
        ],
    }
    arrays: list[np.ndarray] = [np.frombuffer(new, np.uint8)]
    for part in figures:
        arrays += [part.ids, part.rows]
    return meta, arrays


def unpack(meta: Mapping[str, Any], payload: memoryview) -> tuple[list[str], list[Figures]]:
    """Return the new names and the statistics of a message.

    Raises ``ValueError``, ``KeyError`` or ``TypeError`` when it cannot be read.
    """
    at = int(meta["names"])
    names = json.loads(bytes(payload[:at]))
    figures = []
    for part in meta["parts"]:
        n = int(part["rows"])
        ids = np.frombuffer(payload, np.int32, n, at).copy()
        at += 4 * n
        rows = np.frombuffer(payload, np.float64, COLUMNS * n, at).reshape(n, COLUMNS).copy()
        at += 8 * COLUMNS * n
        scale = math.nan if part["loss_scale"] is None else float(part["loss_scale"])
        labels = str(part["gradient_stage"]), scale, bool(part["counted"]), int(part["micro_batch"])
        figures.append(Figures(str(part["stat"]), ids, rows, *labels))
    if at != len(payload) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{len(payload)} bytes came, and {at} were announced")
    return names, figures


@dataclass(frozen=True)
class _PreparedRows:
    """One frame of steps of a kind.

    Attributes
    ----------
    template : FrameTemplate
        With all that stays the same.
    figures : ndarray
        Its columns of moments, ``[k, rows]``.
    parts : list of tuple
        Index of the statistic, and first and last row of it, of each run of rows.
    """

    template: FrameTemplate
    figures: NDArray[np.float64]
    parts: list[tuple[int, int, int]]


class MomentFrames:
    """Makes frames of step after step.

    Names and all else that is the same in every step is encoded once: it takes longer than all figures.
    """

    def __init__(self, rank: int) -> None:
        self._rank = rank
        # Several, since statistics have intervals of their own.
        self._known: dict[_Kind, list[_PreparedRows]] = {}

    def of(self, complete: CompleteStep) -> Iterator[FrameTemplate]:
        """Give the frames of a step; each is overwritten when the next is asked for."""
        stats = complete.stats
        kind = tuple((each.tensors, each.stat, each.gradient_stage) for each in stats)
        # Two steps are alike when the same tensors were measured for the same statistics: by identity, so
        # that asking costs nothing.
        known = self._known.get(kind)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                del self._known[next(iter(self._known))]
            known = self._known[kind] = [self._prepared(stats, parts) for parts in _cut(stats)]
        for prepared in known:
            numbers = prepared.template.numbers
            numbers["step"].fill(complete.step)
            numbers["samples"].fill(complete.samples)
            # Written where they lie in the encoded frame: the last frame must be on its way before this one
            # is made.
            at = 0
            for number, first, end in prepared.parts:
                here = slice(at, at := at + end - first)
                prepared.figures[:, here] = stats[number].rows[first:end].T
                numbers["loss_scale"][here] = stats[number].loss_scale
            yield prepared.template

    def _prepared(self, stats: Sequence[Merged], parts: list[tuple[int, int, int]]) -> _PreparedRows:
        sizes = [end - first for _, first, end in parts]
        n = sum(sizes)
        zeros = np.zeros(n)
        here = [stats[number] for number, _, _ in parts]
        names = [each.tensors.names[first:end] for each, (_, first, end) in zip(here, parts, strict=True)]
        stages = [each.tensors.stages[first:end] for each, (_, first, end) in zip(here, parts, strict=True)]
        columns: dict[str, pa.Array] = {
            **{name: arrow_column(zeros) for name in (*MOMENT_COLUMNS, "rounding", "loss_scale")},
            "step": arrow_column(np.zeros(n, np.int64)),
            "samples": arrow_column(np.zeros(n, np.int64)),
            "stat": arrow_column(_each([each.stat for each in here], sizes), pa.utf8()),
            "name": arrow_column(list(chain.from_iterable(names)), pa.utf8()),
            "rank": arrow_column(np.full(n, self._rank, np.int32)),
            "stage": arrow_column(np.concatenate(stages)),
            "gradient_stage": arrow_column(_each([each.gradient_stage for each in here], sizes), pa.utf8()),
        }
        schema = stream_schema(STREAM)
        batch = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        template = FrameTemplate(STREAM, batch)
        return _PreparedRows(template, template.block(MOMENT_COLUMNS), parts)


def _cut(stats: Sequence[Merged]) -> list[list[tuple[int, int, int]]]:
    frames: list[list[tuple[int, int, int]]] = []
    space = 0
    for number, each in enumerate(stats):
        first, left = 0, len(each.rows)
        while left:
            if not space:
                frames.append([])
                space = _FRAME_ROWS
            end = first + min(left, space)
            frames[-1].append((number, first, end))
            space -= end - first
            first, left = end, len(each.rows) - end
    return frames


def _each(texts: Sequence[str], sizes: Sequence[int]) -> list[str]:
    return list(chain.from_iterable(map(repeat, texts, sizes)))


class Collector:
    """Hands steps over to the producer thread. Never waits: of too many the newest is given up and counted.

    Parameters
    ----------
    names : NameList
        What this process's ids stand for.
    own : callable, optional
        Takes what this process measured of a step, in the producer thread.
    at_once : bool
        Whether each step is sent at once, because somebody waits for it.
    by_rank : bool
        Whether rank 0 takes what each process measured, and what is only judged.
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
        self._host = host
        self._at_once, self._by_rank = at_once, by_rank
        self._names, self._take_readings = names, own
        self._sent = self._noted = 0
        # Each is written by one thread only, so that neither needs a lock.
        self._put = self._taken = 0

    def put(self, step: MeasuredStep) -> None:
        """Take a step, in the training thread."""
        host = self._host
        if not host.sends:
            return
        waiting = self._put - self._taken
        if waiting >= _MOST_WAITING:
            host.lose(sum(len(part.ids) for part in step.parts), "waiting", "Statistics", step.step)
            return
        self._put += 1
        host.later(lambda: self._own(step), patient=not self._at_once and waiting < _MOST_WAITING // 2)

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another process sent, in the thread of the connections."""

    def resend_names(self) -> None:
        """Send all names once more: something did not arrive."""

    def end(self) -> None:
        """Take nothing more; what came is still sent."""

    def _own(self, step: MeasuredStep) -> None:
        self._taken += 1
        try:
            self._take_own(step)
        except Exception as error:  # Tracing goes on without these.
            self._host.warn(
                f"The statistics of step {step.step} were lost to an error of their own: "
                f"{type(error).__name__}: {str(error)[:200]}"
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
                self._host.warn(
                    f"What takes the statistics of step {step.step} failed: {describe_error(error)}"
                )
        return figures


class MemberCollector(Collector):
    """Of every process but rank 0."""

    def resend_names(self) -> None:
        self._sent = self._noted = 0

    def _take_own(self, step: MeasuredStep) -> None:
        figures = [part for part in self._figures(step) if part.counted or self._by_rank]
        sent, self._sent = self._sent, len(self._names)
        noted = self._noted
        meta, arrays = pack(step.step, step.samples, figures, self._names, sent, noted)
        self._noted = noted + len(meta["dtypes"])
        self._host.tell(0, meta, arrays)


class RootCollector(Collector):
    """Of rank 0, or of a job of one process.

    Parameters
    ----------
    keep : callable, optional
        Takes each step too; for files.
    recorded : callable, optional
        Takes a step and gives the statistics of it that are sent; all when absent.
    """

    def __init__(
        self,
        host: Host,
        names: NameList,
        own: Callable[[StepReadings], None] | None = None,
        *,
        keep: Callable[[CompleteStep], None] | None = None,
        at_once: bool = False,
        by_rank: bool = False,
        recorded: Callable[[int], Collection[str]] | None = None,
    ) -> None:
        super().__init__(host, names, own, at_once=at_once, by_rank=by_rank)
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
        if not self._host.sends:
            return
        if self._came_bytes - self._read_bytes > _MOST_BYTES:
            # The step is then one that this process did not send.
            return
        self._came_bytes += len(payload)
        self._host.later(lambda: self._of_other(rank, meta, payload))

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what is complete, in the producer thread."""
        for complete in self._gathering.ready(self._host.caught_up, everything=everything):
            if complete.left_out:
                self._host.lose(complete.left_out, "told")
            sent = complete
            if self._recorded is not None:
                known = self._recorded(complete.step)
                sent = replace(complete, stats=[each for each in complete.stats if each.stat in known])
            for frame in self._frames.of(sent):
                self._host.send(STREAM, frame, complete.step)
            if self._keep is not None and any(len(each.rows) for each in complete.stats):
                self._keep(sent)

    def _take_own(self, step: MeasuredStep) -> None:
        figures = self._figures(step)
        sent, self._sent = self._sent, len(self._names)
        new = self._names.since(sent)[: self._sent - sent]
        dtypes = self._names.noted(self._noted)
        self._noted += len(dtypes)
        self._gathering.take(
            self._host.place.rank, step.step, step.samples, self._names.stage, sent, new, figures, dtypes
        )

    def _of_other(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        self._read_bytes += len(payload)
        try:
            names, figures = unpack(meta, payload)
            at, samples, stage, first = (int(meta[key]) for key in ("step", "samples", "stage", "first"))
            dtypes = [(int(index), str(dtype)) for index, dtype in meta["dtypes"]]
            self._gathering.take(rank, at, samples, stage, first, names, figures, dtypes)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            self._host.warn(
                f"{self._host.name_of(rank)} sent statistics that cannot be read: {str(error)[:200]}"
            )
