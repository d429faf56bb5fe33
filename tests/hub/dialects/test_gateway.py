"""Our hub, served to clients that speak the 3606 dialect."""

import asyncio
import json
import math
import socket
from contextlib import asynccontextmanager

import numpy as np
import pytest
from peers import values
from translation import WAIT, plan, translate
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from megalens.hub.dialects.dialect import DIALECTS
from megalens.hub.dialects.gateway import Gateway
from megalens.hub.dialects.hosted_run import HostedRun
from megalens.hub.dialects.peer_message import TensorRow
from megalens.hub.dialects.peer_rows import NumberedRow, tensors_table
from megalens.hub.dialects.translator import announcement
from megalens.hub.options import HubOptions


class Training:
    """A live run of ours: a hub with a producer that applies every change at once."""

    def __init__(self):
        self.patches, self.changed = [], asyncio.Event()
        self.step = 0

    async def configure(self, change, patch):
        self.patches.append(patch["flags"])
        for applied in (False, True):
            config = {"flags": {**self.config["flags"], **patch["flags"]}}
            await self.host.say(
                {
                    "type": "configured",
                    "id": change,
                    "applied": applied,
                    "step": self.step + 1,
                    "config": config,
                }
            )
        self.config = config
        self.changed.set()

    async def step_on(self, extra=()):
        self.step += 1
        positions = np.tile(np.arange(4, dtype=np.float32), (2, 1))
        rows = [
            TensorRow("InputTokens", "ids", -1, np.full((2, 4), self.step, np.float32)),
            TensorRow("InputTokens", "positions", -1, positions),
        ]
        for part in ("q", "k", "v"):
            rows.append(TensorRow("QKV_mat_mul", part, 0, values((self.step, part), 2, 4, 2)))
        for layer in (0, 1):
            rows.append(TensorRow("MLP1_mat_mul", "", layer, values((self.step, layer), 2, 4, 6)))
        rows += extra
        placed = [NumberedRow(row, self.step, 0, "train", "NoOp()", (2, 4, 6)) for row in rows]
        await self.host.send("tensors", tensors_table(placed), self.step)


@asynccontextmanager
async def served(**options):
    training = Training()
    training.config = {"flags": {"MLP1_mat_mul": {"compressor": {"name": "Tile", "params": {"tiles": 6}}}}}
    async with HostedRun(HubOptions(linger=0), "tracer", training.configure) as host:
        training.host = host
        told = announcement("ours", DIALECTS["3606"], layers=2, config=training.config)
        await host.say({key: value for key, value in told.items() if key != "origin"})
        gateway = Gateway(host.entry, 0, **options)
        ready = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(gateway.run(ready.set_result))
        training.port = await asyncio.wait_for(ready, WAIT)
        training.gateway = gateway
        yield training
        await host.finish()
        await host.stop()
        await asyncio.wait_for(serving, WAIT)


def client(training, **options):
    return connect(f"ws://127.0.0.1:{training.port}", max_size=None, ping_interval=None, **options)


async def ask(socket, flags, compressors=None):
    request = {
        "type": "run_training_step",
        "visualization_flags": flags,
        "compressor_config": compressors or {},
    }
    await socket.send(json.dumps(request))


async def read(socket, kind=None):
    while True:
        message = json.loads(await asyncio.wait_for(socket.recv(), WAIT))
        if kind is None or message["type"] == kind:
            return message


async def read_type(socket, number):
    while True:
        update = await read(socket, "update")
        if update["update_type"] == number:
            return update


TILE6 = {"MLP1_mat_mul": {"compressor_type": "TileCompressor", "compressor_configs": {"tiles": 6}}}


