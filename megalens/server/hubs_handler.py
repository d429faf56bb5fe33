"""Connecting to a hub elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado.web import authenticated
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from ..protocol import SUBPROTOCOL, HubReader, ProtocolError, encode_message
from ..protocol.messages_generated import Hello, Join
from .base_handler import MegalensHandler
from .errors import ServerError, require
from .hub_target import HubTarget
from .relay import open_hub
from .translations import DIALECTS, Translations

_HELLO_SECONDS = 10
_REACH_SECONDS = 5
_MOST_CONFIG = 64 * 1024
_MOST_PROMPTS = 8
_MOST_PROMPT = 4000


class HubsHandler(MegalensHandler):
    """``megalens/api/hubs``."""

    @property
    def translations(self) -> Translations:
        """The running translations of foreign hubs."""
        translations: Translations = self.settings["megalens_translations"]
        return translations

    @authenticated
    @authorized
    async def post(self) -> None:
        """Connect to a hub that the administrator's allow-list names, and answer its entry."""
        body = self.json_body()
        require(
            set(body) <= {"address", "token", "dialect", "config", "prompts", "tokens"},
            "The body must be {address, token}, or {address, dialect, config?, prompts?, tokens?} for a "
            "foreign hub.",
        )
        dialect = body.get("dialect", "megalens")
        if dialect != "megalens":
            self.answer(await self._follow(dialect, body))
            return
        token: Any = body.get("token")
        fits = isinstance(token, str) and 1 <= len(token) <= 1000 and token.isascii() and token.isprintable()
        require(fits, "A token must be text of 1 to 1000 printable characters.", "token")
        address = self.registry.allowed.check(body.get("address"))
        hello = await _greet(address, token)
        run = hello["run"]
        target = HubTarget(run["id"], run["id"], run["name"], address, run["started"], token)
        self.answer(await self.in_thread(self.registry.connect, target))

    @authenticated
    @authorized
    async def delete(self) -> None:
        """Stop following a foreign hub, named by its run."""
        run_id = self.get_query_argument("run", "")
        if not await self.in_thread(self.translations.stop, run_id):
            raise ServerError(404, "not-found", "This server follows no foreign hub under that run.", "run")
        self.set_status(204)
        self.finish()

    async def _follow(self, dialect: Any, body: dict[str, Any]) -> dict[str, Any]:
        require(dialect in DIALECTS, f"A dialect is one of megalens, {', '.join(DIALECTS)}.", "dialect")
        config, prompts, tokens = body.get("config"), body.get("prompts", []), body.get("tokens", 10)
        fits = config is None or (isinstance(config, dict) and len(json.dumps(config)) <= _MOST_CONFIG)
        require(fits, "A config must be the Config of messages.", "config")
        fits = isinstance(prompts, list) and len(prompts) <= _MOST_PROMPTS
        fits = fits and all(isinstance(prompt, str) and len(prompt) <= _MOST_PROMPT for prompt in prompts)
        require(fits, f"Prompts must be at most {_MOST_PROMPTS} short texts.", "prompts")
        fits = isinstance(tokens, int) and not isinstance(tokens, bool) and 1 <= tokens <= 100_000
        require(fits, "tokens must be a whole number from 1.", "tokens")
        fits = dialect != "inference" or bool(prompts)
        require(fits, "An inference hub sends nothing unless it is given prompts.", "prompts")
        address = self.registry.allowed.check(body.get("address"))
        await _reach(address)
        run_id = await self.in_thread(self.translations.start, address, dialect, config, prompts, tokens)
        return await self.in_thread(self.registry.entry, run_id)


async def _reach(address: str) -> None:
    """Check that the address accepts connections: the process that follows cannot report a silent one."""
    host, _, port = address.removeprefix("ws://").rpartition(":")
    try:
        opening = asyncio.open_connection(host.strip("[]"), int(port))
        _, writer = await asyncio.wait_for(opening, _REACH_SECONDS)
    except (OSError, asyncio.TimeoutError) as error:
        raise ServerError(
            502, "unreachable", "Nobody listens at this address. Check that the training runs.", "address"
        ) from error
    writer.close()


async def _greet(address: str, token: str) -> Hello:
    """Join a hub for a moment and return its hello."""
    connection = await open_hub(address, token, [SUBPROTOCOL])
    join: Join = {
        "type": "join",
        "protocol": SUBPROTOCOL,
        "role": "viewer",
        "peer": {"name": "jupyter-server", "version": "1"},
        "backlog": 0,
    }
    deadline = time.monotonic() + _HELLO_SECONDS
    reader = HubReader()
    try:
        await connection.send(encode_message(join))
        while True:
            data = await asyncio.wait_for(connection.recv(), deadline - time.monotonic())
            if isinstance(data, str):
                message = reader.message(data)
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
    """Send the shutdown message and read what is under way, so that the close is not stuck behind it."""
    with contextlib.suppress(ConnectionClosed, asyncio.TimeoutError):
        await connection.send(encode_message({"type": "goodbye", "reason": "leaving"}))
        while True:
            await asyncio.wait_for(connection.recv(), 1)
