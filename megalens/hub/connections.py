"""Connections to a hub: who may open one, how many may be half open, and what limits the other side.

Bounded reports of trouble that clients can cause as often as they like.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import http
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.typing import Subprotocol

from ..protocol import SUBPROTOCOL, Pace, decode_message, encode_message
from ..protocol.connection import hub_options
from ..protocol.messages_generated import Hello, Join, Role
from ..protocol.version import own_version
from .discovery import HubEntry

_SECONDS = 60.0
_MOST_KINDS = 32

_MOST_WARNINGS, _MOST_ALIKE = 200, 8
_NUMBERS = re.compile(r"\d+")


class WarningLog:
    """Chooses which warnings become rows of the stream ``audit``: each sentence once, and not too many alike.

    They are recorded for good, and whoever sends them decides how many there are; so those that differ by
    their numbers only, and all together, are limited.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._alike: Counter[str] = Counter()

    def new(self, warnings: Iterable[str]) -> Iterator[str]:
        """Give those that are to be recorded."""
        for text in warnings:
            if text in self._seen or len(self._seen) >= _MOST_WARNINGS:
                continue
            form = _NUMBERS.sub("0", text)
            self._alike[form] += 1
            if self._alike[form] <= _MOST_ALIKE:
                self._seen.add(text)
                yield text
            elif self._alike[form] == _MOST_ALIKE + 1:
                yield f"Further warnings like this one are not recorded: {text}"[:500]


