"""What the processes of a job announce and report, seen as one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from ..protocol.messages_generated import (
    Announce,
    FlagInfo,
    Layout,
    RankCondition,
    RankPlace,
    RankState,
    SiteInfo,
    Status,
)

_Info = TypeVar("_Info", FlagInfo, SiteInfo)

_SILENT_SECONDS = 2.0
IDLE_SECONDS = 3.0
"""Without a step for so long, a process is idle, and a run."""
_ALIVE: tuple[RankCondition, ...] = ("training", "paused", "idle")


class Announcements:
    """Announcements by rank. Each process may have other layers; rank 0 knows the layout of all."""

    def __init__(self) -> None:
        self._announced: dict[int, Announce] = {}
        self._merged: Announce | None = None

    def announce(self, message: Announce) -> None:
        """Take an announcement in place of the same rank's last one."""
        self._announced[message["rank"]] = message
        self._merged = None

    def clear(self) -> None:
        """Forget everything: another job begins."""
        self._announced.clear()
        self._merged = None

    @property
    def first(self) -> int | None:
        """The lowest rank that announced, which speaks for the job where only one can."""
        return min(self._announced, default=None)

    def known(self) -> Collection[int]:
        """Return the ranks that announced, those that went included."""
        return self._announced.keys()

    def leader(self, rank: int) -> int:
        """Return the rank that answers ``configure`` for ``rank``."""
        return self._announced[rank].get("leader", rank) if rank in self._announced else rank

    def merged(self) -> Announce | None:
        """Return the announcement of the job, None before the first. It is shared: not to be changed."""
        if self._merged is None and self._announced:
            self._merged = self._merge()
        return self._merged

    def is_other(self, message: Announce, attached: Collection[int]) -> str | None:
        """Return a sentence when an announcement is of another job than the attached ranks, else None.

        Processes of one job agree on its size, and one rank has one model.
        """
        for rank in sorted(attached)[:1]:
            ours = self._announced[rank]
            if _sizes(ours) != _sizes(message):
                return f"It has {_sizes_text(ours)}, and a process of a job with {_sizes_text(message)} came."
        ours = self._announced.get(message["rank"], message)
        if message["rank"] in attached and _model(ours) != _model(message):
            return (
                f"Its rank {message['rank']} trains {_model_text(ours)}, and one with "
                f"{_model_text(message)} came."
            )
        return None

    def disagreement(self, message: Announce, attached: Collection[int]) -> str | None:
        """Return a sentence when an announcement names another model than the lowest attached rank."""
        for rank in sorted(set(attached) - {message["rank"]})[:1]:
            ours = self._announced[rank]
            if _model(ours) != _model(message):
                return (
                    f"Rank {message['rank']} announces {_model_text(message)} and rank {rank} "
                    f"{_model_text(ours)}: "
                    "they do not train the same model."
                )
        return None

    def _merge(self) -> Announce:
        every = [self._announced[rank] for rank in sorted(self._announced)]
        layouts = [announce["layout"] for announce in every]
        merged: Announce = {
            **every[0],
            "layout": next((layout for layout in layouts if "ranks" in layout), layouts[0]),
            "flags": _union(info for announce in every for info in announce["flags"]),
            "sites": _union(info for announce in every for info in announce.get("sites", ())),
            "versions": {},
        }
        for announce in reversed(every):
            merged["versions"].update(announce["versions"])
        return merged


def _union(infos: Iterable[_Info]) -> list[_Info]:
    """Return the entries of all ranks by name, each with all the layers where it exists."""
    found: dict[str, _Info] = {}
    layers: dict[str, set[int]] = {}
    for info in infos:
        name = info["name"]
        known = layers.setdefault(name, set())
        if name not in found or (info["layers"] and not known):
            # The first that has it says more than one that has it not.
            found[name] = info.copy()
        known.update(info["layers"])
    for name, info in found.items():
        info["layers"] = sorted(layers[name])
        if info["layers"]:
            info.pop("reason", None)
    return list(found.values())


def _sizes(message: Announce) -> tuple[int, int, int, int]:
    layout = message["layout"]
    return layout["world_size"], layout["tp"], layout["pp"], layout["dp"]


def _model(message: Announce) -> tuple[str, int, int | None]:
    model = message["model"]
    return model["name"], model["layers"], model.get("hidden")


def _sizes_text(message: Announce) -> str:
    size, *groups = _sizes(message)
    return f"{size} processes (tp {groups[0]}, pp {groups[1]}, dp {groups[2]})"


def _model_text(message: Announce) -> str:
    name, layers, hidden = _model(message)
    return f"{name} of {layers} layers" + (f" and hidden size {hidden}" if hidden else "")


