"""Connections to a hub, each in a thread of its own: of a run, and of a page that a kernel draws views in."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from websockets.exceptions import (
    ConnectionClosed,
    ConnectionClosedOK,
    InvalidHandshake,
    InvalidMessage,
    InvalidStatus,
    InvalidURI,
)
from websockets.protocol import State
from websockets.sync.client import ClientConnection, connect

from ..protocol import MAX_HUB_BYTES, SUBPROTOCOL, ProtocolError, encode_message
from ..protocol.connection import hub_options
from ..protocol.messages_generated import Join, Message
from .errors import ClientError

_LOOK_SECONDS = 1.0
_FIRST_DELAY, _LONGEST_DELAY = 0.2, 10.0
# What the library closes with where the other side sent what is no WebSocket, no UTF-8 or too large.
_BROKEN = (1002, 1007, 1009)
_FINAL_CODES = {1000: "ended", 4403: "refused", 4406: "version", 1009: "refused", 4400: "refused"}

LinkTarget = Callable[[], "tuple[str, str, str | None] | None"]
"""Returns (address, token, run) of the current hub, or ``None`` when it is gone for good. The run is the
expected one; None where a person gave the address."""


class Listener(Protocol):
    """What a link reports to. Everything is called from the link's thread."""

    def join_message(self, run: str | None) -> Join:
        """Return the ``join`` to send to a hub, and take its messages for those of ``run`` only."""

    def on_text(self, text: str) -> None: ...

    def on_bytes(self, data: bytes) -> None: ...

    def on_down(self, problem: Exception, final: bool) -> None:
        """Take the end of one connection or try; ``final`` when no other try follows."""


def _open(address: str, token: str) -> ClientConnection:
    opened: ClientConnection = connect(
        address,
        max_size=MAX_HUB_BYTES,
        open_timeout=10,
        close_timeout=2,
        **hub_options(token, SUBPROTOCOL),
    )
    return opened


class ViewerLink:
    """Keeps one viewer connection to a hub. ``target`` says where it is and is asked before every try."""

    def __init__(self, target: LinkTarget, listener: Listener) -> None:
        self.target = target
        self._listener = listener
        self._closing = threading.Event()
        self._connection: ClientConnection | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="megalens-link", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def send(self, message: Message) -> None:
        """Send a control message; raises ``ClientError`` (``disconnected``) without a connection."""
        text = encode_message(message)
        with self._lock:
            connection = self._connection
        try:
            if connection is None:
                raise ClientError("no connection", code="disconnected")
            connection.send(text)
        except (ClientError, ConnectionClosed, OSError) as error:
            raise ClientError(
                "The hub cannot be reached now. The connection comes back by itself; try again then.",
                code="disconnected",
            ) from error

    def close(self) -> None:
        """Send the shutdown message, close and end the thread. Safe twice."""
        if not self._closing.is_set():
            with contextlib.suppress(ClientError):
                self.send({"type": "goodbye", "reason": "leaving"})
        self._closing.set()
        with self._lock:
            connection = self._connection
        if connection is not None:
            connection.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)

    def _run(self) -> None:
        delay = _FIRST_DELAY
        while not self._closing.is_set():
            target = self.target()
            if target is None:
                self._listener.on_down(
                    ClientError("The hub of this run is gone.", code="disconnected"), final=True
                )
                return
            came_up, problem, final = self._once(*target)
            if self._closing.is_set():
                return
            self._listener.on_down(problem, final)
            if final:
                return
            delay = _FIRST_DELAY if came_up else min(delay * 2, _LONGEST_DELAY)
            self._closing.wait(delay * random.uniform(0.7, 1.3))  # noqa: S311

    def _once(self, address: str, token: str, run: str | None) -> tuple[bool, Exception, bool]:
        """Connect and read to the end; return whether it came up, why it ended, and whether for good."""
        with contextlib.ExitStack() as stack:
            try:
                # Used as a context manager the call means the same in every version of the library.
                connection = stack.enter_context(_open(address, token))
            except (InvalidHandshake, InvalidMessage, InvalidURI, OSError, ValueError) as error:
                return (False, *_explain(address, error))
            problem: Exception = ClientError("The connection to the hub broke.", code="disconnected")
            try:
                with self._lock:
                    self._connection = connection
                if self._closing.is_set():
                    return True, problem, True
                self._read(connection, run)
            except ProtocolError as error:
                connection.close(4400, error.code)
                return True, error, True
            except (ConnectionClosed, OSError) as error:
                problem.__cause__ = error
            except Exception as error:
                # Whatever a hub sends, the thread does not end without a word.
                connection.close(1011, "internal")
                text = f"A message of the hub could not be taken ({type(error).__name__}: {error!s:.200})."
                return True, ClientError(text, code="internal"), True
            finally:
                with self._lock:
                    self._connection = None
            sent = connection.protocol.close_sent
            if sent is not None and sent.code in _BROKEN and not connection.protocol.close_rcvd_then_sent:
                return (
                    True,
                    ProtocolError(
                        "bad-frame", f"The hub broke the WebSocket protocol: {sent.reason or sent.code}."
                    ),
                    True,
                )
        code = connection.close_code
        if code == 4406:
            problem = ProtocolError(
                "version-mismatch", "The hub speaks another protocol version. Update the older side."
            )
        return True, problem, code in _FINAL_CODES

    def _read(self, connection: ClientConnection, run: str | None) -> None:
        connection.send(encode_message(self._listener.join_message(run)))
        for message in _received(connection):
            if isinstance(message, str):
                self._listener.on_text(message)
            elif message is not None:
                self._listener.on_bytes(message)