class MinuteLog:
    """Counts what went wrong by kind, and writes at most one line a minute."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self.total = 0
        self._write = write
        self._clock = clock
        self._counts: Counter[str] = Counter()
        self._next = float("-inf")

    def count(self, what: str) -> None:
        """Count one of a kind, and write the counts where that is due."""
        self.total += 1
        self._counts[what if what in self._counts or len(self._counts) < _MOST_KINDS else "others"] += 1
        self.tick()

    def tick(self) -> None:
        """Write the counts where that is due."""
        if self._clock() >= self._next:
            self.flush()

    def flush(self) -> None:
        """Write the counts now."""
        if self._counts:
            self._next = self._clock() + _SECONDS
            self._write("; ".join(f"{what}: {count}" for what, count in self._counts.items()) + ".")
            self._counts.clear()


if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection
else:
    Connection = object

_PONG = b"\x8a"
_MOST_FRAGMENTS = 4096
_CONTROLS_AT_ONCE, _CONTROLS_A_SECOND = 1000, 50.0

_OWN_FILES = 64
"""What a hub holds open besides connections: the recording, its port, libraries, and a reserve for files that
the recorder opens later.
"""
# More half open than the system hands over at once: whoever comes to speak has been read before others can
# push him out.
_MOST_HALF_OPEN = 256
_MOST_BACKLOG = 64
_JOIN_SECONDS = 10.0


@dataclass(frozen=True)
class ConnectionLimits:
    """How many connections there may be.

    Attributes
    ----------
    sessions : int
        That were let in.
    half_open : int
        That have not shown the token yet; counted separately, so that neither kind takes the other's.
    backlog : int
        That the system accepts before anybody looks at them.
    """

    sessions: int
    half_open: int
    backlog: int


def connection_limits() -> ConnectionLimits:
    """Raise the soft limit of open files, and return how many connections fit below it."""
    try:
        import resource
    except ImportError:
        # Windows has no such limit worth a word.
        return ConnectionLimits(2**31, _MOST_HALF_OPEN, _MOST_BACKLOG)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft != hard:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 2**31
    half_open = max(4, min(_MOST_HALF_OPEN, soft // 4))
    backlog = max(1, min(_MOST_BACKLOG, soft // 16))
    return ConnectionLimits(max(soft - _OWN_FILES - half_open - backlog, 1), half_open, backlog)


def check_upgrade(
    own_token: str,
    free: Callable[[], int] = lambda: 1,
    refused: Callable[[str], None] = lambda why: None,
) -> Callable[[ServerConnection, Request], Response | None]:
    """Return the check of a handshake: no browser, the right token, the one path, a free connection.

    It answers with what to refuse with, or None. ``refused`` takes the reason in a few words.
    """

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get_all("Origin"):
            refused("browsers turned away")
            return connection.respond(
                http.HTTPStatus.FORBIDDEN,
                "Browsers reach a hub through the Jupyter server's relay, not directly.\n",
            )
        given = request.headers.get_all("Authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        right = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), own_token.encode())
        if scheme.lower() != "bearer" or not right:
            refused("connections without the token turned away")
            response = connection.respond(
                http.HTTPStatus.UNAUTHORIZED,
                "Expected the header Authorization: Bearer with the token of the hub's runtime file.\n",
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        if request.path.partition("?")[0] != "/":
            return connection.respond(http.HTTPStatus.NOT_FOUND, "A hub listens at the path / only.\n")
        if free() < 1:
            refused("connections turned away because every place is taken")
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE,
                "This hub has as many connections as the system's limit of open files allows. "
                "Raise the limit (ulimit -n) and start the hub again.\n",
            )
        return None

    return admit


def select_subprotocol(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    if SUBPROTOCOL in offered:
        return Subprotocol(SUBPROTOCOL)
    # Taken under its own name, so that a browser can read the error that follows.
    return next((name for name in offered if name.startswith("megalens.")), None)


class HalfOpen:
    """Lets few connections be half open at once, and always the newest.

    Who is allowed in shows the token in the first packet. Where more than ``most`` are half open, the oldest
    is cut off, of the address that has the most of them: a client that opens thousands and sends nothing
    displaces its own, and not those who come to speak.
    """

    def __init__(self, most: Callable[[], int], cut_off: Callable[[], None]) -> None:
        self._most = most
        self._cut_off = cut_off
        # By age. An aborted transport counts no more, although its socket is closed a little later.
        self._waiting: dict[Any, str] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, transport: Any) -> None:
        """Count in a connection that was just accepted."""
        address = transport.get_extra_info("peername")
        self._waiting[transport] = str(address[0]) if address else ""
        while len(self._waiting) > max(1, self._most()):
            [(crowd, _)] = Counter(self._waiting.values()).most_common(1)
            oldest = next(each for each, host in self._waiting.items() if host == crowd)
            self.end(oldest)
            oldest.abort()
            self._cut_off()

    def end(self, transport: Any) -> None:
        """Count out a connection that was let in or is gone. Safe twice."""
        with contextlib.suppress(KeyError):
            del self._waiting[transport]

    def close(self) -> None:
        """Cut off all of them."""
        for transport in list(self._waiting):
            self.end(transport)
            transport.abort()


class BoundedConnection(Connection):
    """Mixin that bounds pings, the pieces of a message, and the answers to pings that are not read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fragments = 0
        self._controls = Pace(_CONTROLS_AT_ONCE, _CONTROLS_A_SECOND)
        self._pong = b""
        self._cut: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Take what came. A closed connection that the other side does not end is cut."""
        super().data_received(data)
        if self._cut is None and self.protocol.state is State.CLOSING:
            self._cut = self.loop.call_later(self.close_timeout or 0, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._cut is not None:
            self._cut.cancel()
        super().connection_lost(exc)

    def process_event(self, event: Any) -> None:
        """Take what was read: called by the base class for each event."""
        if self.protocol.state is State.OPEN and self._too_much(event):
            # Nothing that it sends afterwards is read.
            self.protocol.fail(1008, "too many small frames")
            self.send_data()
            return
        super().process_event(event)

    def resume_writing(self) -> None:
        """Send the pong that waited for the socket to take more: called by the event loop."""
        super().resume_writing()
        pong, self._pong = self._pong, b""
        if pong and self.protocol.state is State.OPEN:
            self.transport.write(pong)

    def send_data(self) -> None:
        """Write what the protocol has ready: called by the base class wherever it sends."""
        pieces = self.protocol.data_to_send()
        if self.paused:
            # The other side does not read. Of the pongs that it is owed only the newest stays queued (RFC
            # 6455, 5.5.3), until it does.
            pongs = [piece for piece in pieces if piece[:1] == _PONG]
            if pongs:
                self._pong = pongs[-1]
                pieces = [piece for piece in pieces if piece[:1] != _PONG]
        # An empty piece means the end of the stream.
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if data:
            self.transport.write(data)
        if pieces and not pieces[-1]:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            else:
                self.transport.close()

    def _too_much(self, event: Any) -> bool:
        """Whether pings, pongs or pieces of one message come more often than can be meant."""
        if not isinstance(event, Frame):
            return False
        if event.opcode in (Opcode.PING, Opcode.PONG):
            return not self._controls.take()
        self._fragments = 0 if event.fin else self._fragments + 1
        return self._fragments > _MOST_FRAGMENTS


async def join_hub(entry: HubEntry, role: Role, name: str, **options: Any) -> tuple[ClientConnection, Hello]:
    """Connect to a hub of this user and join it; return the connection and the hub's ``hello``.

    Raises ``OSError``, ``asyncio.TimeoutError``, ``ProtocolError`` or an exception of websockets.
    """
    connection = await connect(
        entry.address,
        # The hub pings.
        ping_interval=None,
        **hub_options(entry.token, SUBPROTOCOL),
        **options,
    )
    join: Join = {
        "type": "join",
        "protocol": SUBPROTOCOL,
        "role": role,
        "peer": {"name": name, "version": own_version()},
    }
    try:
        await connection.send(encode_message(join))
        hello = decode_message(await asyncio.wait_for(connection.recv(), _JOIN_SECONDS), allowed=("hello",))
    except BaseException:
        await connection.close()
        raise
    assert hello["type"] == "hello"
    return connection, hello


class BoundedClientConnection(BoundedConnection, ClientConnection):
    """A connection to a hub that need not be one of ours."""


class DirectConnect(connect):
    """Connects to a hub at the very address that was named, and never follows a redirect.

    Another host must get neither the token nor the connection. What answers is bounded in what it can make
    this side hold.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, create_connection=BoundedClientConnection, **kwargs)

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc
