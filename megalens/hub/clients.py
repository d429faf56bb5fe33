"""The producers and viewers that are connected to a hub: who is let in, and where their messages go."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from websockets.asyncio.server import ServerConnection

from ..protocol import ProtocolError, encode_message
from ..protocol.messages_generated import (
    Announce,
    Cancel,
    ErrorMessage,
    Generate,
    Generating,
    HelloResumed,
    Join,
    Message,
)
from .batch_connection import BatchConnection
from .broadcaster import Broadcaster, Publisher
from .changes import Changes
from .control_check import check_allowed
from .history import Backlog
from .options import HubOptions
from .run_state import RunState
from .session import Session

_CLOSING_SECONDS = 1.0

_MOST_WAITING = 16


class _Waiting(NamedTuple):
    """A request that is not answered yet: its viewer, that one's id, and the producer that was asked."""

    viewer: int
    id: str
    producer: int


class Requests:
    """Carries ``generate`` and ``cancel`` from a viewer to the leading producer, and its answer back.

    How a generation goes on after the answer is in the stream ``generations``, for everybody.
    """

    def __init__(
        self, state: RunState, viewers: Mapping[int, Session], leaders: Callable[[], list[Session]]
    ) -> None:
        self._state = state
        self._viewers = viewers
        self._leaders = leaders
        self._numbers = itertools.count(1)
        # By the hub's own id.
        self._waiting: dict[str, _Waiting] = {}

    def ask(self, session: Session, message: Generate | Cancel) -> None:
        """Pass a viewer's request on; raises ``ProtocolError`` (``no-producer`` or ``refused``)."""
        waiting = sum(each.viewer == session.number for each in self._waiting.values())
        if waiting >= _MOST_WAITING or not session.pace.take():
            raise ProtocolError(
                "refused",
                "Requests come faster than the run can take them. Wait for an answer, then ask again.",
                field="id",
                expected=f"at most {session.pace.rate:g} a second and {_MOST_WAITING} under way",
                got=message["id"],
            )
        leaders = self._leaders()
        if not leaders:
            # First: what the script allows comes with its process.
            raise ProtocolError(
                "no-producer", "No process that could write text is attached. Try again when one is."
            )
        check_allowed("generate", self._state.hello().get("controls", ()), message["type"])
        # Of its own, so that two viewers' ids never meet.
        key = str(next(self._numbers))
        passed: Generate | Cancel = {**message, "id": key}  # type: ignore[assignment]
        if passed["type"] == "generate":
            passed["by"] = session.peer
        self._waiting[key] = _Waiting(session.number, message["id"], leaders[0].number)
        if not leaders[0].tell(encode_message(passed)):
            self.forget(leaders[0].number)

    def answer(self, session: Session, message: Generating | ErrorMessage) -> bool:
        """Take a producer's ``generating`` or ``error``; return whether it answers a request."""
        key = message["id"] if message["type"] == "generating" else message.get("reply_to", "")
        request = self._waiting.get(key)
        if request is None or request.producer != session.number:
            return False
        del self._waiting[key]
        asker = self._viewers.get(request.viewer)
        if asker is not None:
            if message["type"] == "generating":
                asker.enqueue(encode_message({**message, "id": request.id}))
            else:
                asker.enqueue(encode_message({**message, "reply_to": request.id}))
        return True

    def forget(self, producer: int) -> None:
        """Wait no more for a producer that went, and answer its viewers."""
        for key, request in list(self._waiting.items()):
            if request.producer != producer:
                continue
            del self._waiting[key]
            asker = self._viewers.get(request.viewer)
            if asker is not None:
                error = ProtocolError(
                    "no-producer", "The process went, or reads nothing, before it answered."
                )
                asker.enqueue(encode_message(error.to_message(request.id)))


