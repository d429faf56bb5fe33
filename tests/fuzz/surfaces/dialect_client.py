"""What a client of ``megalens serve-3606`` sends, and what it and our hub are sent then."""

import asyncio
import json
from random import Random
from typing import Any

from websockets.exceptions import ConnectionClosed

from megalens.hub.dialects.gateway import Gateway
from megalens.hub.dialects.hub_gateway import GatewayClient
from megalens.hub.discovery import HubEntry
from megalens.protocol import decode_message, encode_message
from tests.fuzz.mutate import FIXTURES, json_text, mutated_tree
from tests.fuzz.surface import Surface

_WORDS = (
    "visualization_flags",
    "compressor_config",
    "compressor_type",
    "compressor_configs",
    "tiles",
    "method",
    "vector_path",
    "HiddenStates",
    "MLP1_mat_mul",
)


def _seeds() -> list[Any]:
    names = ("QKV_mat_mul", "MLP1_mat_mul", "HiddenStates", "InputTokens")
    ways = (
        {
            "compressor_type": "TileCompressor",
            "compressor_configs": {
                "tiles": 8,
                "method": "data.mean(dim=-1)",
                "tiles_one_rank": 8,
                "method_one_rank": "data.mean(dim=-1)",
            },
        },
        {"compressor_type": "ProjectionCompressor", "compressor_configs": {"vector_path": "vectors.pt"}},
        {"compressor_type": "NoOpCompressor", "compressor_configs": {}},
        {"compressor_type": "EmptyCompressor"},
    )
    return [
        {"type": "ping"},
        *(
            {
                "type": "run_training_step",
                "visualization_flags": dict.fromkeys(names, True),
                "compressor_config": dict.fromkeys(names, way),
            }
            for way in ways
        ),
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    return [
        json_text(chance, mutated_tree(chance, seed, _WORDS))
        if chance.random() < 0.9
        else chance.randbytes(8)
        for _ in range(chance.choice((1, 2)))
    ]


class _Hub:
    """The gateway's connection to our hub."""

    hello = json.loads((FIXTURES / "messages" / "hello.json").read_text("utf-8"))

    async def say(self, message: Any) -> None:
        decode_message(encode_message(message).encode("utf-8"), ("configure",))


def _run(messages: Any) -> None:
    asyncio.run(_serve(messages))


async def _serve(messages: Any) -> None:
    gateway = Gateway(
        HubEntry(id="x", name="x", pid=1, host="127.0.0.1", port=1, token="t", started=0.0, record=None), 0
    )
    gateway._hub = _Hub()
    client = GatewayClient(None, 1 << 20)
    for data in messages:
        await gateway._received(client, data)
    for text in client._queue:
        assert len(text) < 10_000
        json.loads(text.encode("utf-8"))


SURFACE = Surface(_seeds, _mutate, _run, (ConnectionClosed,))
