"""Serving a run of ours to clients that speak the 3606 dialect: one viewer of the hub on one side, a port on loopback on the other."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from ..hub.discovery import HubEntry
from ..protocol import ProtocolError, compressor_from_setting, decode_frame
from ..protocol.messages_generated import FlagSetting
from .client_request import read_request
from .gateway_client import GatewayClient
from .hub_viewer import HubViewer
from .local_server import open_server
from .peer_message import read_message
from .update_writer import updates

__all__ = ["Gateway"]

_MOST_CLIENTS = 16


class Gateway:
    """Serves one hub's run in the 3606 dialect. Whoever runs it allows what is on this machine to see the run and to switch flags on.

    Parameters
    ----------
    entry : HubEntry
        The hub.
    port : int
        Port on loopback; 0 takes any free one.
    queue_bytes : int
        Bound of what waits for one client; beyond it the oldest updates are given up.
    """

    def __init__(self, entry: HubEntry, port: int, *, queue_bytes: int = 32 << 20) -> None:
        self._entry = entry
        self._port = port
        self._queue_bytes = queue_bytes
        self._hub: HubViewer | None = None
        self._shape: list[int] | None = None
        self._clients: set[GatewayClient] = set()
        self._asked: dict[str, GatewayClient] = {}
        self._count = 0
        self._given_up = 0

    @property
    def dropped(self) -> int:
        """Updates that slow clients were not sent."""
        return self._given_up + sum(client.dropped for client in self._clients)

    async def run(self, ready: Callable[[int], None]) -> None:
        """Serve until the hub ends. ``ready`` is told the port.

        Raises
        ------
        DialectError
            ``bad-parameter`` when the port is in use, ``unreachable`` when the hub is.
        """
        async with HubViewer(self._entry, "3606 client") as hub:
            self._hub = hub
            # Several clients share a port by what they say first.
            async with await open_server(self._serve, self._port) as server:
                ready(next(iter(server.sockets)).getsockname()[1])
                await self._follow(hub)

    # -- the hub's side --------------------------------------------------------------------------------------------

    async def _follow(self, hub: HubViewer) -> None:
        while (said := await hub.read()) is not None:
            if isinstance(said, bytes):
                frame = decode_frame(said)
                if frame.stream == "tensors":
                    await self._pass_on(frame.table(), bool(frame.bits & 1))
            elif said["type"] == "error":
                client = self._asked.pop(said.get("reply_to", ""), None)
                if client is not None:
                    client.put(json.dumps({"type": "error", "message": said["message"]}))

    async def _pass_on(self, table: Any, caught_up: bool) -> None:
        for update in updates(table):
            if update.flag != "InputTokens" or self._shape is None:
                self._shape = update.source_shape
            if caught_up:
                continue
            for client in list(self._clients):
                if client.flags is not None and update.flag in client.flags:
                    client.start(self._start)
                    client.put(update.text)
        # A frame with many tensors leaves room for the clients to be sent something.
        await asyncio.sleep(0)

    def _start(self) -> str | None:
        """Return the ``start`` message, once a tensor has shown the sizes."""
        model = None if self._hub is None else self._hub.hello["model"]
        if self._shape is None or model is None:
            return None
        batch, positions = [*self._shape, 1, 1][:2]
        return json.dumps(
            {
                "type": "start",
                "micro_batch_size": batch,
                "seq_length": positions,
                "num_layers": model["layers"],
            }
        )

    # -- the clients' side -----------------------------------------------------------------------------------------

    async def _serve(self, connection: ServerConnection) -> None:
        if len(self._clients) >= _MOST_CLIENTS:
            await connection.close(1013, "too many clients")
            return
        client = GatewayClient(connection, self._queue_bytes)
        self._clients.add(client)
        sender = asyncio.create_task(client.send_queue())
        try:
            async for data in connection:
                await self._take(client, data)
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)
            self._given_up += client.dropped
            self._asked = {key: other for key, other in self._asked.items() if other is not client}
            sender.cancel()
            await asyncio.wait([sender])

    async def _take(self, client: GatewayClient, data: str | bytes) -> None:
        try:
            message = read_message(data if isinstance(data, str) else data.decode("utf-8"))
        except ValueError:
            client.put(json.dumps({"type": "error", "message": "Expected a JSON object with a type."}))
            return
        kind = message["type"]
        if kind == "ping":
            client.put('{"type": "pong"}')
        elif kind == "run_training_step":
            try:
                asked = read_request(message)
                await self._configure(client, asked)
            except ProtocolError as error:
                text = f"{error.message} (at {error.field})" if error.field else error.message
                client.put(json.dumps({"type": "error", "message": text}))
                return
            # Token ids are always on in the dialect.
            client.flags = {*asked, "InputTokens"}
            client.start(self._start)

    async def _configure(self, client: GatewayClient, asked: dict[str, FlagSetting]) -> None:
        """Switch on what is off or differs; what others have on and this client did not name stays."""
        assert self._hub is not None
        known = {info["name"]: info for info in self._hub.hello["flags"]}
        now = self._hub.hello["config"]["flags"]
        patch: dict[str, FlagSetting | None] = {}
        for name, setting in asked.items():
            compressor = compressor_from_setting(setting["compressor"], f"compressor_config.{name}")
            if name not in known or not known[name]["layers"]:
                reason = known[name].get("reason") if name in known else None
                reason = reason or "The model has no such point."
                client.put(json.dumps({"type": "error", "message": f"{name} cannot be traced. {reason}"}))
                continue
            if name in now and compressor_from_setting(now[name]["compressor"]) == compressor:
                continue
            # Samples stay as they are where the flag is on.
            patch[name] = {**now[name], **setting} if name in now else setting
        if patch:
            self._count += 1
            change = f"3606-{self._count}"
            self._asked[change] = client
            await self._hub.say({"type": "configure", "id": change, "patch": {"flags": patch}})
