"""A memory snapshot that is nearly right, as JSON and as a pickle: a surface of ``tests.fuzz``."""

import json
import pickle
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from megalens.instruments.timeline.memory_snapshot import read_snapshots
from megalens.runs import ClientError
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = ("segments", "device_traces", "alloc", "free_completed", "active_allocated", "frames", "history")


def _seeds() -> list[Any]:
    frames = [{"filename": "/project/model.py", "line": 12, "name": "forward"}]
    blocks = [
        {"address": 4096, "size": 1024, "requested_size": 1000, "state": "active_allocated", "frames": frames}
    ]
    segment = {"device": 0, "address": 4096, "total_size": 8192, "stream": 0, "blocks": blocks}
    trace = [
        {"action": action, "addr": 4096, "size": 1024, "stream": 0, "time_us": 1_790_000_000_000_000 + at, "frames": frames}
        for at, action in enumerate(("segment_alloc", "alloc", "free_requested", "free_completed", "alloc"))
    ]  # fmt: skip
    return [{"segments": [segment], "device_traces": [trace]}]


def _mutate(chance: Random, seed: Any) -> Any:
    tree = mutated_tree(chance, seed, _WORDS) if chance.random() < 0.7 else seed
    if chance.random() < 0.5:
        data = pickle.dumps(tree)
    else:
        data = json_text(chance, tree).encode("utf-8", "surrogatepass")
    return {"data": mutated_bytes(chance, data) if chance.random() < 0.4 else data}


def _run(given: Any) -> None:
    whole, file = _FOLDER / "rank_0.json", _FOLDER / "rank_1.json"
    whole.write_text(json.dumps(_seeds()[0]))
    file.write_bytes(given["data"])
    rows = read_snapshots(_FOLDER, [whole, file])
    for stream in ("spans", "memory"):
        assert all(table.num_rows >= 0 for table in rows.streams[stream])


def _every_byte() -> list[Any]:
    return [{"data": data} for data in byte_changes(json.dumps(_seeds()[0]).encode())]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
