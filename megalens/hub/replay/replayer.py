"""Sends a recording again, at its own pace."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import ProtocolError
from ...protocol.messages_generated import Announce, Config, ConfigPatch, Origin, RunState, Status
from ...runs import RunFolder
from ...runs.errors import as_int, bad_argument
from ...runs.query import Query
from ..dialects.hosted_run import HostedRun

_STATUS_SECONDS = 1.0
_LOOK_SECONDS = 0.05
MOST_SPEED = 1_000_000

_STEP_SECONDS = 0.1
_LONGEST_GAP = 60.0
_CHUNK_BYTES = 24 << 20


@dataclass(frozen=True)
class Chunk:
    """Rows of one stream and one step; ``step`` is the newest so far, which orders the streams."""

    stream: str
    rows: pa.Table
    step: int


class RecordedOrder:
    """The rows of a recording in order, from step ``first`` on."""

    def __init__(self, folder: RunFolder, first: int | None = None) -> None:
        self._folder = folder
        self._first = first
        self._steps, self._times = self._read_times()

    def chunks(self) -> Iterator[Chunk]:
        """Yield all rows: those of one stream as they were recorded, streams among each other by step."""
        heads = [iter(self._stream(stream)) for stream in self._folder.streams]
        waiting = [(head, chunk) for head in heads if (chunk := next(head, None)) is not None]
        while waiting:
            at = min(range(len(waiting)), key=lambda n: self._order_of(waiting[n][1]))
            head, chunk = waiting[at]
            yield chunk
            following = next(head, None)
            if following is None:
                del waiting[at]
            else:
                waiting[at] = (head, following)

    def seconds(self, step: int) -> float:
        """Return when a step was reached, in seconds of the recording; 0.1 s a step where unknown."""
        if len(self._steps) < 2:
            return step * _STEP_SECONDS
        return float(np.interp(step, self._steps, self._times))

    def _order_of(self, chunk: Chunk) -> tuple[int, int]:
        return chunk.step, self._folder.streams[chunk.stream].policy.replay_order

    def _stream(self, stream: str) -> Iterator[Chunk]:
        newest = -1
        for batch in self._folder.batches(stream, Query(first=self._first)):
            steps = batch.column("step").to_numpy()
            cuts = [0, *(np.flatnonzero(np.diff(steps)) + 1).tolist(), len(steps)]
            for low, high in pairwise(cuts):
                newest = max(newest, int(steps[low]))
                for piece in _pieces(batch.slice(low, high - low)):
                    yield Chunk(stream, piece, newest)

    def _read_times(self) -> tuple[np.ndarray, np.ndarray]:
        """Read the steps and times of ``scalars``, both rising, long pauses shortened."""
        table = self._folder.read("scalars", Query(first=self._first), columns=["step", "time"])
        steps, times = (table.column(name).to_numpy() for name in ("step", "time"))
        known = np.isfinite(times)
        steps, at = np.unique(steps[known], return_index=True)
        # A clock that was set back stands still; one that was set forward is a pause.
        gaps = np.clip(np.diff(times[known][at]), 0, _LONGEST_GAP)
        return steps, np.concatenate(([0.0], np.cumsum(gaps)))[: len(steps)]


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.Table]:
    """Cut rows so that each piece fits into one frame."""
    if batch.num_rows > 1 and batch.nbytes > _CHUNK_BYTES:
        half = batch.num_rows // 2
        yield from _pieces(batch.slice(0, half))
        yield from _pieces(batch.slice(half))
        return
    yield pa.Table.from_batches([batch])


def announcement(folder: RunFolder, config: Config, speed: float | None) -> Announce:
    """Return the ``announce`` message of a replay; ``speed`` None is as fast as possible."""
    hello = folder.hello()
    before = folder.header.get("origin")
    # Steps that were inferred stay so.
    steps = before.get("steps") if isinstance(before, dict) else None
    origin: Origin = {
        "kind": "replay",
        "name": folder.name[:200],
        "steps": "inferred" if steps == "inferred" else "counted",
    }
    if speed is not None:
        origin["speed"] = speed
    announce: Announce = {
        "type": "announce",
        "rank": 0,
        "run_name": f"{folder.name[:180]} (replay)",
        "model": hello["model"] or {"name": "unknown", "layers": 0},
        "layout": hello["layout"] or {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": hello["flags"],
        "compressors": hello["compressors"],
        "config": config,
        "versions": hello["versions"],
        "controls": ["pause"],
        "origin": origin,
    }
    if "statistics" in hello:
        announce["statistics"] = hello["statistics"]
    if announced := folder.streams.announced():
        announce["streams"] = announced
    return announce


def read_speed(speed: Any) -> float | None:
    """Return a speed relative to the recording's; None and 0 are as fast as possible."""
    if speed is None:
        return None
    if isinstance(speed, bool) or not isinstance(speed, Real) or not 0 <= float(speed) < MOST_SPEED:
        raise bad_argument("speed", f"a number from 0 (as fast as possible) below {MOST_SPEED:,}", speed)
    return float(speed) or None


