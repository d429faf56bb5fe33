"""A dump of the flight recorder that is nearly right, as JSON and as a pickle: a surface of ``tests.fuzz``."""

import json
import pickle
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from megalens.instruments.timeline.flight_recorder import read_dumps
from megalens.runs import ClientError
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_WORDS = ("entries", "pg_config", "completed", "[0, 1]", "nccl:recv 1<-0", "default_pg", "is_p2p", "retired")


def _dump() -> Any:
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
    return {"comm_lib_version": "", "pg_config": config, "pg_status": status, "entries": entries}


def dumps_of(
    read: Callable[..., Any],
    seed: Any,
    words: Sequence[str],
    names: tuple[str, str],
    stream: str,
    pickles: float,
    protocol: int | None = None,
) -> Surface:
    """Return the surface of a reader of JSON and pickles that is given a whole file and a mutated one.

    ``pickles`` is the share of pickles, ``stream`` what it reads besides spans.
    """
    folder = Path(tempfile.mkdtemp())

    def mutate(chance: Random, seed: Any) -> Any:
        tree = mutated_tree(chance, seed, words) if chance.random() < 0.7 else seed
        if chance.random() < pickles:
            data = pickle.dumps(tree, protocol=protocol)
        else:
            data = json_text(chance, tree).encode("utf-8", "surrogatepass")
        return {"data": mutated_bytes(chance, data) if chance.random() < 0.4 else data}

    def run(given: Any) -> None:
        whole, file = (folder / name for name in names)
        whole.write_text(json.dumps(seed))
        file.write_bytes(given["data"])
        rows = read(folder, [whole, file])
        for name in ("spans", stream):
            assert all(table.num_rows >= 0 for table in rows.streams[name])

    def every_byte() -> list[Any]:
        return [{"data": data} for data in byte_changes(json.dumps(seed).encode())]

    return Surface(lambda: [seed], mutate, run, (ClientError,), every_byte)


SURFACE = dumps_of(read_dumps, _dump(), _WORDS, ("fr_0", "fr_1"), "alarms", pickles=0.3, protocol=2)
