"""The connections between the processes of a job, and the thread that serves them."""

from __future__ import annotations

import contextlib
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from ....protocol import ProtocolError
from ...coordinates import RankCoordinates
from .channel import Agreement, Channel, ChannelError, Message, MessageKind, Outbox, Outgoing, Proposal
from .members import Heartbeat, HubNotice, Members, PeerListener, Rendezvous
from .schedule import Schedule

log = logging.getLogger("megalens")

_HEARTBEAT_SECONDS = 0.5
_TICK_SECONDS = 0.25
_BUSY_TICK_SECONDS = 0.02
_ORPHAN_SECONDS = 5.0
_EARLY_SECONDS = 2.0


class Peers:
    """What connects a process to the others of its job.

    Parameters
    ----------
    heartbeat : callable
        Gives the heartbeat of this process. Called in the peers' thread.
    received : callable
        Takes a message of an instrument on another rank: rank, instrument's name, description, payload.
    hub : callable
        Takes rank 0's message about the hub.
    changed : callable
        Called when a process joined, left or fell silent; for rank 0.
    lost : callable
        Called when an instrument's message was not sent, and with it perhaps a description that later ones
        refer to.
    """

    def __init__(
        self,
        coords: RankCoordinates,
        rendezvous: Rendezvous,
        schedule: Schedule[Any],
        *,
        heartbeat: Callable[[], Heartbeat],
        received: Callable[[int, str, dict[str, Any], memoryview], None],
        hub: Callable[[HubNotice], None],
        changed: Callable[[], None],
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._coords = coords
        self._rendezvous = rendezvous
        self._schedule = schedule
        self._heartbeat, self._received, self._hub, self._changed = heartbeat, received, hub, changed
        self._lost = lost
        self._outbox = Outbox(self._put, lost)
        self.members = Members()
        self.agreement = Agreement(schedule, self) if coords.rank == 0 else None
        self._selector = selectors.DefaultSelector()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._links: dict[int, Channel] = {}
        self._wanted = {rank for rank in (0, coords.tp_ranks[0]) if rank != coords.rank}
        self._listener = PeerListener(
            coords,
            rendezvous,
            self._selector,
            wanted=self._wanted,
            listens=coords.rank == 0 or (coords.leads and len(coords.tp_ranks) > 1),
            came=self._let_in,
        )
        self._hub_message: HubNotice | None = None
        self._heartbeat_at = 0.0
        self._orphan_since: float | None = None
        self._states: list[Any] = []
        self._closing = False
        self._close_at = 0.0
        self._quitting = False
        if coords.rank == 0:
            self.members.came(
                0, f"{coords.name} on {socket.gethostname()}", coords.to_message(socket.gethostname())
            )
        self._thread = threading.Thread(target=self._run, name="megalens-peers", daemon=True)
        self._thread.start()

    # Any thread.

    def send(self, rank: int, instrument: str, meta: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
        """Send a message to the same instrument on rank 0 or on the leader of the tensor-parallel group."""
        self._post(rank, MessageKind.INSTRUMENT, {**meta, "instrument": instrument}, _joined(arrays))

    @property
    def refused(self) -> int:
        """Messages of instruments that could not be sent."""
        return self._outbox.given_up

    def propose(self, proposal: Proposal) -> None:
        """Ask for a change of the settings on all processes; on rank 0 only."""
        assert self.agreement is not None
        self.agreement.propose(proposal)
        self._rouse()

    def tell_hub(self, notice: HubNotice) -> None:
        """Send all processes the hub's address; on rank 0 only."""
        self._hub_message = notice
        for rank in list(self._links):
            self._post(rank, MessageKind.HUB, notice, b"")

    def wait_for_others(self, timeout: float) -> None:
        """Wait until every process of the job has shut down or is gone; on rank 0 only."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._thread.is_alive():
            if self.members.all_left(self._coords.world_size, but=self._coords.rank):
                return
            time.sleep(0.02)

    def close(self, timeout: float = 3.0) -> None:
        """Send shutdown messages and end the thread. Safe twice."""
        self._close_at = self._close_at or time.monotonic()
        self._closing = True
        self._rouse()
        self._thread.join(timeout)

    # What the agreement asks for.

    def others(self) -> dict[int, str]:
        """Return the other processes that are connected, with their names for people."""
        return {rank: self.members.name(rank) for rank in self._links}

    def complete(self) -> bool:
        return len(self.members.places()) == self._coords.world_size

    def tell(self, rank: int, kind: MessageKind, meta: Mapping[str, Any]) -> None:
        """Send a message to one process."""
        channel = self._links.get(rank)
        if channel is not None:
            channel.put(kind, meta)
            self._watch(channel)

    # The thread.

    def _post(self, rank: int, kind: MessageKind, meta: Mapping[str, Any], payload: Any) -> None:
        self._outbox.add(Outgoing(rank, kind, meta, payload))
        self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _run(self) -> None:
        try:
            while not self._quitting:
                if not self._closing or self._outbox.waiting:
                    self._listener.meet(self._links)
                busy = self.agreement is not None and self.agreement.busy
                for key, mask in self._selector.select(_BUSY_TICK_SECONDS if busy else _TICK_SECONDS):
                    self._serve(key.fileobj, mask)
                self._outbox.empty(self._links.__contains__)
                self._tick()
        except Exception as error:  # The training must not notice.
            log.warning(
                "The link between this job's processes has ended after an error of its own: %s: %s",
                type(error).__name__,
                error,
            )
            log.debug("peers thread", exc_info=True)
            self._schedule.abort_all()
            self._schedule.release()
        finally:
            if self.agreement is not None:
                self.agreement.close()
            for channel in self._links.values():
                channel.close()
            self._listener.close()
            self._selector.close()
            self._wake.close()
            self._waker.close()

    def _serve(self, what: Any, mask: int) -> None:
        if what is self._wake:
            with contextlib.suppress(OSError):
                self._wake.recv(4096)
            return
        if what is self._listener.listener:
            accepted = self._listener.accept()
            if accepted is not None:
                self._watch(accepted)
            return
        channel: Channel = what
        try:
            if mask & selectors.EVENT_WRITE:
                self._flush(channel)
            if mask & selectors.EVENT_READ:
                for message in channel.receive():
                    self._take(channel, message)
        except ChannelError as error:
            log.debug("peers: %s", error)
            self._drop(channel)
        except Exception as error:  # Also of what this process met in it: the other one reconnects.
            log.debug("peers: a message that cannot be understood: %r", error)
            self._drop(channel)

    def _take(self, channel: Channel, message: Message) -> None:
        meta = message.meta
        if self._listener.take(channel, message):
            return
        rank = next((rank for rank, link in self._links.items() if link is channel), None)
        if rank is None:
            # It has shut down, or is connected anew.
            return
        agreement = self.agreement
        match message.kind:
            case MessageKind.INSTRUMENT:
                self._received(rank, str(meta["instrument"]), meta, message.payload)
            case MessageKind.HEARTBEAT if agreement is not None:
                self.members.heard(rank, cast(Heartbeat, meta))
            case MessageKind.READY if agreement is not None:
                agreement.ready(rank, int(meta["number"]), int(meta["first"]))
            case MessageKind.REFUSE if agreement is not None:
                text = f"{self.members.name(rank)}: {meta['error']['message']}"[:4000]
                error = ProtocolError.from_message(meta["error"] | {"message": text})
                agreement.refused(rank, int(meta["number"]), error)
            case MessageKind.PREPARE:
                self._prepare(channel, int(meta["number"]), meta["patches"])
            case MessageKind.COMMIT:
                self._schedule.commit(int(meta["number"]), int(meta["step"]))
            case MessageKind.ABORT:
                self._schedule.abort(int(meta["number"]))
            case MessageKind.HUB:
                self._hub(cast(HubNotice, meta))
            case MessageKind.SHUTDOWN:
                self.members.left(rank, finished=True)
                self._drop(channel)
            case _:
                raise ValueError(message.kind)

    def _prepare(self, channel: Channel, number: int, patches: Sequence[Mapping[str, Any]]) -> None:
        try:
            first = self._schedule.prepare(number, patches)
        except ProtocolError as error:
            channel.put(MessageKind.REFUSE, {"number": number, "error": error.to_message()})
        else:
            channel.put(MessageKind.READY, {"number": number, "first": first})
        self._watch(channel)

    def _let_in(self, rank: int, channel: Channel, meta: Mapping[str, Any] | None) -> None:
        """Take a connection on which both sides have proved themselves."""
        old = self._links.pop(rank, None)
        if old is not None:
            self._forget(old)
        self._links[rank] = channel
        if meta is None:
            if rank == 0:
                # What was undecided when the link broke is decided now, or was dropped.
                self._schedule.abort_all()
                self._schedule.resume_listening()
                self._orphan_since = None
                self._heartbeat_at = 0.0
            # What was on its way when an old connection broke may not have arrived.
            self._lost()
            return
        self.members.came(rank, str(meta["name"]), meta["place"])
        if self.agreement is not None:
            if self._hub_message is not None:
                channel.put(MessageKind.HUB, self._hub_message)
            plan, number, step = self._schedule.in_force
            if number:
                # One that comes late, or comes back, is brought up to where the others are.
                channel.put(MessageKind.PREPARE, {"number": number, "patches": [plan.patch_from(step)]})
                channel.put(MessageKind.COMMIT, {"number": number, "step": step})
        self._watch(channel)
        self._changed()

    # Housekeeping.

    def _put(self, message: Outgoing) -> bool:
        channel = self._links.get(message.rank)
        if channel is None or not channel.put(message.kind, message.meta, message.payload):
            return False
        self._watch(channel)
        return True

    def _tick(self) -> None:
        now = time.monotonic()
        for channel in self._listener.late():
            self._drop(channel)
        if now - self._heartbeat_at >= _HEARTBEAT_SECONDS:
            self._heartbeat_at = now
            self._send_heartbeat()
        if self.agreement is not None:
            self.agreement.tick()
            states = [state["state"] for state in self.members.states()]
            if states != self._states:
                self._states = states
                self._changed()
        elif 0 in self._wanted and 0 not in self._links:
            self._orphan_since = self._orphan_since or now
            if now - self._orphan_since > _ORPHAN_SECONDS:
                # Nobody is left who could let a paused training go on.
                self._schedule.release()
        if self._closing and (not self._outbox.waiting or now - self._close_at > _EARLY_SECONDS):
            self._part()

    def _send_heartbeat(self) -> None:
        heartbeat = self._heartbeat()
        if self.agreement is not None:
            self.members.heard(0, heartbeat)
        elif 0 in self._links:
            self.tell(0, MessageKind.HEARTBEAT, heartbeat)

    def _part(self) -> None:
        """Send shutdown messages once everything has been sent, as far as the others take it."""
        for channel in list(self._links.values()):
            with contextlib.suppress(ChannelError):
                channel.put(MessageKind.SHUTDOWN, {})
                channel.flush()
        deadline = time.monotonic() + 1.0
        while time.monotonic() < deadline and any(channel.waiting for channel in self._links.values()):
            for channel in list(self._links.values()):
                try:
                    channel.flush()
                except ChannelError:
                    self._drop(channel)
            time.sleep(0.01)
        self._quitting = True

    def _flush(self, channel: Channel) -> None:
        waits = channel.flush()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waits else 0)
        self._selector.modify(channel, events, channel)

    def _watch(self, channel: Channel) -> None:
        try:
            self._flush(channel)
        except ChannelError as error:
            log.debug("peers: %s", error)
            self._drop(channel)

    def _drop(self, channel: Channel) -> None:
        for rank, link in list(self._links.items()):
            if link is channel:
                del self._links[rank]
                self.members.left(rank, finished=False)
                self._changed()
        self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        self._listener.forget(channel)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel)
        channel.close()


def _joined(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return arrays as bytes, one after another."""
    return np.concatenate([np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays])
