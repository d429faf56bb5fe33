"""Raw-moment JSONL that another logger wrote."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from moment_tree import record

from megalens.runs import ClientError, open_run
from tests.fuzz.mutate import json_text, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = (
    "iter",
    "consumed_train_samples",
    "stat",
    "values",
    "count",
    "sum_1",
    "sum_2",
    "sum_3",
    "sum_4",
    "min",
    "max",
    "loss_scale",
)
os.environ["XDG_CACHE_HOME"] = str(_FOLDER / "cache")


def _seeds() -> list[Any]:
    return [[record(step, stat=stat) for step in (1, 2, 3)] for stat in ("grad", "param")]


def _mutate(chance: Random, seed: Any) -> Any:
    lines = [
        json_text(chance, mutated_tree(chance, each, _WORDS)) if chance.random() < 0.4 else json.dumps(each)
        for each in seed
    ]
    end = "" if chance.random() < 0.2 else "\n"
    return {
        "kind": seed[0]["stat"],
        "data": ("\n".join(lines) + end).encode(
            "utf-8", "surrogatepass" if chance.random() < 0.1 else "replace"
        ),
    }


def _run(given: Any) -> None:
    root = _FOLDER / "tree" / "training_stats" / given["kind"]
    shutil.rmtree(_FOLDER / "tree", ignore_errors=True)
    shutil.rmtree(_FOLDER / "cache", ignore_errors=True)
    root.mkdir(parents=True)
    (root / "rank0.jsonl").write_bytes(given["data"])
    with open_run(_FOLDER / "tree") as run:
        table = run.moments(given["kind"].partition("_")[0], ["name"])
        assert "l2" in table


def _every_byte() -> list[Any]:
    return [
        {"kind": seed[0]["stat"], "data": data}
        for seed in _seeds()
        for data in byte_changes(json.dumps(seed[0]).encode() + b"\n")
    ]


SURFACE = Surface(_seeds, _mutate, _run, (ClientError,), _every_byte)
