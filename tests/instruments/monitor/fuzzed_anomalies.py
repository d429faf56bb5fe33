"""``anomaly.json`` of TrainerMon's rules, which the command ``megalens anomalies`` reads."""

import json
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from random import Random
from typing import Any

from megalens.instruments.monitor.trainermon.anomalies import (
    RECORDS,
    Anomaly,
    first_anomalies,
    read_anomalies,
    write_anomalies,
)
from megalens.protocol import MegalensError
from tests.fuzz.mutate import json_text, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = tuple(each.name for each in fields(Anomaly))


def _seeds() -> list[Any]:
    parts = ("actv", "post_grad", "exp_avg")
    found = [
        Anomaly(0, step, 0, 0, 0, step, f"0:layers.0.mlp:0/rank0/{part}", "too far from its mean", [0, 1])
        for step, part in enumerate(parts)
    ]
    return [{each.key: asdict(each) for each in found}]


def _mutate(chance: Random, seed: Any) -> bytes:
    return json_text(chance, mutated_tree(chance, seed, _WORDS)).encode("utf-8", "surrogatepass")


def _run(data: bytes) -> None:
    place = _FOLDER / "anomaly_detected" / "rank0"
    place.mkdir(parents=True, exist_ok=True)
    (place / RECORDS).write_bytes(data)
    found, warnings = read_anomalies(place.parent)
    write_anomalies(_FOLDER / "first.json", first_anomalies(found))
    "\n".join(warnings).encode("utf-8")


def _every_byte() -> list[Any]:
    return byte_changes(json.dumps(_seeds()[0]).encode())


SURFACE = Surface(_seeds, _mutate, _run, (MegalensError,), _every_byte)
