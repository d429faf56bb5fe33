"""How the processes of a job find and authenticate each other, and their last heartbeats at rank 0."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from torch import distributed

from ....protocol.messages_generated import Dropped, Probes, RankCondition, RankPlace, RankState
from ...coordinates import RankCoordinates
from .channel import Channel, ChannelError, Message, MessageKind

_SILENT_SECONDS = 2.0

_made = 0
"""How many of these this process has made: every process makes them in one order, so it tells the keys of one
from those of another.
"""

log = logging.getLogger("megalens")

_RETRY_SECONDS = 0.5
_NO_STORE_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
_CONNECT_SECONDS = 2.0


class Handshake:
    """One process's side of a mutual proof of the job's secret, which itself never crosses the wire."""

    def __init__(self, secret: str, coords: RankCoordinates) -> None:
        self._secret = secret.encode()
        self._coords = coords

    @staticmethod
    def challenge() -> str:
        return secrets.token_hex(32)

    def answer(self, theirs: str, mine: str) -> dict[str, Any]:
        """Return the answer to a challenge: who this is, proof of the secret, and a challenge in return."""
        coords, host = self._coords, socket.gethostname()
        return {
            "rank": coords.rank,
            "name": f"{coords.name} on {host}"[:200],
            "place": coords.to_message(host),
            "challenge": mine,
            "proof": self._proof("member", theirs, coords.rank),
        }

    def check_answer(self, message: Message, challenge: str) -> int:
        """Return the rank of whoever answered; raises :class:`ChannelError` without the secret."""
        rank = int(message.meta["rank"])
        proof = self._proof("member", challenge, rank)
        if message.kind is not MessageKind.ANSWER or not hmac.compare_digest(
            proof, str(message.meta["proof"])
        ):
            raise ChannelError("somebody who does not know this job's secret asked to be let in")
        return rank

    def welcome(self, rank: int, theirs: str) -> dict[str, Any]:
        """Return the answer to a process that has proved itself."""
        return {"proof": self._proof("leader", theirs, rank)}

    def check_welcome(self, message: Message, mine: str) -> None:
        """Check the leader's proof; raises :class:`ChannelError` without the secret."""
        proof = self._proof("leader", mine, self._coords.rank)
        if message.kind is not MessageKind.WELCOME or not hmac.compare_digest(
            proof, str(message.meta["proof"])
        ):
            raise ChannelError("whoever is at this job's address does not know its secret")

    def _proof(self, side: str, challenge: str, rank: int) -> str:
        text = f"megalens {side} {challenge} {rank}"
        return hmac.new(self._secret, text.encode(), hashlib.sha256).hexdigest()


