"""Rows of a producer on their way to clients of ``megalens serve-3606``: shapes, parts and values that do not belong together."""

import json
import math
from random import Random
from typing import Any

import pyarrow as pa

from megalens.hub.dialects.gateway import updates
from megalens.protocol import STREAMS, stream_schema
from tests.fuzz.surface import Surface

_SIZES = (0, 1, 1, 2, 2, 3, 3, 6, -1, -2, 2**31 - 1)
_PLAIN = {
    **{
        "step": 1,
        "micro_batch": 0,
        "phase": "train",
        "pass": "forward",
        "rank": 0,
        "layer": 1,
        "compressor": "NoOp()",
    },
    **{
        "source_shape": [1, 2, 3],
        "labels": [],
        "nan_count": 0,
        "inf_count": 0,
        **STREAMS["tensors"].absent,
    },
}


def _row(chance: Random) -> Any:
    shape = (
        [1, 2, 3]
        if chance.random() < 0.4
        else [chance.choice(_SIZES) for _ in range(chance.choice((0, 1, 2, 3, 70)))]
    )
    fits = chance.random() < 0.7 and 0 <= math.prod(shape) < 100
    return {
        "flag": chance.choice(("HiddenStates", "InputTokens", "QKV_mat_mul", "other")),
        "part": chance.choice(("", "ids", "positions", "q")),
        "shape": shape,
        "values": [chance.choice((0.5, math.nan, math.inf))]
        * (math.prod(shape) if fits else chance.randrange(8)),
    }


def _run(rows: Any) -> None:
    table = pa.Table.from_pylist([{**_PLAIN, **row} for row in rows], stream_schema("tensors"))
    for update in updates(table):
        message = json.loads(update.text)
        assert math.prod(message["args"]) == len(message["result"])


SURFACE = Surface(
    lambda: [None], lambda chance, _: [_row(chance) for _ in range(chance.randrange(1, 5))], _run, ()
)
