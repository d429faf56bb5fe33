"""A dump of the flight recorder that is nearly right, as JSON and as a pickle: a surface of ``tests.fuzz``."""

import json
import pickle
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from megalens.instruments.timeline.flight_recorder import read_dumps
from megalens.runs import ClientError
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = ("entries", "pg_config", "completed", "[0, 1]", "nccl:recv 1<-0", "default_pg", "is_p2p", "retired")


def _seeds() -> list[Any]:
    entries = [
        {
            "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number, "is_p2p": number == 2,
            "profiling_name": "gloo:all_reduce", "time_created_ns": 1_790_000_000_000_000_000 + number,
            "time_discovered_completed_ns": 0, "state": "scheduled", "retired": number < 2,
            "input_sizes": [[4, 2]], "input_dtypes": ["Float"],
        }
        for number in range(4)
    ]  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    status = {"0": {"last_enqueued_collective": "3"}}
    return [{"comm_lib_version": "", "pg_config": config, "pg_status": status, "entries": entries}]


def _mutate(chance: Random, seed: Any) -> Any:
    tree = mutated_tree(chance, seed, _WORDS) if chance.random() < 0.7 else seed
    if chance.random() < 0.3:
        data = pickle.dumps(tree, protocol=2)
    else:
        data = json_text(chance, tree).encode("utf-8", "surrogatepass")
    return {"data": mutated_bytes(chance, data) if chance.random() < 0.4 else data}


def _run(given: Any) -> None:
    whole, file = _FOLDER / "fr_0", _FOLDER / "fr_1"
    whole.write_text(json.dumps(_seeds()[0]))
    file.write_bytes(given["data"])
    rows = read_dumps(_FOLDER, [whole, file])
    for stream in ("spans", "alarms"):
        assert all(table.num_rows >= 0 for table in rows.streams[stream])


def _every_byte() -> list[Any]:
    return [{"data": data} for data in byte_changes(json.dumps(_seeds()[0]).encode())]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
