"""The relay: a browser's WebSocket joined to a hub's, one to one."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from jupyter_server.auth.decorator import authorized, ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from ..hub.connections import DirectConnect, MinuteLog
from ..protocol import MAX_HUB_BYTES, MESSAGE_TYPES, HubReader, ProtocolError, encode_message
from ..protocol.connection import hub_options
from ..protocol.messages_generated import Message
from .errors import ServerError
from .hub_target import HubTarget
from .registry import RunRegistry

# The hub's own limit is smaller and answered with a typed error; this one guards this server's memory.
_MAX_BROWSER_BYTES = 4 * 1024 * 1024
_REASON_BYTES = 123
_BROKEN = 4410
# The library's close codes of broken framing: bad frames, bad UTF-8, too many small ones, too large.
_HUB_BROKE = {1002: "frames", 1007: "text", 1008: "frames", 1009: "size"}
_PASSED_ON = {1000, 1001, 1009, *range(4400, 4500)}

_OPEN_SECONDS = 10


async def open_hub(address: str, token: str, subprotocols: Sequence[str]) -> ClientConnection:
    """Connect to a hub, offering the browser's subprotocols.

    Raises ``ServerError`` 502, code ``unreachable`` or ``unauthorized``.
    """
    try:
        return await DirectConnect(
            address,
            max_size=MAX_HUB_BYTES,
            # What waits here is memory of this server; the hub's own queue coalesces and is the one to fill.
            max_queue=2,
            # A browser that is slow must not look dead to the hub.
            ping_interval=20,
            ping_timeout=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=2,
            **hub_options(token, *subprotocols),
        )
    except InvalidStatus as error:
        if error.response.status_code in (401, 403):
            raise ServerError(
                502, "unauthorized", "The hub refused the token. Copy it anew.", "token"
            ) from error
        raise _unreachable() from error
    except (InvalidHandshake, OSError, asyncio.TimeoutError, ValueError, EOFError) as error:
        raise _unreachable() from error


def _unreachable() -> ServerError:
    return ServerError(
        502, "unreachable", "The hub could not be reached. Check that the run is still there.", "address"
    )


class RelayHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """``megalens/ws/runs/{id}``: every valid message and frame, unchanged, both ways."""

    auth_resource = "megalens"
    _hub: ClientConnection | None = None
    _pump: asyncio.Task[None] | None = None
    _target: HubTarget

    @property
    def max_message_size(self) -> int:
        return _MAX_BROWSER_BYTES

    @property
    def registry(self) -> RunRegistry:
        registry: RunRegistry = self.settings["megalens_registry"]
        return registry

    @property
    def broken(self) -> MinuteLog:
        """Counts the protocol violations of hubs."""
        log: MinuteLog = self.settings["megalens_broken"]
        return log

    @ws_authenticated
    @authorized(action="execute")  # type: ignore[untyped-decorator]
    async def get(self, *arguments: Any, **named: Any) -> None:  # type: ignore[override]
        # The library passes the path's parts to open() by itself.
        await super().get(*arguments, **named)

    def select_subprotocol(self, subprotocols: list[str]) -> str | None:
        """Accept any version of ours: the hub refuses unknown ones so that a browser can read it."""
        return next((name for name in subprotocols if name.startswith("megalens.")), None)

    async def open(self, run_id: str) -> None:
        """Connect to the hub. Nothing is read from the browser until that is done."""
        super().open(run_id)
        self.set_nodelay(True)
        self._run_id = run_id
        relays: set[RelayHandler] = self.settings["megalens_relays"]
        relays.add(self)
        executor: Executor = self.settings["megalens_executor"]
        loop = asyncio.get_running_loop()
        target = await loop.run_in_executor(executor, self.registry.hub, run_id)
        if target is None:
            self._close(4404, "not-found", "No such run is live. Ask for the list of runs.")
            return
        self._target = target
        offered = [self.selected_subprotocol] if self.selected_subprotocol else []
        try:
            self._hub = await open_hub(target.address, target.token, offered)
        except ServerError as error:
            gone = await loop.run_in_executor(executor, self._gone)
            self._close(4404 if gone else 4502, "not-found" if gone else error.code, error.message)
            return
        self._pump = asyncio.create_task(self._pump_to_browser(self._hub))
        if self.close_code is not None or self.ws_connection is None:
            # The browser left meanwhile, so that nothing else will end this.
            self._pump.cancel()

    async def on_message(self, message: str | bytes) -> None:
        """Pass on a browser's message; the next one is read when the hub has taken it."""
        if self._hub is not None:
            with contextlib.suppress(ConnectionClosed):
                await self._hub.send(self._target.to_hub(message))

    def on_close(self) -> None:
        """Disconnect from the hub."""
        relays: set[RelayHandler] = self.settings["megalens_relays"]
        relays.discard(self)
        pinging: Any = self.ping_callback
        if pinging is not None:
            pinging.stop()
        if self._pump is not None:
            self._pump.cancel()

    async def shut_down(self) -> None:
        """End the relay because the server ends."""
        self._close(1001, "shutdown", "The Jupyter server shuts down.")
        if self._pump is not None:
            self._pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._pump

    async def _pump_to_browser(self, hub: ClientConnection) -> None:
        reader = HubReader(self._target.run)
        try:
            while True:
                data = await hub.recv()
                passed = self._checked(reader, data)
                if passed is not None:
                    # Waiting here is the back-pressure: while the browser is slow the hub's queue coalesces.
                    await self.write_message(passed, binary=isinstance(passed, bytes))
        except ConnectionClosed as end:
            await self._hub_ended(end)
        except WebSocketClosedError:
            pass
        except ProtocolError as error:
            self._hub_broke(error)
        except Exception as error:
            self.log.exception("Megalens: the relay met an error of its own")
            self._close(4502, "internal", f"The relay met an error of its own: {type(error).__name__}.")
        finally:
            await hub.close()

    def _checked(self, reader: HubReader, data: str | bytes) -> str | bytes | None:
        """Return a hub's message for the browser, or nothing for an unknown type."""
        if isinstance(data, bytes):
            reader.frame(data)
            return data
        try:
            message = reader.message(data)
        except ProtocolError as error:
            if error.field == "type" and error.expected == ", ".join(MESSAGE_TYPES):
                # A later version may have more of them.
                self.broken.count(f"messages of unknown types from the hub of the run {self._run_id}")
                return None
            raise
        self._notice(message)
        renamed = self._target.from_hub(message)
        return data if renamed is message else encode_message(renamed)

    def _hub_broke(self, error: ProtocolError) -> None:
        """Report a hub's protocol violation to the browser and the log."""
        self.broken.count(
            f"connections ended because the hub of the run {self._run_id} broke the protocol ({error.code})"
        )
        if error.code == "version-mismatch":
            self._close(4406, error.code, error.message)
        elif error.code == "refused":
            self._close(4404, "not-found", error.message)
        else:
            self._close(_BROKEN, error.code, f"The hub broke the protocol: {error.message}")

    async def _hub_ended(self, end: ConnectionClosed) -> None:
        sent = end.sent.code if end.sent is not None else None
        if sent in _HUB_BROKE and not end.rcvd_then_sent:
            self._hub_broke(
                ProtocolError(
                    "too-large" if sent == 1009 else "bad-message",
                    f"bad {_HUB_BROKE[sent]} on its WebSocket.",
                )
            )
            return
        code = end.rcvd.code if end.rcvd is not None else 1006
        if code in _PASSED_ON:
            reason = end.rcvd.reason if end.rcvd is not None else ""
            self._close(code, "closed", reason or "The hub ended the connection.")
            return
        executor: Executor = self.settings["megalens_executor"]
        if await asyncio.get_running_loop().run_in_executor(executor, self._gone):
            self._close(4404, "not-found", "The hub of this run is gone.")
        else:
            self._close(4502, "unreachable", "The connection to the hub broke. Try again.")

    def _gone(self) -> bool:
        """Whether the hub has ended. A remote hub is known only by its answers."""
        return self.registry.hub(self._run_id) is None

    def _notice(self, message: Message) -> None:
        """Note the name and the step for the list of runs."""
        if message["type"] == "hello":
            self.registry.saw(self._run_id, name=message["run"]["name"])
        elif message["type"] == "status":
            self.registry.saw(self._run_id, step=message["step"], state=message["state"])

    def _close(self, code: int, name: str, message: str) -> None:
        reason = json.dumps({"code": name, "message": message}, ensure_ascii=False)
        while len(reason.encode()) > _REASON_BYTES:
            message = message[:-4] + "…" if len(message) > 4 else ""
            reason = json.dumps({"code": name, "message": message}, ensure_ascii=False)
        self.close(code, reason)