def _received(connection: ClientConnection) -> Iterator[str | bytes | None]:
    """Yield what comes up to the end of a connection, and None again and again while nothing does."""
    while True:
        try:
            yield connection.recv(_LOOK_SECONDS)
        except TimeoutError:
            if connection.protocol.state is not State.OPEN:
                # The library closed it because of invalid data, and would wait for the other side without
                # limit.
                return
            yield None
        except ConnectionClosedOK:
            return


def _soon(connection: ClientConnection, most: int) -> Iterator[str | bytes]:
    """Yield what comes within a moment, up to about so many bytes."""
    ends = time.monotonic() + _GATHER_SECONDS
    with contextlib.suppress(TimeoutError, ConnectionClosed):
        while most > 0:
            message = connection.recv(max(ends - time.monotonic(), 0))
            most -= len(message)
            yield message


_SENT_AHEAD = 4 * 1024 * 1024
_TAKEN_WITHIN = 60.0
_AT_ONCE = 512 * 1024
_GATHER_SECONDS = 0.01
"""Messages that come within this time and so many bytes go as one: a front end takes longer for a message
than for what is in it, and a hub's first thousand come one by one."""

Said = Callable[[Sequence[Mapping[str, Any]], Sequence[bytes]], object]
"""Takes what to tell a page, in order: ``open``, ``text``, ``closed`` with WebSocket's code, or nothing for
the next of the frames' bytes."""


class PassedLink:
    """A hub's WebSocket whose other end is a page that a kernel's messages reach: it is passed on unchanged.

    The page checks what comes, comes back by itself, and says how much it took; no more than 4 MiB are sent
    ahead of that, and what waits at the hub is thinned there. ``said`` is called from a thread of this
    object.
    """

    def __init__(self, target: LinkTarget, said: Said) -> None:
        self._target = target
        self._said = said
        self._ahead = 0
        self._changed = threading.Condition()
        self._closing = False
        self._connection: ClientConnection | None = None
        self._thread = threading.Thread(target=self._run, name="megalens-passed-link", daemon=True)
        self._thread.start()

    def send(self, text: str) -> None:
        """Pass on a page's message; without a connection it is lost, and the page hears of the end."""
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(ConnectionClosed, OSError):
                connection.send(text)

    def took(self, count: int) -> None:
        """Note how many more bytes the page took."""
        with self._changed:
            self._ahead = max(0, self._ahead - count)
            self._changed.notify_all()

    def close(self) -> None:
        """End it. Safe twice, and does not wait for its thread."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    def _run(self) -> None:
        code = 1006
        try:
            target = self._target()
            code = 4404 if target is None else self._pass(*target[:2])
        except (InvalidHandshake, InvalidMessage, InvalidURI, OSError, ValueError) as error:
            # The page cannot know that a token is refused: it would try for ever.
            status = error.response.status_code if isinstance(error, InvalidStatus) else 0
            code = 4403 if status in (401, 403) else 1006
        finally:
            if not self._closing:
                self._said([{"closed": code}], [])

    def _pass(self, address: str, token: str) -> int:
        with _open(address, token) as connection:
            self._connection = connection
            self._said([{"open": True}], [])
            with contextlib.suppress(ConnectionClosed):
                for message in _received(connection):
                    if self._closing:
                        break
                    if message is None:
                        continue
                    messages = [message, *_soon(connection, _AT_ONCE - len(message))]
                    if not self._has_room(sum(map(len, messages))):
                        return 1001
                    self._said(
                        [{"text": each} if isinstance(each, str) else {} for each in messages],
                        [each for each in messages if isinstance(each, bytes)],
                    )
        return connection.close_code or 1006

    def _has_room(self, count: int) -> bool:
        """Wait until the page took enough; False where it is gone, or its kernel works on something else."""
        with self._changed:
            free = self._changed.wait_for(
                lambda: self._closing or self._ahead < _SENT_AHEAD, timeout=_TAKEN_WITHIN
            )
            self._ahead += count
            return free and not self._closing


def _explain(address: str, error: Exception) -> tuple[Exception, bool]:
    """Return what to say of a try that failed, and whether another one would fail too."""
    refused = error.response.status_code if isinstance(error, InvalidStatus) else None
    words, code, field = f"Nothing answers at {address}.", "disconnected", None
    if refused in (401, 403):
        words = f"The hub at {address} refused the token. Copy it anew from the hub's runtime file."
        code, field = "unauthorized", "token"
    elif refused is not None:
        words = f"{address} answered HTTP {refused}: is it a Megalens hub?"
    elif isinstance(error, (InvalidURI, ValueError)) and not isinstance(error, InvalidHandshake):
        words = f"{address!r:.200} is no address. Write ws://host:port."
        code, field = "bad-parameter", "name_or_id_or_address"
    elif isinstance(error, InvalidHandshake):
        words = f"{address} does not speak WebSocket: is it a Megalens hub?"
    return ClientError(words, code=code, field=field), field is not None