async def test_a_client_is_answered_started_and_sent_updates():
    async with served() as training:
        await training.step_on()
        async with client(training) as socket:
            await socket.send('{"type": "ping"}')
            assert await read(socket) == {"type": "pong"}
            await ask(socket, {"MLP1_mat_mul": True, "HiddenStates": "False"}, TILE6)
            assert await read(socket) == {
                "type": "start",
                "micro_batch_size": 2,
                "seq_length": 4,
                "num_layers": 2,
            }
            # It was on with just this compressor: nothing is changed under the other viewers.
            assert training.patches == []
            nan = np.array([[[math.nan, math.inf, -math.inf, 0.5, 1, 2]]], np.float32)
            await training.step_on([TensorRow("MLP1_mat_mul", "", 1, nan)])
            got = [await read(socket) for _ in range(4)]
    assert got[1]["update_type"] == 4
    # The dialect counts layers from 1.
    assert got[1]["layer_id"] == 1
    assert got[1]["args"] == [2, 4, 6]
    assert np.array_equal(np.float32(got[1]["result"]), values((2, 0), 2, 4, 6).ravel())
    tokens = got[0]
    assert (tokens["update_type"], tokens["layer_id"], tokens["args"]) == (8, 0, [2, 2, 4])
    assert tokens["result"] == [2.0] * 8 + [0.0, 1.0, 2.0, 3.0] * 2
    assert got[3]["result"] == [None, math.inf, -math.inf, 0.5, 1, 2]


async def test_what_a_client_writes_is_json_that_a_browser_reads():
    async with served() as training, client(training) as socket:
        await ask(socket, {"MLP1_mat_mul": True}, TILE6)
        await training.step_on(
            [TensorRow("MLP1_mat_mul", "", 2, np.array([[[math.nan, math.inf, -math.inf]]], np.float32))]
        )
        while True:
            text = await asyncio.wait_for(socket.recv(), WAIT)
            if "null" in text:
                break
        assert text.endswith('"result":[null,1e999,-1e999]}')
        assert "NaN" not in text
        assert "Infinity" not in text


async def test_flags_are_switched_on_and_what_cannot_be_is_said():
    async with served() as training, client(training) as socket:
        await ask(
            socket,
            {"QKV_mat_mul": "true", "MLP2_mat_mul": True},
            {
                "QKV_mat_mul": {
                    "compressor_type": "TileCompressor",
                    "compressor_configs": {"tiles": 6, "method": "data.abs().mean(dim=-1)"},
                }
            },
        )
        await asyncio.wait_for(training.changed.wait(), WAIT)
        assert training.patches == [
            {
                "QKV_mat_mul": {
                    "samples": None,
                    "compressor": {"name": "Tile", "params": {"tiles": 6, "reduction": "abs().mean()"}},
                },
                "MLP2_mat_mul": {"samples": None, "compressor": {"name": "Empty", "params": {}}},
            }
        ]
        await training.step_on()
        update = await read_type(socket, 1)
        # q, k and v are one tensor here, each third being what it is called.
        assert (update["update_type"], update["args"]) == (1, [2, 4, 6])
        thirds = np.float32(update["result"]).reshape(2, 4, 3, 2)
        assert np.array_equal(thirds[:, :, 1], values((1, "k"), 2, 4, 2))
        # Nothing that is sent is run.
        bad = {"compressor_type": "TileCompressor", "compressor_configs": {"method": "print(1)"}}
        await ask(socket, {"MLP1_mat_mul": True}, {"MLP1_mat_mul": bad})
        assert "compressor_config.MLP1_mat_mul.method" in (await read(socket, "error"))["message"]
        for garbage in ("{half", "[]", b"\xff\xfe", "[" * 3000):
            await socket.send(garbage)
            assert "Expected a JSON object" in (await read(socket, "error"))["message"]
        await socket.send('{"type": "ping"}')
        assert (await read(socket, "pong"))["type"] == "pong"


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({}, True),
        ({"Origin": "http://localhost:8888"}, True),
        ({"Origin": "http://127.0.0.1:3000"}, True),
        ({"Origin": "https://[::1]"}, True),
        ({"Origin": "http://localhost.example.org"}, False),
        ({"Origin": "https://example.org"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "file://"}, False),
    ],
)
async def test_only_pages_of_this_machine_are_let_in(headers, taken):
    async with served() as training:
        if taken:
            async with client(training, additional_headers=headers):
                return
        with pytest.raises(InvalidStatus) as caught:
            await client(training, additional_headers=headers)
        assert caught.value.response.status_code == 403


