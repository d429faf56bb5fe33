"""Serving a run of ours that writes text to clients of an inference hub: one viewer of our hub on one side, a port on the other."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from ..hub.discovery import HubEntry
from ..protocol import MegalensError, ProtocolError, compressor_from_setting, decode_frame
from ..protocol.errors import must_be
from ..protocol.messages_generated import Cancel, Configure, FlagInfo, FlagSetting, Generate, Message, Phase
from .client_generate import ClientGeneration, read_generate
from .client_turn import ClientTurn, error_text
from .errors import DialectError
from .gateway_client import GatewayClient
from .hub_viewer import HubViewer
from .local_server import LOOPBACK, open_server
from .peer_message import read_message

__all__ = ["InferenceGateway"]

_MOST_CLIENTS = 16
_MOST_WAITING = 4
_PHASES: list[Phase] = ["generate"]
_TRAIN: list[Phase] = ["train"]


class InferenceGateway:
    """Serves one hub's run in MegatronApp's dialect of inference. Whoever runs it allows what is on this machine to generate, to switch flags on and to perturb.

    Generations are done one at a time, as there; what is asked meanwhile waits. A client that goes takes its generations with it.

    Parameters
    ----------
    entry : HubEntry
        The hub.
    port : int
        Port; 0 takes any free one.
    host : str
        Address or name under which clients find this machine.
    queue_bytes : int
        Bound of what waits for one client; beyond it the oldest updates are given up.
    """

    def __init__(
        self, entry: HubEntry, port: int, *, host: str = LOOPBACK, queue_bytes: int = 64 << 20
    ) -> None:
        self._entry = entry
        self._port, self._host = port, host
        self._queue_bytes = queue_bytes
        self._hub: HubViewer | None = None
        self._clients: set[GatewayClient] = set()
        self._given_up = 0
        self._numbers = itertools.count(1)
        self._answers: dict[str, asyncio.Future[Message]] = {}
        self._turn = asyncio.Lock()
        self._now: ClientTurn | None = None
        self._cancelling: set[asyncio.Task[None]] = set()

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
        async with HubViewer(self._entry, "inference client") as hub:
            self._hub = hub
            async with await open_server(self._serve, self._port, self._host) as server:
                ready(next(iter(server.sockets)).getsockname()[1])
                await self._follow(hub)

    # -- the hub's side --------------------------------------------------------------------------------------------

    async def _follow(self, hub: HubViewer) -> None:
        while (said := await hub.read()) is not None:
            if isinstance(said, bytes):
                if self._now is not None:
                    self._now.offer(decode_frame(said))
                continue
            key = said.get("reply_to") if said["type"] == "error" else said.get("id")
            answer = self._answers.pop(key, None) if isinstance(key, str) else None
            if answer is not None and not answer.done():
                answer.set_result(said)

    async def _ask(self, message: Configure | Generate) -> Message:
        """Return the hub's answer.

        Raises
        ------
        DialectError
            ``refused``, with what our hub says.
        """
        assert self._hub is not None
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[message["id"]] = answer
        await self._hub.say(message)
        said = await asyncio.shield(answer)
        if said["type"] == "error":
            raise DialectError("refused", said["message"])
        return said

    def _id(self) -> str:
        return f"inference-{next(self._numbers)}"

    # -- the clients' side -----------------------------------------------------------------------------------------

    async def _serve(self, connection: ServerConnection) -> None:
        if len(self._clients) >= _MOST_CLIENTS:
            await connection.close(1013, "too many clients")
            return
        client = GatewayClient(connection, self._queue_bytes)
        requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue(_MOST_WAITING)
        self._clients.add(client)
        tasks = [
            asyncio.create_task(client.send_queue()),
            asyncio.create_task(self._work(client, requests)),
        ]
        try:
            async for data in connection:
                self._take(client, requests, data)
        except ConnectionClosed:
            pass
        finally:
            self._clients.discard(client)
            self._given_up += client.dropped
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _take(
        self, client: GatewayClient, requests: asyncio.Queue[dict[str, Any]], data: str | bytes
    ) -> None:
        try:
            message = read_message(data if isinstance(data, str) else data.decode("utf-8"))
        except ValueError:
            client.put(error_text("Expected a JSON object with a type."))
            return
        if message["type"] == "ping":
            client.put('{"type": "pong"}')
        elif message["type"] != "generate":
            client.put(error_text(f"The type must be generate or ping, got {message['type']!r:.100}."))
        elif requests.full():
            client.put(
                error_text(f"{_MOST_WAITING} generations wait already. Ask again when some have ended.")
            )
        else:
            requests.put_nowait(message)

    async def _work(self, client: GatewayClient, requests: asyncio.Queue[dict[str, Any]]) -> None:
        while True:
            message = await requests.get()
            try:
                asked = read_generate(message)
                async with self._turn:
                    await self._generate(client, asked)
            except ProtocolError as error:
                client.put(
                    error_text(f"{error.message} (at {error.field})" if error.field else error.message)
                )
            except MegalensError as error:
                client.put(error_text(str(error)))

    async def _generate(self, client: GatewayClient, asked: ClientGeneration) -> None:
        assert self._hub is not None
        model = self._hub.hello["model"]
        if model is None:
            raise DialectError(
                "refused", "No process that could write text is attached. Try again when one is."
            )
        known = {info["name"]: info for info in self._hub.hello["flags"]}
        patch: dict[str, FlagSetting | None] = {}
        for flag in list(asked.tiles):
            info = known.get(flag)
            if info is None or not info["layers"]:
                why = info.get("reason", "") if info is not None else ""
                client.put(error_text(f"{flag} cannot be traced. {why or 'The model has no such point.'}"))
                del asked.tiles[flag]
                continue
            setting = self._setting(asked, info)
            if setting is not None:
                patch[flag] = setting
        turn = ClientTurn(
            asked,
            model["layers"],
            parts={flag: known[flag]["parts"] for flag in asked.tiles},
            traced={flag: known[flag]["layers"] for flag in asked.tiles},
            put=client.put,
        )
        if patch:
            await self._ask({"type": "configure", "id": self._id(), "patch": {"flags": patch}})
        # Rows may come before the answer does.
        self._now = turn
        asking = asyncio.create_task(
            self._ask({"type": "generate", "id": self._id(), "request": asked.request})
        )
        ended = False
        try:
            answer = await asyncio.shield(asking)
            assert answer["type"] == "generating"
            await turn.run(answer["generation"])
            ended = True
        finally:
            self._now = None
            if not ended:
                asking.add_done_callback(self._cancel)

    def _setting(self, asked: ClientGeneration, info: FlagInfo) -> FlagSetting | None:
        """Return how a flag is to be traced, or None where it is already."""
        assert self._hub is not None
        flag, parts = info["name"], len(info["parts"])
        if 0 < asked.tiles[flag] < parts:
            # Such as the gate of an MLP, and what it gates.
            raise must_be(f"The pixels of {flag}", f"{parts} or more", asked.tiles[flag], "compressor_config")
        wanted = asked.compressor(flag, parts)
        now = self._hub.hello["config"]["flags"].get(flag)
        if now is None:
            return {"phases": _PHASES, "samples": None, "compressor": wanted}
        phases = now.get("phases") or _TRAIN
        whole = now.get("layers", "all") == "all" and now.get("every", 1) == 1
        whole = whole and now.get("samples", 1) is None and "generate" in phases
        if whole and compressor_from_setting(now["compressor"]) == compressor_from_setting(wanted):
            return None
        # What others trace in a training goes on to be traced.
        setting: FlagSetting = {**now, "layers": "all", "every": 1, "samples": None, "compressor": wanted}
        if "generate" not in phases:
            setting["phases"] = [*phases, *_PHASES]
        return setting

    def _cancel(self, asking: asyncio.Task[Message]) -> None:
        """End what a client asked for that is gone."""
        if asking.cancelled() or asking.exception() is not None:
            return
        answer = asking.result()
        assert answer["type"] == "generating"
        for number in {answer.get("control", 0), answer["generation"]} - {0}:
            task = asyncio.create_task(self._say_cancel(number))
            self._cancelling.add(task)
            task.add_done_callback(self._cancelling.discard)

    async def _say_cancel(self, number: int) -> None:
        assert self._hub is not None
        cancel: Cancel = {"type": "cancel", "id": self._id(), "generation": number}
        await self._hub.say(cancel)
