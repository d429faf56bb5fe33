"""Who is there: what rank 0 has heard of every process of the job."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import distributed

from ....protocol.messages_generated import RankCondition, RankPlace, RankState

__all__ = ["Members", "Rendezvous"]

_SILENT_SECONDS = 2.0

_made = 0
"""How many of these this process has made: every process makes them in one order, so it tells the keys of one from those of another."""


# How the processes of a job find each other: through the job's own store.
class Rendezvous:
    """Keys in the store of a job. Never waits: what is not there yet is asked for again.

    A blocking read of the store would also block the training's own use of it, which is one connection with one lock.

    Parameters
    ----------
    store : torch.distributed.Store
        The job's.
    """

    def __init__(self, store: Any) -> None:
        global _made
        _made += 1
        self._store = distributed.distributed_c10d.PrefixStore(f"megalens/{_made}", store)

    @classmethod
    def of_job(cls) -> Rendezvous | None:
        """Return the rendezvous of this process's job; None where there is no job or its store cannot be had."""
        if (
            not (distributed.is_available() and distributed.is_initialized())
            or distributed.get_world_size() == 1
        ):
            return None
        with contextlib.suppress(Exception):
            return cls(distributed.distributed_c10d._get_default_store())
        return None

    def tell(self, key: str, value: str) -> None:
        """Leave a value for the others."""
        self._store.set(key, value)

    def ask(self, key: str) -> str | None:
        """Return a value; None when nobody has left it yet."""
        if not self._store.check([key]):
            return None
        return str(self._store.get(key).decode())

    def secret(self, rank: int) -> str | None:
        """Return what the processes of this job know and nobody else; rank 0 makes it up."""
        known = self.ask("secret")
        if known is None and rank == 0:
            known = secrets.token_urlsafe(32)
            self.tell("secret", known)
        return known

    @staticmethod
    def own_address() -> str:
        """Return the address under which the other processes reach this host: the one on the way to the job's master."""
        master = os.environ.get("MASTER_ADDR", "127.0.0.1")
        try:
            family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


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