async def test_a_page_that_found_this_port_under_another_name_is_refused():
    async with served() as training:
        reader, writer = await asyncio.open_connection("127.0.0.1", training.port)
        writer.write(
            b"GET / HTTP/1.1\r\nHost: rebound.example.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        assert b"403" in await asyncio.wait_for(reader.readline(), WAIT)
        writer.close()


async def test_clients_and_their_messages_are_bounded():
    async with served() as training:
        clients = [await client(training) for _ in range(16)]
        for each in clients:
            await each.send('{"type": "ping"}')
            await read(each, "pong")
        closed = []
        async with client(training) as one_more:
            await asyncio.wait_for(one_more.wait_closed(), WAIT)
            closed.append(one_more.close_code)
        await clients[0].send(" " * ((1 << 20) + 1))
        await asyncio.wait_for(clients[0].wait_closed(), WAIT)
        assert [*closed, clients[0].close_code] == [1013, 1009]
        for each in clients:
            await each.close()


@pytest.mark.slow
async def test_a_client_that_does_not_read_costs_bounded_memory_and_nobody_else():
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
    async with (
        served(queue_bytes=1_000_000) as training,
        client(training) as healthy,
    ):
        small.connect(("127.0.0.1", training.port))
        stalled = await client(training, max_queue=1, sock=small)
        for each in (healthy, stalled):
            await ask(each, {"MLP1_mat_mul": True}, TILE6)
        big = [TensorRow("MLP1_mat_mul", "", 2, np.zeros((1, 100, 1000), np.float32))]
        while training.gateway.dropped == 0:
            await training.step_on(big)
            # The healthy one is sent all of it: four updates a step.
            for _ in range(4):
                await read(healthy, "update")
            assert training.step < 100
        stalled.transport.abort()


async def test_what_is_served_is_read_back_as_it_was(tmp_path):
    """Our hub, served in the dialect, translated by our own client of it, recorded by another hub: the same numbers."""
    async with served() as training:
        address = f"ws://127.0.0.1:{training.port}"

        async def train(host, translator):
            await asyncio.wait_for(training.changed.wait(), WAIT)
            while translator.step < 3:
                await training.step_on()
                while translator.step < min(training.step, 3):
                    await asyncio.sleep(0)

        config = {
            "flags": {
                "MLP1_mat_mul": {"samples": None, "compressor": {"name": "Tile", "params": {"tiles": 6}}},
                "QKV_mat_mul": {"samples": None, "compressor": {"name": "NoOp"}},
                "InputTokens": {"samples": None, "compressor": {"name": "NoOp"}},
            }
        }
        asked = plan(address, "3606", config=config, most_steps=3)

        async def one_more(host, translator):
            await train(host, translator)
            # The step after the last one asked for ends the translation.
            await training.step_on()

        out = await translate(tmp_path, asked, one_more)
    assert out.error is None
    assert out.run.header["model"]["layers"] == 2
    for row in out.rows("MLP1_mat_mul"):
        assert row["values"] == values((row["step"], row["layer"]), 2, 4, 6).ravel().tolist()
    assert out.steps("MLP1_mat_mul", 1) == [(1, 0), (2, 0), (3, 0)]
    thirds = [values((2, part), 2, 4, 2) for part in ("q", "k", "v")]
    assert out.rows("QKV_mat_mul")[1]["values"] == np.concatenate(thirds, axis=-1).ravel().tolist()
    assert {row["part"] for row in out.rows("InputTokens")} == {"ids", "positions"}
    assert len(out.rows()) == 15
