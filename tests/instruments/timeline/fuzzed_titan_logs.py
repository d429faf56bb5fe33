"""A structured log of torchtitan that is nearly right: a surface of ``tests.fuzz``."""

import json
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from megalens.instruments.timeline.titan_logs import read_logs
from megalens.runs import ClientError
from tests.fuzz.mutate import json_text, mutated_bytes, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = ("step_start", "step_end", "metric_value", "event", "instant", "NaN", "task", "eval_end")


def _line(step: int, name: str, at: int, **others: Any) -> dict[str, Any]:
    return {
        "global_rank": 0, "source": "training", "step": step, "time_us": 1_790_000_000_000_000 + at,
        "log_type": "event", "log_type_name": name, "event_name": None, "seq_id": at, "host_name": "a", **others,
    }  # fmt: skip


def _seeds() -> list[Any]:
    lines = []
    for step in range(1, 4):
        lines += [
            _line(step, "step_start", 100 * step),
            _line(step, "fetching_batch_start", 100 * step + 1),
            _line(step, "fetching_batch_end", 100 * step + 11, value=0.01),
            _line(step, "metric_value", 100 * step + 12, log_type="instant", event_name="loss", value=2.5),
            _line(step, "step_end", 100 * step + 90, value=0.09),
        ]
    return [lines]


def _mutate(chance: Random, seed: Any) -> Any:
    lines = [mutated_tree(chance, line, _WORDS) if chance.random() < 0.2 else line for line in seed]
    data = "\n".join(json_text(chance, line) for line in lines).encode("utf-8", "surrogatepass")
    return {"data": mutated_bytes(chance, data) if chance.random() < 0.4 else data}


def _run(given: Any) -> None:
    file = _FOLDER / "training.global_rank_0.1-A.jsonl"
    file.write_bytes(given["data"])
    rows = read_logs(_FOLDER, [file])
    for stream in ("spans", "scalars"):
        assert all(table.num_rows >= 0 for table in rows.streams[stream])


def _every_byte() -> list[Any]:
    whole = "\n".join(json.dumps(line) for line in _seeds()[0][:5]).encode()
    return [{"data": data} for data in byte_changes(whole)]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
