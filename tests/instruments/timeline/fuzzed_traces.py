"""Traces that other tools wrote: of PyTorch's profiler, of MegatronApp, in Chrome's format."""

import gzip
import json
import os
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

from megalens.instruments.timeline import analyse
from megalens.instruments.timeline.megascan_files import TimelineError
from megalens.runs import ClientError, open_run
from tests.fuzz.mutate import json_text, mutated_tree
from tests.fuzz.surface import Surface, byte_changes

_FOLDER = Path(tempfile.mkdtemp())
_WORDS = (
    *("traceEvents", "ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "step", "group", "blocked"),
    *("distributedInfo", "rank", "world_size", "pg_config", "baseTimeNanoseconds", "correlation", "kernel"),
    *("forward", "backward", "all_reduce", "iteration", "rel_ts", "pad_before", "duration_wall"),
)
os.environ["XDG_CACHE_HOME"] = str(_FOLDER / "cache")


def _span(name: str, rank: int, begin: float, end: float, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": rank, "tid": 0, "ts": begin, "dur": end - begin, **more}


def _seeds() -> list[Any]:
    chrome = [
        _span(name, rank, 100 * step + begin, 100 * step + end, args={"step": step, "group": [0, 1]})
        for step in (1, 2)
        for rank in (0, 1)
        for name, begin, end in (("forward", 0, 20), ("backward", 20, 60), ("all_reduce", 60, 70))
    ]
    profile = [
        _span("ProfilerStep#1", 7, 0, 100, cat="user_annotation"),
        {"ph": "s", "cat": "fwdbwd", "ts": 5, "pid": 7, "tid": 1},
        _span("aten::linear", 7, 5, 9, cat="cpu_op", args={"Input Dims": [[2, 3]]}),
        _span("autograd::engine::evaluate_function: X", 7, 20, 40, cat="cpu_op"),
        _span("cudaLaunchKernel", 7, 6, 7, cat="cuda_runtime", args={"correlation": 3}),
        _span("gemm", 7, 10, 30, cat="kernel", args={"correlation": 3, "device": 0}),
        _span(
            "ncclKernel", 7, 30, 50, cat="kernel", args={"Process Group Ranks": "[0, 1]", "dtype": "Float"}
        ),
        _span("Optimizer.step#A", 7, 60, 70, cat="user_annotation"),
    ]
    about = {"rank": 0, "world_size": 1, "pg_config": [{"ranks": [0]}]}
    place = {"dp_rk": 0, "pp_rk": 0, "tp_rk": 0, "dev": 0, "g_rk": 0}
    megascan = [
        {"name": "iteration", "ph": "B", "pad_before": 5},
        {"name": "forward", "ph": "B", "rel_ts": 0, **place},
        {"name": "forward", "ph": "E", "rel_ts": 50, **place},
        {"name": "iteration", "ph": "E", "rel_ts": 60, "duration_wall": 60, **place},
    ]
    return [
        {"traceEvents": chrome},
        chrome,
        {"schemaVersion": 1, "distributedInfo": about, "baseTimeNanoseconds": 10**18, "traceEvents": profile},
        megascan,
    ]


def _mutate(chance: Random, seed: Any) -> Any:
    text = (
        json_text(chance, mutated_tree(chance, seed, _WORDS)) if chance.random() < 0.8 else json.dumps(seed)
    )
    data = text.encode("utf-8", "surrogatepass" if chance.random() < 0.1 else "replace")
    if chance.random() < 0.2:
        data = data[: chance.randrange(len(data) + 1)]
    if chance.random() < 0.2:
        data = gzip.compress(data)
        data = data[: chance.randrange(len(data))] if chance.random() < 0.5 else data
    return {"name": _name(seed), "data": data}


def _name(seed: Any) -> str:
    of_a_rank = isinstance(seed, list) and len(seed) == 4
    return "benchmark-data-0-pipeline-0-tensor-0.json" if of_a_rank else "a.json"


def _every_byte() -> list[Any]:
    texts = [(_name(seed), json.dumps(seed).encode()) for seed in _seeds()]
    packed = [(name, gzip.compress(text, mtime=0)) for name, text in texts[1:]]
    return [{"name": name, "data": data} for name, text in (*texts, *packed) for data in byte_changes(text)]


def _run(given: Any) -> None:
    folder = _FOLDER / "traces"
    for each in (folder, _FOLDER / "cache"):
        shutil.rmtree(each, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / given["name"]).write_bytes(given["data"])
    with open_run(folder) as run:
        str(analyse(run).verdict())


SURFACE = Surface(_seeds, _mutate, _run, (ClientError, TimelineError), _every_byte)
