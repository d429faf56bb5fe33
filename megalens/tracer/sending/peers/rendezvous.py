"""How the processes of a job find each other: through the job's own store."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
from typing import Any

from torch import distributed

__all__ = ["Rendezvous"]

_made = 0
"""How many of these this process has made: every process makes them in one order, so it tells the keys of one from those of another."""


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