@dataclass(slots=True)
class _Own:
    """A process that is, or was, connected itself."""

    heard: float
    attached: bool = True
    ended: RankCondition = "finished"
    condition: RankCondition = "idle"
    step: int = 0
    step_at: float | None = None


@dataclass(slots=True)
class _Reported:
    """A process that another one reports of."""

    by: int
    heard: float
    state: RankCondition
    step: int


@dataclass
class Ranks:
    """The processes of the job by rank."""

    _own: dict[int, _Own] = field(default_factory=dict)
    _reported: dict[int, _Reported] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything: another job begins."""
        self._own.clear()
        self._reported.clear()
        self._names.clear()

    def came(self, announce: Announce, now: float) -> None:
        """Add a process that announced itself."""
        self._own[announce["rank"]] = _Own(now)
        layout = announce["layout"]
        for place in layout.get("ranks", ()):
            self._names[place["rank"]] = _name(place, layout)

    def went(self, rank: int, *, finished: bool) -> None:
        """Note that a process's connection ended."""
        own = self._own[rank]
        own.attached, own.ended = False, "finished" if finished else "lost"

    def heard(self, rank: int, now: float, step: int = -1) -> None:
        """Note that something came from a process, with a newer step where there is one."""
        own = self._own[rank]
        own.heard = now
        if step > own.step:
            own.step, own.step_at, own.condition = step, now, "training"

    def report(self, rank: int, status: Status, now: float) -> None:
        """Take a process's own ``status``, with its reports of others."""
        self.heard(rank, now, status["step"])
        # Frames may come late; what a process says of itself holds, also when it went back to an earlier
        # step.
        self._own[rank].step = status["step"]
        if status["state"] in _ALIVE:
            self._own[rank].condition = status["state"]
        for entry in status.get("ranks", ()):
            other = entry["rank"]
            if "name" in entry:
                self._names[other] = entry["name"]
            heard = now - entry.get("seconds", 0.0)
            known = self._reported.get(other)
            if other != rank and (known is None or known.by == rank or known.heard < heard):
                self._reported[other] = _Reported(rank, heard, entry["state"], entry["step"])

    def forgive(self, seconds: float) -> None:
        """Shift all times by a pause of the hub itself, so that nobody seems silent for it."""
        for own in self._own.values():
            own.heard += seconds
        for reported in self._reported.values():
            reported.heard += seconds

    def name(self, rank: int, *, at_start: bool = False) -> str:
        """Return a rank's name for people, such as ``rank 3 (tp 1, pp 1) on node-2``."""
        name = self._names.get(rank, f"rank {rank}")
        return name[:1].upper() + name[1:] if at_start else name

    def step(self) -> int:
        """Return the newest step of those that are connected."""
        return max((own.step for own in self._own.values() if own.attached), default=0)

    def step_of(self, rank: int) -> int:
        return self._own[rank].step

    def pauses(self) -> bool:
        """Whether a connected process reported last that it is paused."""
        return any(own.attached and own.condition == "paused" for own in self._own.values())

    def silent(self, now: float) -> list[int]:
        """Return the ranks of which nothing was heard for 2 s."""
        return [
            rank for rank in sorted({*self._own, *self._reported}) if self._state(rank, now)[0] == "silent"
        ]

    def lost(self) -> list[int]:
        """Return the ranks whose connection ended without a shutdown message."""
        return [rank for rank, own in sorted(self._own.items()) if own.ended == "lost" and not own.attached]

    def states(self, now: float) -> list[RankState]:
        """Return the ``ranks`` member of ``status``."""
        states: list[RankState] = []
        for rank in sorted({*self._own, *self._reported}):
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
        own, reported = self._own.get(rank), self._reported.get(rank)
        if own is None or (not own.attached and reported is not None and reported.heard > own.heard):
            assert reported is not None
            silent = reported.state in _ALIVE and now - reported.heard > _SILENT_SECONDS
            return "silent" if silent else reported.state, reported.step, reported.heard
        if not own.attached:
            return own.ended, own.step, own.heard
        if now - own.heard > _SILENT_SECONDS:
            return "silent", own.step, own.heard
        if own.condition == "training" and (own.step_at is None or now - own.step_at > IDLE_SECONDS):
            return "idle", own.step, own.heard
        return own.condition, own.step, own.heard


def _name(place: RankPlace, layout: Layout) -> str:
    axes: tuple[Literal["tp", "pp", "dp"], ...] = ("tp", "pp", "dp")
    where = ", ".join(f"{axis} {place[axis]}" for axis in axes if layout[axis] > 1)
    host = f" on {place['host']}" if place.get("host") else ""
    return f"rank {place['rank']}{f' ({where})' if where else ''}{host}"[:200]
