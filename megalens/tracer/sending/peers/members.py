"""Who is there: what rank 0 has heard of every process of the job."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....protocol.messages_generated import RankCondition, RankPlace, RankState

__all__ = ["Members"]

_SILENT_SECONDS = 2.0


@dataclass
class _Entry:
    name: str
    place: RankPlace
    heard: float = field(default_factory=time.monotonic)
    state: RankCondition = "idle"
    step: int = 0
    gone: RankCondition | None = None
    status: Mapping[str, Any] = field(default_factory=dict)


class Members:
    """Keeps what was heard of each rank, and when. Waits by the monotonic clock only: wall clocks jump."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def came(self, rank: int, name: str, place: RankPlace) -> None:
        """Note that a process is there, or is there again."""
        self._entries[rank] = _Entry(name[:200], place)

    def heard(self, rank: int, state: RankCondition, step: int, status: Mapping[str, Any]) -> None:
        """Take a sign of life."""
        entry = self._entries.get(rank)
        if entry is not None:
            entry.heard = time.monotonic()
            entry.state, entry.step, entry.status = state, step, status

    def left(self, rank: int, finished: bool) -> None:
        """Note that a process went, after a goodbye or without one."""
        entry = self._entries.get(rank)
        if entry is not None and entry.gone != "finished":
            entry.gone = "finished" if finished else "lost"
            entry.heard = time.monotonic()

    def gone(self, rank: int) -> bool:
        """Return whether a process came and went."""
        entry = self._entries.get(rank)
        return entry is not None and entry.gone is not None

    def all_left(self, world_size: int, but: int) -> bool:
        """Return whether all processes of a job came and went again, but for one."""
        entries = {rank: entry for rank, entry in list(self._entries.items()) if rank != but}
        return len(entries) == world_size - 1 and all(entry.gone for entry in entries.values())

    def name(self, rank: int) -> str:
        """Return what people are told of a rank."""
        entry = self._entries.get(rank)
        return entry.name if entry is not None else f"rank {rank}"

    def statuses(self) -> dict[int, Mapping[str, Any]]:
        """Return the last status of every process that was heard of."""
        return {rank: entry.status for rank, entry in sorted(self._entries.items())}

    def places(self) -> list[RankPlace]:
        """Return the ``RankPlace`` objects of messages."""
        return [entry.place.copy() for _, entry in sorted(self._entries.items())]

    def states(self) -> list[RankState]:
        """Return the ``RankState`` objects of messages, by rank."""
        now = time.monotonic()
        states: list[RankState] = []
        for rank, entry in sorted(self._entries.items()):
            seconds = now - entry.heard
            silent = seconds > _SILENT_SECONDS
            states.append(
                {
                    "rank": rank,
                    "name": entry.name,
                    "state": entry.gone or ("silent" if silent else entry.state),
                    "step": entry.step,
                    "seconds": round(seconds, 3),
                }
            )
        return states
