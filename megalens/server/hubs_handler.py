"""Connecting to a hub elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ..protocol import SUBPROTOCOL, ProtocolError, decode_message, encode_message
from .base_handler import MegalensHandler
from .errors import ServerError
from .hub_socket import open_hub
from .registry import HubTarget

__all__ = ["HubsHandler"]

_HELLO_SECONDS = 10


class HubsHandler(MegalensHandler):
    """``megalens/api/hubs``."""

    @authenticated
    @authorized
    async def post(self) -> None:
        """Connect to a hub that the administrator's allow-list names, and answer its entry."""
        body = self.json_body()
        unknown = set(body) - {"address", "token"}
        if unknown:
            raise ServerError(400, "bad-parameter", "The body must be {address, token} and nothing else.")
        token = body.get("token")
        if (
            not isinstance(token, str)
            or not 1 <= len(token) <= 1000
            or not token.isascii()
            or not token.isprintable()
        ):
            raise ServerError(
                400, "bad-parameter", "A token must be text of 1 to 1000 printable characters.", "token"
            )
        address = self.registry.check_address(body.get("address"))
        hello = await _greet(address, token)
        run = hello["run"]
        target = HubTarget(run["id"], run["name"], address, run["started"], token)
        self.answer(await self.in_thread(self.registry.connect, target))


async def _greet(address: str, token: str) -> dict[str, Any]:
    """Join a hub for a moment and return its hello."""
    connection = await open_hub(address, token, [SUBPROTOCOL])
    join = {
        "type": "join",
        "protocol": SUBPROTOCOL,
        "role": "viewer",
        "peer": {"name": "jupyter-server", "version": "1"},
        "backlog": 0,
    }
    deadline = time.monotonic() + _HELLO_SECONDS
    try:
        await connection.send(encode_message(join))
        while True:
            data = await asyncio.wait_for(connection.recv(), max(0.1, deadline - time.monotonic()))
            if isinstance(data, str):
                message = decode_message(data)
                if message["type"] == "hello":
                    await _leave(connection)
                    return message
                if message["type"] == "error":
                    raise ProtocolError.from_message(message)
    except (ConnectionClosed, asyncio.TimeoutError) as error:
        raise ServerError(
            502, "unreachable", "What answers at this address is no Megalens hub.", "address"
        ) from error
    finally:
        await connection.close()


async def _leave(connection: ClientConnection) -> None:
    """Say goodbye and read what was under way, so that the close is not stuck behind it."""
    with contextlib.suppress(ConnectionClosed, asyncio.TimeoutError):
        await connection.send(encode_message({"type": "goodbye", "reason": "leaving"}))
        while True:
            await asyncio.wait_for(connection.recv(), 1)
