"""A producer and a viewer that talk to one hub: messages in any order, frames among them, and what everybody is told of it."""

import asyncio
import json
import sys
from random import Random
from typing import Any

from websockets.exceptions import ConnectionClosedOK

from megalens.hub.batch_connection import BatchConnection
from megalens.hub.options import HubOptions
from megalens.hub.server import Hub
from megalens.protocol import SUBPROTOCOL, decode_frame, decode_message
from megalens.protocol.contract import contract_json
from tests.fuzz.mutate import FIXTURES, json_text, mutated_bytes, mutated_tree, schema_words
from tests.fuzz.surface import Surface

_WORDS = schema_words(contract_json("messages.schema.json"))
_PEER = {"name": "fuzz", "version": "1"}
_SAYS = {
    "producer": ("announce", "status", "configured", "error", "goodbye"),
    "viewer": ("configure", "goodbye"),
}


def _golden(kind: str) -> list[Any]:
    files = sorted((FIXTURES / "messages").glob(f"{kind}*.json"))
    return [json.loads(path.read_text("utf-8")) for path in files]


def _seeds() -> list[Any]:
    frames = [path.read_bytes() for path in sorted((FIXTURES / "frames").glob("*.frame"))]
    return [{"said": {kind: _golden(kind) for kinds in _SAYS.values() for kind in kinds}, "frames": frames}]


def _mutate(chance: Random, seed: Any) -> Any:
    talk = {}
    for role in _SAYS:
        join = {"type": "join", "protocol": SUBPROTOCOL, "role": role, "peer": _PEER}
        said: list[Any] = [json.dumps(mutated_tree(chance, join, _WORDS) if chance.random() < 0.05 else join)]
        first = "announce" if role == "producer" and chance.random() < 0.9 else None
        for number in range(chance.randrange(1, 8)):
            if role == "producer" and number and chance.random() < 0.4:
                frame = chance.choice(seed["frames"])
                said.append(mutated_bytes(chance, frame) if chance.random() < 0.3 else frame)
                continue
            kind = first if number == 0 and first else chance.choice(_SAYS[role])
            message = chance.choice(seed["said"][kind] or seed["said"]["announce"])
            wrong = chance.random() < 0.5
            said.append(
                json_text(chance, mutated_tree(chance, message, _WORDS)) if wrong else json.dumps(message)
            )
        talk[role] = said
    return talk


class _Connection(BatchConnection):
    """A connection whose other side says what it has to say, and hears."""

    def __init__(self, says: list[Any]) -> None:
        self._says = says
        self._closed = False
        self.take_frame = None
        self.heard: list[Any] = []

    subprotocol = SUBPROTOCOL

    def let_in(self) -> None:
        """There is nothing half open."""

    def message_done(self) -> None:
        """Nothing waits."""

    async def recv(self) -> Any:
        # The other one has its turn.
        for _ in range(3):
            await asyncio.sleep(0)
        if self._closed or not self._says:
            raise ConnectionClosedOK(None, None)
        return self._says.pop(0)

    async def send(self, data: Any) -> None:
        self.heard.append(data)

    def send_now(self, text: str, most: int) -> bool:
        self.heard.append(text)
        return True

    async def send_batch(self, messages: Any) -> None:
        self.heard.extend(each if isinstance(each, str) else each.data for each in messages)

    takes_now = False

    async def close(self, code: int = 1000, reason: str = "") -> None:
        assert len(reason.encode("utf-8")) <= 123
        self._closed = True


class _Hub(Hub):
    """A hub without a port, which keeps the error that a session met."""

    met: BaseException | None = None

    def __init__(self, options: HubOptions) -> None:
        super().__init__(options)
        self.clients.warn = self._warn

    def _warn(self, text: str) -> None:
        if "error of its own" in text:
            self.met = sys.exc_info()[1]
        self.state.warn(text)


def _run(talk: Any) -> None:
    asyncio.run(_talk(talk))


async def _talk(talk: Any) -> None:
    hub = _Hub(HubOptions())
    connections = {role: _Connection(list(says)) for role, says in talk.items()}
    await asyncio.gather(*(hub.clients.serve(connection) for connection in connections.values()))
    hub.clients.broadcaster.tick(changed=True)
    if hub.met is not None:
        raise hub.met
    decode_message(hub.clients.short_hello())
    json.dumps(hub.state.description(), allow_nan=False, ensure_ascii=False).encode("utf-8")
    for connection in connections.values():
        for data in connection.heard:
            if isinstance(data, str):
                decode_message(data.encode("utf-8"))
            else:
                decode_frame(data, hub.state.streams).table()


SURFACE = Surface(_seeds, _mutate, _run, ())
