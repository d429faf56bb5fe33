"""Spans on their way: noted in the training thread, made rows in the producer thread, sent by rank 0."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import said
from .slow_ranks import SlowRanks, computed_ns

if TYPE_CHECKING:
    from ..host import Host

__all__ = ["ROW_BYTES", "STREAM", "Span", "SpanSender"]

STREAM = "spans"
_ALARMS = "alarms"
_NUMBERS = ("step", "chunk", "micro_batch", "start", "end", "count", "blocked", "bytes", "peer", "sequence")
_TEXTS = ("kind", "name", "group", "device")
_FLUSH_SECONDS = 0.5
_MOST_ROWS = 20_000
ROW_BYTES = 8 * (len(_NUMBERS) + len(_TEXTS))
"""What one span takes on its way to rank 0, without its texts."""


class Span(NamedTuple):
    """One row, without what all of a rank have in common. Times in ns of the rank's own clock."""

    kind: str
    start: int
    end: int
    name: str = ""
    chunk: int = -1
    micro_batch: int = -1
    blocked: int = 0
    bytes: int = 0
    group: str = ""
    peer: int = -1
    sequence: int = -1
    counted: int = 1
    device: str = "cpu"


class SpanSender:
    """Takes the spans of a step from the training thread. Other ranks tell rank 0, which sends those of all.

    Parameters
    ----------
    host : Host
        Where everything goes.
    slow : callable
        Called in the producer thread of rank 0 when a rank was found slow.
    """

    def __init__(self, host: Host, slow: Callable[[], None]) -> None:
        self._host, self._found = host, slow
        self._rows: list[tuple[int, int, np.ndarray, Sequence[str]]] = []
        self._count, self._flushed = 0, time.monotonic()
        self._closed = False
        self._slow = SlowRanks(host.place.world_size)
        if host.place.rank == 0:
            host.gather(self)

    def put(self, step: int, spans: Sequence[Span], summed: bool) -> None:
        """Take a step, in the training thread."""
        # Alone, no rank can be slow, and nobody is to be told at once.
        alone = self._host.place.world_size == 1
        if not self._host.later(
            lambda: self._take(step, spans, summed), ROW_BYTES * len(spans), patient=alone
        ):
            self._host.lose(len(spans), "waiting")

    def close(self) -> None:
        """Take nothing more; what came is still sent."""
        self._closed = True

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        """Take what another rank told, in the thread of the connections."""
        table = np.frombuffer(payload, "<i8").reshape(-1, len(_NUMBERS) + len(_TEXTS))
        stage, texts = int(meta["stage"]), [str(text) for text in meta["texts"]]
        if table[:, len(_NUMBERS) :].size and not 0 <= table[:, len(_NUMBERS) :].max() < len(texts):
            raise ValueError("a text that is not there")
        self._host.later(lambda: self._keep(rank, stage, table, texts), payload.nbytes)

    # The producer thread.

    @property
    def waiting(self) -> bool:
        """Whether rows wait to be sent."""
        return bool(self._rows)

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""
        return self._closed and not self._rows

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what has come, not more often than twice a second."""
        if not self._rows or not (
            everything
            or self._closed
            or self._count > _MOST_ROWS
            or time.monotonic() - self._flushed > _FLUSH_SECONDS
        ):
            return
        rows, self._rows, self._count = self._rows, [], 0
        self._flushed = time.monotonic()
        rows.sort(key=lambda each: int(each[2][0, 0]))
        columns: dict[str, list[Any]] = {
            name: np.concatenate([table[:, at] for _, _, table, _ in rows]).tolist()
            for at, name in enumerate(_NUMBERS)
        }
        for at, name in enumerate(_TEXTS, len(_NUMBERS)):
            columns[name] = [texts[code] for *_, table, texts in rows for code in table[:, at].tolist()]
        columns["rank"] = [rank for rank, _, table, _ in rows for _ in range(len(table))]
        columns["stage"] = [stage for _, stage, table, _ in rows for _ in range(len(table))]
        self._host.send(STREAM, columns, columns["step"][-1])

    def _take(self, step: int, spans: Sequence[Span], summed: bool) -> None:
        try:
            self._pass_on(step, spans, summed)
        except Exception as error:  # Tracing goes on without these.
            self._host.warn(f"The spans of step {step} were lost to an error of their own: {said(error)}")

    def _pass_on(self, step: int, spans: Sequence[Span], summed: bool) -> None:
        place = self._host.place
        stage = place.pp if place.pp_size > 1 else -1
        table, texts = _table(step, _sums(spans) if summed else spans)
        if place.rank == 0:
            self._keep(0, stage, table, texts)
        else:
            self._host.tell(0, {"stage": stage, "texts": texts}, [table])

    def _keep(self, rank: int, stage: int, table: np.ndarray, texts: Sequence[str]) -> None:
        if len(table):
            self._rows.append((rank, stage, table, texts))
            self._count += len(table)
            self._compare(rank, stage, table, texts)
            self.send_ready()

    def _compare(self, rank: int, stage: int, table: np.ndarray, texts: Sequence[str]) -> None:
        columns = {name: table[:, at] for at, name in enumerate((*_NUMBERS, *_TEXTS))}
        summed = bool((columns["count"] > 1).any())
        ns = computed_ns(columns, texts, summed=summed)
        alarms = self._slow.take(rank, stage, int(table[0, 0]), ns)
        if alarms:
            columns_of = {name: [alarm[name] for alarm in alarms] for name in alarms[0]}
            self._host.send(_ALARMS, columns_of, alarms[0]["step"])
            self._found()


def _sums(spans: Sequence[Span]) -> list[Span]:
    """Return one row for each kind: how many there were, and their times, waits and bytes together. A span in another of its kind counts with it."""
    sums: dict[str, Span] = {}
    until: dict[str, int] = {}
    for each in sorted(spans, key=lambda span: span.start):
        before = sums.get(each.kind)
        if before is None:
            sums[each.kind] = Span(
                each.kind, each.start, each.end, blocked=each.blocked, bytes=each.bytes, device=each.device
            )
            until[each.kind] = each.end
            continue
        alone = max(0, each.end - max(each.start, until[each.kind]))
        until[each.kind] = max(until[each.kind], each.end)
        sums[each.kind] = before._replace(
            end=before.end + alone,
            counted=before.counted + 1,
            blocked=before.blocked + each.blocked,
            bytes=before.bytes + each.bytes,
        )
    return list(sums.values())


def _table(step: int, spans: Sequence[Span]) -> tuple[np.ndarray, list[str]]:
    """Return spans as int64 ``[n, 14]``, numbers and then places of texts, and the texts."""
    codes: dict[str, int] = {}
    rows = [
        (
            *(step, each.chunk, each.micro_batch, each.start, each.end, each.counted),
            *(each.blocked, each.bytes, each.peer, each.sequence),
            *(codes.setdefault(text, len(codes)) for text in (each.kind, each.name, each.group, each.device)),
        )
        for each in spans
    ]
    return np.array(rows, "<i8").reshape(-1, len(_NUMBERS) + len(_TEXTS)), list(codes)
