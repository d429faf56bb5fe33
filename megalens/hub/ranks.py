"""How each process of the job is: what was heard of it, from itself or from others, and how long ago."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..protocol.messages_generated import Announce, Layout, RankCondition, RankPlace, RankState, Status

__all__ = ["Ranks"]

_SILENT_SECONDS = 2.0
_SAYS: tuple[RankCondition, ...] = ("training", "paused", "idle")


@dataclass(slots=True)
class _Own:
    """A process that is, or was, connected itself."""

    heard: float
    attached: bool = True
    ended: RankCondition = "finished"
    said: RankCondition = "idle"
    step: int = 0
    step_at: float | None = None


@dataclass(slots=True)
class _Told:
    """A process that another one tells of."""

    by: int
    heard: float
    state: RankCondition
    step: int


@dataclass
class Ranks:
    """The processes of the job by rank.

    Attributes
    ----------
    idle_seconds : float
        Without a step for this long, a process is idle.
    """

    idle_seconds: float
    _own: dict[int, _Own] = field(default_factory=dict)
    _told: dict[int, _Told] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything: another job begins."""
        self._own.clear()
        self._told.clear()
        self._names.clear()

    def came(self, announce: Announce, now: float) -> None:
        """Count in a process that announced itself."""
        self._own[announce["rank"]] = _Own(now)
        layout = announce["layout"]
        for place in layout.get("ranks", ()):
            self._names[place["rank"]] = _name(place, layout)

    def went(self, rank: int, *, finished: bool) -> None:
        """Count out a process whose connection ended."""
        own = self._own[rank]
        own.attached, own.ended = False, "finished" if finished else "lost"

    def heard(self, rank: int, now: float, step: int = -1) -> None:
        """Note that something came from a process, with a newer step where there is one."""
        own = self._own[rank]
        own.heard = now
        if step > own.step:
            own.step, own.step_at, own.said = step, now, "training"

    def report(self, rank: int, status: Status, now: float) -> None:
        """Take a process's own ``status``, with all that it says of others."""
        self.heard(rank, now, status["step"])
        # Frames may come late; what a process says of itself holds, also when it went back to an earlier step.
        self._own[rank].step = status["step"]
        if status["state"] in _SAYS:
            self._own[rank].said = status["state"]
        for entry in status.get("ranks", ()):
            other = entry["rank"]
            if "name" in entry:
                self._names[other] = entry["name"]
            heard = now - entry.get("seconds", 0.0)
            known = self._told.get(other)
            if other != rank and (known is None or known.by == rank or known.heard < heard):
                self._told[other] = _Told(rank, heard, entry["state"], entry["step"])

    def forgive(self, seconds: float) -> None:
        """Count time in which the hub itself stood still to nobody."""
        for own in self._own.values():
            own.heard += seconds
        for told in self._told.values():
            told.heard += seconds

    def name(self, rank: int, *, at_start: bool = False) -> str:
        """Return what people are told, such as ``rank 3 (tp 1, pp 1) on node-2``; with a capital at the start of a sentence."""
        name = self._names.get(rank, f"rank {rank}")
        return name[:1].upper() + name[1:] if at_start else name

    def step(self) -> int:
        """Return the newest step of those that are connected."""
        return max((own.step for own in self._own.values() if own.attached), default=0)

    def step_of(self, rank: int) -> int:
        """Return the newest step of one process."""
        return self._own[rank].step

    def pauses(self) -> bool:
        """Whether a process that is connected said last that it waits because somebody asked for it."""
        return any(own.attached and own.said == "paused" for own in self._own.values())

    def silent(self, now: float) -> list[int]:
        """Return the ranks of which nothing was heard for 2 s."""
        return [rank for rank in sorted({*self._own, *self._told}) if self._state(rank, now)[0] == "silent"]

    def lost(self) -> list[int]:
        """Return the ranks whose connection ended without a goodbye."""
        return [rank for rank, own in sorted(self._own.items()) if own.ended == "lost" and not own.attached]

    def states(self, now: float) -> list[RankState]:
        """Return the ``ranks`` member of ``status``."""
        states: list[RankState] = []
        for rank in sorted({*self._own, *self._told}):
            state, step, heard = self._state(rank, now)
            seconds = round(max(now - heard, 0.0), 1)
            states.append(
                {
                    "rank": rank,
                    "name": self.name(rank),
                    "state": state,
                    "step": max(step, 0),
                    "seconds": seconds,
                }
            )
        return states

    def _state(self, rank: int, now: float) -> tuple[RankCondition, int, float]:
        own, told = self._own.get(rank), self._told.get(rank)
        if own is None or (not own.attached and told is not None and told.heard > own.heard):
            assert told is not None
            silent = told.state in _SAYS and now - told.heard > _SILENT_SECONDS
            return "silent" if silent else told.state, told.step, told.heard
        if not own.attached:
            return own.ended, own.step, own.heard
        if now - own.heard > _SILENT_SECONDS:
            return "silent", own.step, own.heard
        if own.said == "training" and (own.step_at is None or now - own.step_at > self.idle_seconds):
            return "idle", own.step, own.heard
        return own.said, own.step, own.heard


def _name(place: RankPlace, layout: Layout) -> str:
    axes: tuple[Literal["tp", "pp", "dp"], ...] = ("tp", "pp", "dp")
    where = ", ".join(f"{axis} {place[axis]}" for axis in axes if layout[axis] > 1)
    host = f" on {place['host']}" if place.get("host") else ""
    return f"rank {place['rank']}{f' ({where})' if where else ''}{host}"[:200]