class Replayer:
    """Replays one recording into a hub.

    Parameters
    ----------
    speed : float or None
        Relative to the time when it was recorded; as fast as possible when None or 0.
    loop : bool
        Whether to begin again at the end, with steps that go on from the last.
    first : int or None
        Step to begin at.
    wait_for_viewer : bool
        Whether nothing is sent until somebody watches.
    """

    def __init__(
        self,
        folder: RunFolder,
        speed: float | None = 1.0,
        *,
        loop: bool = False,
        first: int | None = None,
        wait_for_viewer: bool = False,
    ) -> None:
        self._folder = folder
        self._speed = read_speed(speed)
        self._loop = loop
        if first is not None and not 0 <= as_int(first, "first") <= folder.step:
            raise bad_argument("first", f"a step of the recording, at most {folder.step}", first)
        self._first = None if first is None else int(first)
        self._wait_for_viewer = wait_for_viewer
        self._host: HostedRun | None = None
        self._warnings: list[str] = []
        self._going = asyncio.Event()
        self._going.set()
        self._changed = asyncio.Event()
        self._steps_left: int | None = None
        self._clock = 0.0
        flags = folder.hello()["config"]["flags"]
        self.config: Config = {"flags": flags}
        self.step = 0
        self.rows = 0

    def line(self) -> str:
        """Return one line of progress."""
        state = "" if self._going.is_set() else " · paused"
        return f"step {self.step} of {self._folder.step} · {self.rows} rows{state}"

    async def run(self, host: HostedRun) -> None:
        """Send all rows; with ``loop`` again and again.

        Raises ``ClientError`` when a stream cannot be read; what came before it has been sent.
        """
        self._host = host
        await host.say(announcement(self._folder, self.config, self._speed))
        timeline = await asyncio.to_thread(RecordedOrder, self._folder, self._first)
        status = await asyncio.to_thread(self._folder.status)
        self._warnings = [f"In the recording: {text}"[:500] for text in status.get("warnings", ())]
        reporting = asyncio.create_task(self._report_regularly())
        try:
            while self._wait_for_viewer and not host.watched:
                await asyncio.sleep(_LOOK_SECONDS)
            shift = await self._round(timeline, 0)
            while self._loop and self.rows:
                shift = await self._round(timeline, shift)
        finally:
            reporting.cancel()
            await asyncio.wait([reporting])
            await self._send_status()

    async def configure(self, change: str, patch: ConfigPatch) -> None:
        """Pause, resume or step; what was traced cannot change any more."""
        assert self._host is not None
        for member in ("flags", "perturb", "budget"):
            if patch.get(member):
                raise ProtocolError(
                    "refused",
                    "This run is a replay: what was traced then cannot change now. Pausing and stepping can.",
                    field=member,
                )
        mode = patch.get("mode", {})
        if mode.get("while_watched"):
            raise ProtocolError("refused", "A replay does not wait for viewers.", field="mode.while_watched")
        if "steps" in mode:
            self._steps_left = mode["steps"]
            self._going.set()
        elif "paused" in mode:
            self._steps_left = None
            if mode["paused"]:
                self._going.clear()
            else:
                self._going.set()
        if "steps" in mode or "paused" in mode:
            self.config = {**self.config, "mode": {"paused": "steps" in mode or mode["paused"]}}
        self._changed.set()
        for applied in (False, True):
            await self._host.say(
                {
                    "type": "configured",
                    "id": change,
                    "applied": applied,
                    "step": self.step + 1,
                    "config": self.config,
                }
            )
        await self._send_status()

    async def _round(self, timeline: RecordedOrder, shift: int) -> int:
        """Send the recording once, its steps shifted, and return the shift of the next round."""
        assert self._host is not None
        chunks = timeline.chunks()
        begin: int | None = None
        newest = 0
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            if self._folder.streams[chunk.stream].policy.marks_step:
                step = max(chunk.step, 0)
                if begin is None:
                    begin = step
                    self._clock = time.monotonic()
                if step + shift > self.step:
                    await self._reach(timeline.seconds(step) - timeline.seconds(begin))
                    self.step = step + shift
                newest = max(newest, step)
            self.rows += chunk.rows.num_rows
            await self._host.send(
                self._folder.streams[chunk.stream], _shifted(chunk, shift), chunk.step + shift
            )
        return shift + newest - max((begin or 1) - 1, 0)

    async def _reach(self, seconds: float) -> None:
        """Wait until a step of this round is due, and for as long as the replay is paused before it."""
        assert self._host is not None
        if self._steps_left == 0:
            self._steps_left = None
            self._going.clear()
            await self._send_status()
        while True:
            due = self._clock + (seconds / self._speed if self._speed else 0)
            left = due - time.monotonic()
            if not self._going.is_set():
                # What was still to wait for is waited for afterwards.
                await self._going.wait()
                self._clock = time.monotonic() + left - (due - self._clock)
            elif self._steps_left:
                # A step that is asked for comes at once; the pace goes on from there.
                self._steps_left -= 1
                self._clock -= left
                break
            elif left <= 0:
                break
            else:
                self._changed.clear()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), left)
        await self._host.wait_for_viewers()

    async def _report_regularly(self) -> None:
        while True:
            await self._send_status()
            await asyncio.sleep(_STATUS_SECONDS)

    async def _send_status(self) -> None:
        assert self._host is not None
        state: RunState = "training" if self._going.is_set() else "paused"
        status: Status = {"type": "status", "state": state, "step": self.step}
        if self._warnings:
            status["warnings"] = self._warnings
        await self._host.say(status)


def _shifted(chunk: Chunk, shift: int) -> pa.Table:
    if not shift:
        return chunk.rows
    steps = chunk.rows.column("step").to_numpy()
    return chunk.rows.set_column(
        chunk.rows.schema.get_field_index("step"), "step", pa.array(steps + (steps >= 0) * shift, pa.int64())
    )
