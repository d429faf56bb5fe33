"""One connection to the hub, from ``join`` to its end."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal, Protocol

from websockets.exceptions import ConnectionClosed

from ..protocol import SUBPROTOCOL, Pace, ProtocolError, Streams, decode_message, encode_message, parse_json
from ..protocol.messages_generated import Join, Message, Peer
from .batch_connection import BATCH_BYTES, BatchConnection, ViewerQueue
from .history import Backlog
from .live_frame import LiveFrame
from .options import HubOptions

_VIEWER_BYTES = 1 << 20
_UNREAD_BYTES = 256 * 1024
_ALIVE_SECONDS = 2.0
_CHANGES_AT_ONCE, _CHANGES_A_SECOND = 30, 10.0
_MESSAGES_AT_ONCE, _MESSAGES_A_SECOND = 200, 100.0
_MOST_BAD_MESSAGES = 10
_MAY_SEND = {
    "producer": ("announce", "configured", "generating", "status", "error", "goodbye"),
    "viewer": ("configure", "generate", "cancel", "error", "goodbye"),
}


class _Refused(Exception):
    """Send an error, then close."""

    def __init__(self, code: int, error: ProtocolError) -> None:
        super().__init__(error.message)
        self.code = code
        self.error = error


class SessionHost(Protocol):
    """The hub, as a session needs it; see :class:`Clients`."""

    def short_hello(self) -> str: ...

    def welcome(self, session: Session, join: Join) -> tuple[str, Backlog]: ...

    def leave(self, session: Session) -> None: ...

    async def drain(self, session: Session) -> None: ...

    def leads(self, rank: int) -> bool: ...

    async def take(self, session: Session, message: Message) -> None: ...

    def publish(self, data: bytes | bytearray, rank: int | None = None) -> None: ...

    def pass_on(self) -> None: ...

    def warn(self, text: str) -> None: ...


class Session:
    """What the hub knows about one client; ``number`` is unique in this hub."""

    def __init__(
        self,
        host: SessionHost,
        options: HubOptions,
        streams: Streams,
        connection: BatchConnection,
        number: int,
    ) -> None:
        self._host = host
        self._options = options
        self.number = number
        self.role = ""
        self.peer: Peer = {"name": "", "version": ""}
        self.rank: int | None = None
        self.sent_goodbye = False
        self.queue = ViewerQueue(options.viewer_queue_bytes, streams)
        self.pace = Pace(_CHANGES_AT_ONCE, _CHANGES_A_SECOND)
        self._connection = connection
        self._waits = False
        """Whether nothing is being sent from the queue."""
        self._bad_messages = 0
        self._fault: Exception | None = None
        self._closing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Serve the client until either side ends."""
        sender: asyncio.Task[None] | None = None
        try:
            join = await self._handshake()
            if self.role == "viewer":
                # Without a pause between these lines: what is not in the backlog will be in the queue.
                hello, backlog = self._host.welcome(self, join)
                sender = asyncio.create_task(self._send_queue(hello, backlog))
            await self._receive()
        except _Refused as refused:
            await self._say(refused.error.to_message())
            await self.close(refused.code, refused.error.code)
        except ConnectionClosed:
            pass
        except Exception as error:
            self._host.warn(f"The hub met an error of its own: {type(error).__name__}. Please report it.")
            await self._say(
                {
                    "type": "error",
                    "code": "internal",
                    "message": "The hub met an error of its own. Connect again.",
                }
            )
            await self.close(1011, "internal")
        finally:
            self._host.leave(self)
            if sender is not None:
                sender.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await sender
            if self._closing is not None:
                await self._closing

    @property
    def leads(self) -> bool:
        """Whether this producer answers changes, for itself or for others too."""
        return self.rank is not None and self._host.leads(self.rank)

    def enqueue(self, text: str) -> None:
        """Queue the text of a message for a viewer, behind all frames that came before it."""
        self._host.pass_on()
        self._put(text)

    def _put(self, item: str | LiveFrame) -> None:
        if self._closing is None and not self.queue.put(item):
            self._host.leave(self)
            self.close_soon(4429, "too slow")

    @property
    def takes_now(self) -> bool:
        """Whether a viewer has taken all that it was sent."""
        return self._waits and not self.queue and self._closing is None and self._connection.takes_now

    def forward(self, frames: Sequence[LiveFrame], chunks: Sequence[bytes | memoryview]) -> None:
        """Send frames, put together as ``chunks``; queue them where the viewer has not taken all before."""
        if self.takes_now:
            self._connection.write(chunks)
            return
        for frame in frames:
            self._put(frame)

    def tell(self, text: str) -> bool:
        """Send a message to a producer now; False when it is gone or has long stopped reading."""
        return self._closing is None and self._connection.send_now(text, _UNREAD_BYTES)

    async def alive(self) -> bool:
        """Return whether the other side answers a ping within 2 s."""
        try:
            await asyncio.wait_for(self._ping(), _ALIVE_SECONDS)
        except (asyncio.TimeoutError, ConnectionClosed):
            return False
        return True

    async def _ping(self) -> None:
        await (await self._connection.ping())

    def close_soon(self, code: int, reason: str) -> None:
        """Begin to close, from code that cannot wait."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._connection.close(code, reason))

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, or wait for the close that is under way."""
        self.close_soon(code, reason)
        if self._closing is not None:
            await self._closing

    def abort(self) -> None:
        """Cut the connection, whatever is under way."""
        self._connection.transport.abort()

    async def shut_down(self, reason: Literal["finished", "shutdown"], code: int) -> None:
        """Send a shutdown message and close. A client that does not read is not waited for long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._say({"type": "goodbye", "reason": reason}), 1)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.create_task(self.close(code, reason))), 2)

    async def _handshake(self) -> Join:
        offered = self._connection.subprotocol
        if offered != SUBPROTOCOL:
            raise _Refused(4406, _version_error(offered or "no subprotocol"))
        try:
            text = await asyncio.wait_for(self._connection.recv(), self._options.join_seconds)
        except asyncio.TimeoutError:
            raise _Refused(4408, _join_error(f"nothing in {self._options.join_seconds:g} s")) from None
        if isinstance(text, bytes):
            raise _Refused(4400, _join_error("a data frame"))
        _check_size(text)
        try:
            join = decode_message(text)
        except ProtocolError as error:
            raise _Refused(4400, error) from error
        if join["type"] != "join":
            raise _Refused(4400, _join_error(f"a {join['type']} message"))
        if join["protocol"] != SUBPROTOCOL:
            raise _Refused(4406, _version_error(join["protocol"]))
        self.role = join["role"]
        self.peer = join["peer"]
        if self.role == "producer":
            self.tell(self._host.short_hello())
        return join

    async def _receive(self) -> None:
        allowed = _MAY_SEND[self.role]
        pace = Pace(_MESSAGES_AT_ONCE, _MESSAGES_A_SECOND)
        self._connection.message_done()
        if self.role == "producer":
            self._connection.take_frame = self._take_at_once
        try:
            while not self.sent_goodbye:
                data = await self._connection.recv()
                if self.role == "viewer":
                    _check_size(data)
                if isinstance(data, bytes):
                    self._take_frame(data)
                else:
                    await self._take_text(data, allowed)
                self._connection.message_done()
                if self.role == "viewer" and not pace.take():
                    # The next is read later, so that one who sends forever waits for himself.
                    await asyncio.sleep(1 / _MESSAGES_A_SECOND)
        finally:
            self._connection.take_frame = None
        if self.role == "producer":
            self._host.leave(self)
            await self._host.drain(self)
        await self.close(1000, "goodbye")

    def _take_at_once(self, data: bytes | bytearray) -> bool:
        """Take a producer's frame where it is read. A fault waits for its turn in :meth:`_receive`."""
        try:
            self._host.publish(data, self.rank)
        except Exception as error:
            self._fault = error
            return False
        return True

    def _take_frame(self, data: bytes) -> None:
        if self.role != "producer":
            raise _Refused(
                4403,
                ProtocolError("forbidden", "A viewer may not send data frames.", expected="a JSON message"),
            )
        try:
            if self._fault is not None:
                raise self._fault
            self._host.publish(data, self.rank)
        except ProtocolError as error:
            raise _Refused(4400, error) from error

    async def _take_text(self, text: str, allowed: tuple[str, ...]) -> None:
        try:
            message = decode_message(text, allowed)
            await self._host.take(self, message)
        except ProtocolError as error:
            if error.code in ("forbidden", "too-large"):
                raise _Refused(4403 if error.code == "forbidden" else 1009, error) from error
            if self.role == "producer" and error.code == "refused":
                raise _Refused(4409, error) from error
            if error.code == "bad-message":
                self._bad_messages += 1
                if self._bad_messages >= _MOST_BAD_MESSAGES:
                    raise _Refused(4400, error) from error
            await self._answer(error, text)

    async def _answer(self, error: ProtocolError, text: str) -> None:
        """Answer a bad message with an ``error``, with the message's id where that can be read."""
        reply_to = None
        with contextlib.suppress(ValueError):
            message = parse_json(text)
            if isinstance(message, dict) and isinstance(message.get("id"), str):
                reply_to = message["id"][:200]
        if error.field is not None:
            error.field = error.field.removeprefix("patch.")
        if self.role == "viewer":
            self.enqueue(encode_message(error.to_message(reply_to)))
        else:
            await self._say(error.to_message(reply_to))

    async def _send_queue(self, hello: str, backlog: Backlog) -> None:
        """Send a viewer hello, the status, the backlog, the status again, then what is queued."""
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(hello)
            # What was queued first is the status: it says up to which step the backlog goes, and at its end
            # that all of it has come.
            status = await self.queue.get()
            await self._connection.send_batch([status])
            for data in backlog.frames():
                await self._connection.send(data)
            await self._connection.send_batch([status])
            while True:
                self._waits = True
                items = [await self.queue.get()]
                self._waits = False
                before = self.queue.bytes
                while len(self.queue) and before - self.queue.bytes < BATCH_BYTES:
                    items.append(self.queue.pop())
                await self._connection.send_batch(items)

    async def _say(self, message: Message) -> None:
        with contextlib.suppress(ConnectionClosed):
            await self._connection.send(encode_message(message))


def _check_size(data: str | bytes) -> None:
    if len(data) <= _VIEWER_BYTES:
        return
    raise _Refused(
        1009,
        ProtocolError(
            "too-large",
            "A message is larger than this hub takes.",
            expected=f"{_VIEWER_BYTES} bytes",
            got=f"{len(data)} bytes",
        ),
    )


def _version_error(got: str) -> ProtocolError:
    return ProtocolError(
        "version-mismatch",
        f"This hub speaks {SUBPROTOCOL}; the client offered {got!r:.100}. Update the older side.",
        expected=SUBPROTOCOL,
        got=got[:200],
    )


def _join_error(got: str) -> ProtocolError:
    return ProtocolError(
        "join-expected", "The first message of a connection must be join.", expected="join", got=got
    )