class PeerListener:
    """Opens connections to the ranks that this process needs and accepts others, until both sides are proved.

    Everything is called in the peers' thread.

    Parameters
    ----------
    wanted : collection of int
        Ranks to connect to.
    listens : bool
        Whether others connect to this one.
    came : callable
        Takes the rank and the connection of a proved process, with its answer; None where this process
        connected.
    """

    def __init__(
        self,
        coords: RankCoordinates,
        rendezvous: Rendezvous,
        selector: selectors.BaseSelector,
        *,
        wanted: Collection[int],
        listens: bool,
        came: Callable[[int, Channel, Mapping[str, Any] | None], None],
    ) -> None:
        self._coords = coords
        self._rendezvous = rendezvous
        self._selector = selector
        self._wanted = frozenset(wanted)
        self._listens = listens
        self._came = came
        self._handshake: Handshake | None = None
        self._unproved: dict[Channel, tuple[str, float]] = {}
        self._dialled: dict[Channel, tuple[int, str]] = {}
        self._retry_at: dict[int, float] = {}
        self.listener: socket.socket | None = None

    @property
    def waiting(self) -> list[Channel]:
        """Connections whose other side is not proved."""
        return [*self._unproved, *self._dialled]

    def late(self) -> list[Channel]:
        """Return the connections on which no proof came in time."""
        now = time.monotonic()
        return [channel for channel, (_, until) in self._unproved.items() if now > until]

    def meet(self, connected: Collection[int]) -> None:
        """Find those who are not connected yet. Never waits for the store."""
        try:
            if self._handshake is None:
                secret = self._rendezvous.secret(self._coords.rank)
                if secret is None:
                    return
                self._handshake = Handshake(secret, self._coords)
            if self._listens and self.listener is None:
                self._listen()
            dialling = {rank for rank, _ in self._dialled.values()}
            for rank in self._wanted.difference(connected, dialling):
                if time.monotonic() >= self._retry_at.get(rank, 0.0):
                    self._retry_at[rank] = time.monotonic() + _RETRY_SECONDS
                    address = self._rendezvous.ask(f"address/{rank}")
                    if address is not None:
                        self._dial(rank, address)
        except Exception as error:
            # The store may be gone with the job's process group.
            log.debug("peers: the store does not answer: %s", error)
            for rank in self._wanted:
                self._retry_at[rank] = time.monotonic() + _NO_STORE_SECONDS

    def accept(self) -> Channel | None:
        """Accept a connection, and ask the other side for proof."""
        assert self.listener is not None
        try:
            sock, _ = self.listener.accept()
        except OSError:
            return None
        channel = Channel(sock)
        challenge = Handshake.challenge()
        self._unproved[channel] = (challenge, time.monotonic() + _ANSWER_SECONDS)
        self._selector.register(channel, selectors.EVENT_READ, channel)
        channel.put(MessageKind.CHALLENGE, {"challenge": challenge})
        return channel

    def take(self, channel: Channel, message: Message) -> bool:
        """Act on a message of a connection that is not proved; return False for any other.

        Raises :class:`ChannelError` when the other side does not know the job's secret.
        """
        if channel in self._unproved:
            self._judge(channel, message)
        elif channel in self._dialled:
            self._introduce(channel, message)
        else:
            return False
        return True

    def forget(self, channel: Channel) -> None:
        """Wait no more for proof."""
        self._unproved.pop(channel, None)
        self._dialled.pop(channel, None)

    def close(self) -> None:
        """Close the listener and all connections that are not proved."""
        for channel in self.waiting:
            channel.close()
        if self.listener is not None:
            self.listener.close()

    def _listen(self) -> None:
        host = self._rendezvous.own_address()
        self.listener = socket.create_server(
            (host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=256
        )
        self.listener.setblocking(False)
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._rendezvous.tell(f"address/{self._coords.rank}", f"{host} {self.listener.getsockname()[1]}")

    def _dial(self, rank: int, address: str) -> None:
        host, port = address.split(" ")
        try:
            channel = Channel(socket.create_connection((host, int(port)), _CONNECT_SECONDS))
        except OSError as error:
            log.debug("peers: rank %s at %s: %s", rank, address, error)
            return
        self._dialled[channel] = (rank, Handshake.challenge())
        self._selector.register(channel, selectors.EVENT_READ, channel)

    def _judge(self, channel: Channel, message: Message) -> None:
        challenge, _ = self._unproved[channel]
        assert self._handshake is not None
        rank = self._handshake.check_answer(message, challenge)
        theirs = str(message.meta["challenge"])
        del self._unproved[channel]
        channel.trusted = True
        channel.put(MessageKind.WELCOME, self._handshake.welcome(rank, theirs))
        self._came(rank, channel, message.meta)

    def _introduce(self, channel: Channel, message: Message) -> None:
        rank, mine = self._dialled[channel]
        assert self._handshake is not None
        if message.kind is MessageKind.CHALLENGE:
            channel.put(MessageKind.ANSWER, self._handshake.answer(str(message.meta["challenge"]), mine))
            if channel.flush():
                raise ChannelError("the connection does not take a few bytes")
            return
        self._handshake.check_welcome(message, mine)
        del self._dialled[channel]
        channel.trusted = True
        self._came(rank, channel, None)


class Rendezvous:
    """Keys in the store of a job (a ``torch.distributed.Store``). Never waits: absent keys are asked for
    later.

    A blocking read of the store would also block the training's own use of it, which is one connection with
    one lock.
    """

    def __init__(self, store: Any) -> None:
        global _made
        _made += 1
        self._store = distributed.distributed_c10d.PrefixStore(f"megalens/{_made}", store)

    @classmethod
    def of_job(cls) -> Rendezvous | None:
        """Return the rendezvous of this process's job; None without a job or its store."""
        if (
            not (distributed.is_available() and distributed.is_initialized())
            or distributed.get_world_size() == 1
        ):
            return None
        with contextlib.suppress(Exception):
            return cls(distributed.distributed_c10d._get_default_store())
        return None

    def tell(self, key: str, value: str) -> None:
        """Set a value for the others."""
        self._store.set(key, value)

    def ask(self, key: str) -> str | None:
        """Return a value; None when it is not set yet."""
        if not self._store.check([key]):
            return None
        return str(self._store.get(key).decode())

    def secret(self, rank: int) -> str | None:
        """Return what only the processes of this job know; rank 0 makes it up."""
        known = self.ask("secret")
        if known is None and rank == 0:
            known = secrets.token_urlsafe(32)
            self.tell("secret", known)
        return known

    @staticmethod
    def own_address() -> str:
        """Return this host's address for the other processes: the one on the route to the job's master."""
        master = os.environ.get("MASTER_ADDR", "127.0.0.1")
        try:
            family, _, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


class HubNotice(TypedDict):
    """What rank 0 sends the others of the hub."""

    url: str
    token: str
    run_id: str | None
    watched: bool
    """Whether anybody looks."""


class _RequiredHeartbeat(TypedDict):
    state: RankCondition
    step: int


class Heartbeat(_RequiredHeartbeat, total=False):
    """What every process sends to rank 0 twice a second; the rest as in its ``status``."""

    not_applied: int
    """Number of the newest change that could not be put on its model; 0 where there is none."""
    warnings: list[str]
    probes: Probes
    dropped: Dropped


@dataclass
class _Entry:
    name: str
    place: RankPlace
    heard: float = field(default_factory=time.monotonic)
    heartbeat: Heartbeat = field(default_factory=lambda: Heartbeat(state="idle", step=0))
    gone: RankCondition | None = None


class Members:
    """The last heartbeat of each rank, and its time by the monotonic clock: wall clocks jump."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}

    def came(self, rank: int, name: str, place: RankPlace) -> None:
        """Note that a process has joined, perhaps not for the first time."""
        self._entries[rank] = _Entry(name[:200], place)

    def heard(self, rank: int, heartbeat: Heartbeat) -> None:
        """Take a heartbeat; raises ``ValueError`` where it lacks a field."""
        if not heartbeat.keys() >= _RequiredHeartbeat.__required_keys__:
            raise ValueError(
                f"a heartbeat lacks {', '.join(_RequiredHeartbeat.__required_keys__ - heartbeat.keys())}"
            )
        entry = self._entries.get(rank)
        if entry is not None:
            entry.heard = time.monotonic()
            entry.heartbeat = heartbeat

    def left(self, rank: int, finished: bool) -> None:
        """Note that a process went, after a shutdown message (``finished``) or without one."""
        entry = self._entries.get(rank)
        if entry is not None and entry.gone != "finished":
            entry.gone = "finished" if finished else "lost"
            entry.heard = time.monotonic()

    def gone(self, rank: int) -> bool:
        """Return whether a process came and went."""
        entry = self._entries.get(rank)
        return entry is not None and entry.gone is not None

    def all_left(self, world_size: int, but: int) -> bool:
        """Return whether all processes of a job came and went, but for one."""
        entries = {rank: entry for rank, entry in list(self._entries.items()) if rank != but}
        return len(entries) == world_size - 1 and all(entry.gone for entry in entries.values())

    def name(self, rank: int) -> str:
        entry = self._entries.get(rank)
        return entry.name if entry is not None else f"rank {rank}"

    def heartbeats(self) -> dict[int, Heartbeat]:
        """Return the last heartbeat of every process that came."""
        return {rank: entry.heartbeat for rank, entry in sorted(self._entries.items())}

    def places(self) -> list[RankPlace]:
        return [entry.place.copy() for _, entry in sorted(self._entries.items())]

    def states(self) -> list[RankState]:
        """Return the ``RankState`` objects of messages, by rank."""
        now = time.monotonic()
        states: list[RankState] = []
        for rank, entry in sorted(self._entries.items()):
            # Another thread may hear of it just now.
            seconds = max(now - entry.heard, 0.0)
            silent = seconds > _SILENT_SECONDS
            states.append(
                {
                    "rank": rank,
                    "name": entry.name,
                    "state": entry.gone or ("silent" if silent else entry.heartbeat["state"]),
                    "step": entry.heartbeat["step"],
                    "seconds": round(seconds, 3),
                }
            )
        return states
