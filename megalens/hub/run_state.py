"""What the hub knows about the run: model, configuration, state, figures."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from typing import Any, cast

from ..protocol import STREAMS, SUBPROTOCOL, CheckedBody, Streams, compressor_infos
from ..protocol.messages_generated import (
    Announce,
    Config,
    Hello,
    Limits,
    NonFinite,
    RankState,
    RunFile,
    RunInfo,
    Status,
    StreamStatus,
)
from ..protocol.messages_generated import RunState as State
from .figures import Reports, StreamFigures
from .job import IDLE_SECONDS, Announcements, Ranks
from .live_frame import LiveFrame
from .options import HubOptions
from .resumed import changed_model

_NAMED = 8
_OF_JOB = ("controls", "sites", "configurable", "statistics", "generation", "phase", "origin")
"""What ``hello`` and ``run.json`` say of a job where it announced it."""
_UNLESS_EMPTY = ("sites", "configurable")


class RunState:
    """Facts about the run, from what producers report and send.

    Parameters
    ----------
    limits : dict
        The ``limits`` member of ``hello``.
    versions : dict
        Of the hub's own parts.
    before : RunFile, optional
        What was recorded of the run before its training was resumed.

    Attributes
    ----------
    streams : Streams
        Those of this version, and those that producers announced.
    version : int
        Rises when something of ``hello`` changes, apart from ``seq``.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        limits: Limits,
        versions: dict[str, str],
        before: RunFile | None = None,
    ) -> None:
        self.started = time.time() if before is None else before["run"]["started"]
        if before is not None and name == HubOptions.name:
            name = before["run"]["name"]
        self.before = before
        self.run: RunInfo = {"id": run_id, "name": name, "started": self.started}
        self.limits = limits
        self.seq = 0
        self.step = 0
        self.version = 0
        self.ended: float | None = None
        self.config: Config = {"flags": {}}
        self.streams = Streams(STREAMS.values())
        self.job = Announcements()
        self.ranks = Ranks()
        self.attached: set[int] = set()
        self.warnings: deque[str] = deque(maxlen=20)
        self._reports = Reports()
        self._versions = versions
        self._came = False
        self._lost = False
        self._last_step_time: float | None = None
        self._figures: dict[str, StreamFigures] = {}
        self._begins = True

    @property
    def state(self) -> State:
        if self.attached:
            if self.ranks.pauses():
                return "paused"
            last = self._last_step_time
            return "idle" if last is None or time.monotonic() - last > IDLE_SECONDS else "training"
        if not self._came:
            return "lost" if self._lost else "waiting"
        return "lost" if self._lost else "finished"

    @property
    def done(self) -> bool:
        """Whether every producer that came is gone."""
        return not self.attached and (self._came or self._lost)

    def attach(self, message: Announce) -> None:
        """Add a producer with its announcement."""
        rank = message["rank"]
        if not self.attached and self.job.is_other(message, self.job.known()):
            # What is left of a job that ended says nothing about this one.
            self.job.clear()
            self.ranks.clear()
            self._reports.clear()
        if not self.attached:
            # It may go on from an earlier step than the last one seen.
            self._begins = True
            for figures in self._figures.values():
                figures.begin()
        disagreement = self.job.disagreement(message, self.attached)
        if disagreement:
            self.warn(disagreement)
        other = None if self.before is None else changed_model(self.before, message)
        if other:
            self.warn(other)
        self.job.announce(message)
        if rank == self.job.first:
            self.config = message["config"]
            if message.get("run_name"):
                self.run["name"] = message["run_name"]
        self.attached.add(rank)
        self.ranks.came(message, time.monotonic())
        self.version += 1
        self._came = True
        self._lost = False
        self.ended = None

    def detach(self, rank: int, *, finished: bool) -> None:
        """Remove a producer, after its shutdown message or without one."""
        self.attached.discard(rank)
        self.ranks.went(rank, finished=finished)
        self._lost = self._lost or not finished
        if not self.attached:
            self.ended = time.time()

    def give_up(self) -> None:
        """Note that no producer came and none will."""
        self._lost = True
        self.ended = time.time()

    def configure(self, config: Config) -> None:
        """Take the configuration that is now in force."""
        self.config = config
        self.version += 1

    def report(self, rank: int, status: Status) -> None:
        """Take a producer's own ``status``."""
        now = time.monotonic()
        before = self.ranks.step_of(rank)
        self._reports.take(rank, status)
        self.ranks.report(rank, status, now)
        if status["step"] != before:
            self._last_step_time = now
            self._begins = False
            if status["step"] > self.step or before >= self.step:
                self.step = self.ranks.step() if status["step"] < before else status["step"]

    def saw(self, frame: LiveFrame, body: CheckedBody, rank: int | None) -> None:
        """Take the figures of one frame, which came from ``rank`` or from the hub itself."""
        self.seq = frame.seq
        self._figures.setdefault(frame.stream, StreamFigures()).add(frame, body)
        if not body.declared.policy.marks_step:
            return
        now = time.monotonic()
        if rank is not None:
            self.ranks.heard(rank, now, frame.step)
        if frame.step >= 0:
            self._last_step_time = now
            self.step = frame.step if self._begins else max(self.step, frame.step)
            self._begins = False

    def hello(self) -> Hello:
        """Return a ``hello`` without ``resumed``."""
        job = self.job.merged()
        hello: Hello = {
            "type": "hello",
            "protocol": SUBPROTOCOL,
            "run": self.run.copy(),
            "seq": self.seq,
            "config": self.config,
            "limits": self.limits,
            "model": job and job["model"],
            "layout": job and job["layout"],
            "flags": job["flags"] if job else [],
            "compressors": job["compressors"] if job else compressor_infos(),
            "versions": {**self._versions, **(job["versions"] if job else {})},
            "streams": self.streams.declarations(),
        }
        told = {
            name: value
            for name, value in (job or {}).items()
            if name in _OF_JOB and (value or name not in _UNLESS_EMPTY)
        }
        return cast("Hello", {**hello, **told})

    def status(self) -> Status:
        """Return the members of ``status`` that are the same for all viewers."""
        now = time.monotonic()
        status: Status = {
            "type": "status",
            "state": self.state,
            "step": self.step,
            "time": time.time(),
            "nonfinite": self._nonfinite(),
            "producers": sorted(self.attached),
        }
        self._reports.fill(status, self.attached)
        # The members for tensors alone are older than the figures of all streams.
        if (tensors := self._figures.get("tensors")) and (mean := tensors.bytes_per_step()) is not None:
            status["bytes_per_step"] = mean
        ranks = self.ranks.states(now)
        if ranks:
            status["ranks"] = ranks
        warnings = list(dict.fromkeys([*self.warnings, *status.get("warnings", ()), *self._absent(ranks)]))
        if warnings:
            status["warnings"] = warnings[-20:]
        return status

    def stream_figures(self, dropped: Mapping[str, int]) -> dict[str, StreamStatus]:
        """Return the ``streams`` member of ``status`` for a viewer, given its dropped rows by stream."""
        return {name: figures.status(dropped.get(name, 0)) for name, figures in self._figures.items()}

    def _nonfinite(self) -> NonFinite:
        found = {name: figures.nonfinite for name, figures in self._figures.items() if figures.nonfinite}
        nonfinite: NonFinite = {"count": 0}
        if tensors := found.get("tensors"):
            first = tensors["first"]
            nonfinite["count"] = tensors["count"]
            nonfinite["first"] = {"step": first["step"], "layer": first["layer"], "flag": first["flag"]}
        if moments := found.get("moments"):
            first = moments["first"]
            nonfinite["moments"] = {
                "count": moments["count"],
                "first": {"step": first["step"], "stat": first["stat"], "name": first["name"]},
            }
        return nonfinite

    def producer_drops(self) -> int:
        """Return how many rows the producers gave up."""
        return self._reports.drops()

    def warn(self, text: str) -> None:
        """Add a sentence for the user, once."""
        if text[:500] not in self.warnings:
            self.warnings.append(text[:500])

    def description(self) -> RunFile:
        """Return ``run.json`` without what the recorder adds."""
        hello: Mapping[str, object] = self.hello()
        members = ("run", "model", "layout", "flags", "compressors", "config", "versions", *_OF_JOB)
        announced = self.streams.announced()
        description: dict[str, Any] = {
            "format": 2,
            "state": self.state,
            "ended": self.ended,
            **{name: hello[name] for name in members if name in hello},
            **({"announced": announced} if announced else {}),
            **({"instruments": instruments} if (instruments := self._reports.instruments()) else {}),
        }
        return cast("RunFile", description)

    def _absent(self, ranks: list[RankState]) -> list[str]:
        """Return sentences about silent or lost processes while others are there."""
        if not self.attached:
            return []
        sentences = []
        for state, text in (
            ("silent", "Nothing is heard of {}: stopped, frozen or cut off."),
            ("lost", "{} stopped unexpectedly."),
        ):
            names = [entry["name"] for entry in ranks if entry["state"] == state]
            if names:
                more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
                sentence = text.format(", ".join(names[:_NAMED]) + more)[:500]
                sentences.append(sentence[0].upper() + sentence[1:])
        return sentences
