"""Small peers written from the reference: they speak as the foreign hubs do, and misbehave when told to."""

import asyncio
import contextlib
import json
import math

import numpy as np
from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

LAYERS, POSITIONS, HEADS = 3, 4, 2


class Peer:
    """A server whose ``script(peer, socket, message)`` is run for every message that comes; ``greet(peer, socket)`` on connection."""

    def __init__(self, script, greet=None, max_queue=16):
        self.script, self.greet = script, greet
        self.received, self.connections = [], 0
        self.changed = asyncio.Condition()

    async def __aenter__(self):
        self.server = await serve(self._serve, "127.0.0.1", 0, ping_interval=None, close_timeout=0.2)
        self.port = self.server.sockets[0].getsockname()[1]
        self.address = f"ws://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        await self.server.wait_closed()

    async def _serve(self, socket):
        self.connections += 1
        with contextlib.suppress(ConnectionClosed):
            if self.greet:
                await self.greet(self, socket)
            async for text in socket:
                message = json.loads(text)
                async with self.changed:
                    self.received.append(message)
                    self.changed.notify_all()
                await self.script(self, socket, message)

    async def asked(self, kind, count=1):
        """Wait until ``count`` messages of a type have come."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def of(self, kind):
        return [message for message in self.received if message["type"] == kind]


async def say(socket, message):
    # Python's JSON writes the bare words NaN and Infinity, as the peers do.
    await socket.send(message if isinstance(message, (str, bytes)) else json.dumps(message))


def start(layers=LAYERS, batch=1, positions=POSITIONS):
    return {"type": "start", "micro_batch_size": batch, "seq_length": positions, "num_layers": layers}


def update(number, layer, args, result):
    return {
        "type": "update",
        "update_type": number,
        "layer_id": layer,
        "args": list(args),
        "result": np.asarray(result).ravel().tolist(),
    }


def values(seed, *shape):
    """float32 numbers that tell a pass, a layer and a flag apart."""
    return np.random.default_rng(abs(hash(seed)) % 2**32).normal(size=shape).astype(np.float32)


def t1_layer(n, layer, batch=1, qkv=6, mlp=4, positions=POSITIONS):
    """What one layer of forward pass ``n`` sends in MegatronApp."""
    for number, pixels in ((1, qkv), (4, mlp), (5, mlp)):
        yield update(number, layer, [positions], values((n, layer, number), batch, positions, pixels))


def t1_pass(n, layers=LAYERS, **options):
    for layer in range(1, layers + 1):
        yield from t1_layer(n, layer, **options)


def tracer_layer(n, layer, numbers=(1, 4, 5), tiles=6, batch=1, positions=POSITIONS):
    """What one layer of forward pass ``n`` sends in pull request 3606."""
    for number in numbers:
        shape = (batch, positions, tiles)
        yield update(number, layer, shape, values((n, layer, number), *shape))


def input_tokens(n, batch=1, positions=POSITIONS):
    ids = np.arange(batch * positions).reshape(batch, positions) + 10 * n
    return update(
        8, 0, (2, batch, positions), np.stack([ids, np.tile(np.arange(positions), (batch, 1))]).astype(float)
    )


def nonfinite(message):
    message["result"][:3] = [math.nan, math.inf, -math.inf]
    return message
