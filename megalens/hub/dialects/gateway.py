"""Serving a run of ours to clients that speak the 3606 dialect."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from ...protocol import ProtocolError, compressor_from_setting, decode_frame
from ...protocol.messages_generated import FlagSetting
from ..discovery import HubEntry
from .client_request import read_request
from .gateway_client import GatewayClient, error_text
from .hub_gateway import HubGateway, refusal_text
from .update_writer import updates

__all__ = ["Gateway"]


class Gateway(HubGateway):
    """Serves one hub's run in the 3606 dialect. Whoever runs it allows what is on this machine to see the run and to switch flags on.

    Parameters
    ----------
    entry, port, queue_bytes
        As for :class:`HubGateway`. Only this machine is served: several clients share a port by what they say first.
    """

    peer = "3606 client"

    def __init__(self, entry: HubEntry, port: int, *, queue_bytes: int = 32 << 20) -> None:
        super().__init__(entry, port, queue_bytes=queue_bytes)
        self._shape: list[int] | None = None
        self._asked: dict[str, GatewayClient] = {}
        self._count = 0

    # -- the hub's side --------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while (said := await self._hub.read()) is not None:
            if isinstance(said, bytes):
                frame = decode_frame(said)
                if frame.stream == "tensors":
                    await self._pass_on(frame.table(), bool(frame.bits & 1))
            elif said["type"] == "error":
                client = self._asked.pop(said.get("reply_to", ""), None)
                if client is not None:
                    client.put(error_text(said["message"]))

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
        model = self._hub.hello["model"]
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

    def _forget(self, client: GatewayClient) -> None:
        self._asked = {key: other for key, other in self._asked.items() if other is not client}

    async def _take(self, client: GatewayClient, message: dict[str, Any]) -> None:
        if message["type"] != "run_training_step":
            return
        try:
            asked = read_request(message)
            await self._configure(client, asked)
        except ProtocolError as error:
            client.put(refusal_text(error))
            return
        # Token ids are always on in the dialect.
        client.flags = {*asked, "InputTokens"}
        client.start(self._start)

    async def _configure(self, client: GatewayClient, asked: dict[str, FlagSetting]) -> None:
        """Switch on what is off or differs; what others have on and this client did not name stays."""
        now = self._hub.hello["config"]["flags"]
        patch: dict[str, FlagSetting | None] = {}
        for name, setting in asked.items():
            compressor = compressor_from_setting(setting["compressor"], f"compressor_config.{name}")
            if self._traced(client, name) is None:
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
