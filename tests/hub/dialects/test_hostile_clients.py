"""What one client of the 3606 dialect asks for is answered to it alone: the others go on, and so does the hub."""

import json

import pytest
from test_gateway import TILE6, ask, client, read, read_type, served

PATHS = ("", "\ud800", "\udc00x", "a\x00b", "\x1b[2J", "../../etc/passwd", "x" * 2000, "x" * 900_000)
PARAMETERS = (
    *({"tiles": tiles} for tiles in (0, -1, 10**400, 1.5, "6", None, [6], True, float("nan"))),
    *({"method": method} for method in ("", "\ud800", "data." * 200, "__import__('os')", 3, None, ["max"])),
)
ODD = ("\ud800", "\x1b[2J", "", "Q" * 500, "QKV_mat_mul\x00")


def compressor(kind, **configs):
    return {"compressor_type": kind, "compressor_configs": configs}


REQUESTS = [
    *(
        ({"QKV_mat_mul": True}, {"QKV_mat_mul": compressor("ProjectionCompressor", vector_path=p)})
        for p in PATHS
    ),
    *(({"QKV_mat_mul": True}, {"QKV_mat_mul": compressor("TileCompressor", **each)}) for each in PARAMETERS),
    *(({name: True}, {name: compressor(name)}) for name in ODD),
    *(
        ({"QKV_mat_mul": True}, {"QKV_mat_mul": odd})
        for odd in (3, [], "x", {"compressor_type": 3}, {"compressor_configs": 3})
    ),
    *((flags, {}) for flags in ([], "all", 3, None, {"QKV_mat_mul": {}}, {"InputTokens": True})),
    ({}, []),
    ({}, "x"),
    (dict.fromkeys((f"Flag{n}" for n in range(5000)), True), {}),
]


@pytest.mark.parametrize("bytewise", [False, True])
async def test_the_others_are_served_whatever_one_asks_for(bytewise):
    async with served() as training, client(training) as healthy, client(training) as odd:
        await ask(healthy, {"MLP1_mat_mul": True}, TILE6)
        for flags, compressors in REQUESTS:
            request = json.dumps(
                {
                    "type": "run_training_step",
                    "visualization_flags": flags,
                    "compressor_config": compressors,
                }
            )
            await odd.send(request.encode() if bytewise else request)
            await odd.send('{"type": "ping"}')
            assert (await read(odd, "pong"))["type"] == "pong"
        await training.step_on()
        assert (await read_type(healthy, 4))["args"] == [2, 4, 6]