class Clients:
    """Serves every connection by a :class:`Session`, which reports here: this is its :class:`SessionHost`.

    Parameters
    ----------
    viewers : dict
        Where the viewers that are attached are entered, by number.
    changed : callable
        Called when there is something new for viewers.
    enter : callable
        Enters the run's name and the time of its end, None while it goes on, in the runtime file.

    Attributes
    ----------
    last_viewer_left : float
        When the last viewer went, or the hub began, by ``time.monotonic``.
    """

    def __init__(
        self,
        options: HubOptions,
        state: RunState,
        publisher: Publisher,
        viewers: dict[int, Session],
        changed: Callable[[], None],
        enter: Callable[[str, float | None], None],
    ) -> None:
        self._options = options
        self._state = state
        self._publisher = publisher
        self._viewers = viewers
        self._changed = changed
        self._enter = enter
        self._count = 0
        self._sessions: dict[int, Session] = {}
        self._producers: dict[int, Session] = {}
        self.broadcaster = Broadcaster(state, viewers, self.leaders, lambda: publisher.recorder)
        self._changes = Changes(state, viewers, self.leaders, self._applied)
        self._requests = Requests(state, viewers, self.leaders)
        self.last_viewer_left = time.monotonic()

    def __len__(self) -> int:
        return len(self._sessions)

    async def serve(self, connection: ServerConnection) -> None:
        """Serve a connection whose handshake is over until it ends."""
        assert isinstance(connection, BatchConnection)
        connection.let_in()
        self._count += 1
        session = Session(self, self._options, self._state.streams, connection, self._count)
        self._sessions[session.number] = session
        try:
            await session.run()
        finally:
            del self._sessions[session.number]

    async def shut_down(self) -> None:
        """Send everybody a shutdown message, and cut off who does not answer: nothing is waited for."""
        await asyncio.gather(*(session.shut_down("shutdown", 1001) for session in [*self._sessions.values()]))
        for session in self._sessions.values():
            session.abort()

    # -- what a session needs of its hub ---------------------------------------------------------------------

    def short_hello(self) -> str:
        return self.broadcaster.short_hello()

    def welcome(self, session: Session, join: Join) -> tuple[str, Backlog]:
        """Add a viewer; return the text of its ``hello`` and what it is sent before live frames."""
        since = join.get("since")
        run = self._state.run["id"]
        if since is not None and (join.get("run", run) != run or since > self._state.seq):
            since = None
        # What is in the backlog is not sent again.
        self.pass_on()
        backlog = self._publisher.backlog(since, join.get("backlog"))
        resumed: HelloResumed | None = None
        if since is not None:
            resumed = {
                "since": since,
                "missed_frames": backlog.missed_frames,
                "missed_rows": backlog.missed_rows,
                "first_step": backlog.first_step,
                "last_step": backlog.last_step,
            }
        self._viewers[session.number] = session
        session.enqueue(self.broadcaster.status(session))
        self.broadcaster.somebody_looks()
        self._changed()
        return self.broadcaster.hello(resumed), backlog

    def leave(self, session: Session) -> None:
        """Remove a client, with a shutdown message or without. Safe for one that never joined."""
        self._changed()
        if self._viewers.pop(session.number, None):
            self.last_viewer_left = time.monotonic()
        if session.rank is None:
            return
        rank, session.rank = session.rank, None
        del self._producers[rank]
        self._state.detach(rank, finished=session.sent_goodbye)
        why = "finished" if session.sent_goodbye else "lost"
        self._publisher.audit(session.peer["name"], "disconnect", {"rank": rank, "reason": why})
        self._changes.forget(session.number)
        self._requests.forget(session.number)

    async def drain(self, session: Session) -> None:
        """Wait until the recording of a finished training is complete; send the producer ``status``."""
        # Of the processes of a job the last to leave: rank 0 waits for the others.
        if self._state.done and self._state.state == "finished":
            self._enter(self._state.run["name"], self._state.ended)
            self._publisher.close_recording()
            while (closing := self._publisher.closing) is not None and not closing.done():
                session.tell(self.broadcaster.status(session))
                await asyncio.wait([closing], timeout=_CLOSING_SECONDS)

    def leads(self, rank: int) -> bool:
        """Return whether the producer of this rank answers changes, for itself or for others too."""
        return self._state.job.leader(rank) == rank

    async def take(self, session: Session, message: Message) -> None:
        """Act on one checked message; raises ``ProtocolError`` for the sender."""
        if message["type"] == "announce":
            await self._make_way(session, message)
            self._announce(session, message)
        elif message["type"] == "status":
            if session.rank is not None:
                self._state.report(session.rank, message)
                self._publisher.record_warnings(session.peer["name"], message.get("warnings", ()))
                self._changed()
        elif message["type"] == "configure":
            self._changes.ask(session, message)
        elif message["type"] == "configured":
            self._changes.answer(session, message)
        elif message["type"] == "generate" or message["type"] == "cancel":
            self._requests.ask(session, message)
        elif message["type"] == "generating":
            self._requests.answer(session, message)
        elif message["type"] == "error":
            if not self._requests.answer(session, message):
                self._changes.refuse(session, message)
        elif message["type"] == "goodbye":
            session.sent_goodbye = True

    def publish(self, data: bytes | bytearray, rank: int | None = None) -> None:
        self._publisher.publish(data, rank)

    def pass_on(self) -> None:
        self._publisher.pass_on()

    def warn(self, text: str) -> None:
        self._state.warn(text)

    # -- producers -------------------------------------------------------------------------------------------

    def leaders(self) -> list[Session]:
        """Return the producers that answer changes, for themselves or for others too."""
        return [session for session in self._producers.values() if session.leads]

    async def _make_way(self, session: Session, message: Announce) -> None:
        """Make sure that no other producer is the rank that one announces; raises ``ProtocolError``."""
        rank = message["rank"]
        while session.rank is None:
            other = self._state.job.is_other(message, self._state.attached)
            if other:
                raise _taken(f"Another job has this hub. {other}")
            holder = self._producers.get(rank)
            if holder is None:
                return
            # The same process may be back before its broken connection is noticed.
            if await holder.alive():
                raise _taken(
                    f"{self._state.ranks.name(rank, at_start=True)} of the job that has this hub is still "
                    "there."
                )
            self.leave(holder)
            holder.close_soon(4409, "replaced")

    def _announce(self, session: Session, message: Announce) -> None:
        rank = message["rank"]
        if session.rank not in (None, rank):
            raise ProtocolError(
                "bad-message",
                "A producer stays the rank that it announced first.",
                field="rank",
                expected=str(session.rank),
                got=str(rank),
            )
        fresh = self._state.streams.announce(message.get("streams", {}))
        # A tracer announces itself again when it has learned more of the model.
        action = "connect" if session.rank is None else "announce"
        session.rank = rank
        self._producers[rank] = session
        self._state.attach(message)
        detail: dict[str, Any] = {"rank": rank, "model": message["model"]["name"]}
        if session.leads:
            detail["config"] = message["config"]
        self._publisher.audit(session.peer["name"], action, detail)
        self._publisher.describe_soon()
        if fresh:
            self._publisher.describe()
        self._enter(self._state.run["name"], None)
        # The first frame of a stream may come right behind its announcement.
        self.broadcaster.announce(at_once=fresh)

    def _applied(self, who: str, action: str, detail: dict[str, Any], step: int) -> None:
        self._publisher.audit(who, action, detail, step)
        self._publisher.describe_soon()


def _taken(text: str) -> ProtocolError:
    return ProtocolError(
        "refused",
        f"{text} Give the second job a hub of its own, on another port, or end the first job.",
        field="rank",
    )
