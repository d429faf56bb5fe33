"""A recorded run folder as the hub's recorder leaves it, small, with known numbers in it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import STREAMS, Tile, compressor_infos, stream_schema

RUN_ID = "20261120-101500-gpt-demo"
STARTED = 1_795_000_000.0
POSITIONS, TILES = 24, 16


def values_of(step: int, layer: int) -> np.ndarray:
    """Signed values that grow with step and layer, [1, positions, tiles]."""
    rng = np.random.default_rng(step * 100 + layer + 1)
    wave = (
        np.sin(np.linspace(0, 3 * layer + 3, POSITIONS))[:, None] * np.cos(np.linspace(0, 4, TILES))[None, :]
    )
    noise = rng.normal(0, 0.15, (POSITIONS, TILES))
    return ((wave + noise) * (0.5 + 0.1 * layer) * (1 + step / 60)).astype(np.float32)[None]


def flag_info(name: str, title: str, layers: list[int], parts: list[str], axes: list[str], **more) -> dict:
    return {
        "name": name,
        "title": title,
        "layers": layers,
        "parts": parts,
        "axes": axes,
        "bytes_per_layer": None,
        **more,
    }


def write_run(folder: Path, **wanted: Any) -> Path:
    """Write a run folder, of which ``wanted`` are the arguments of :func:`made_run`, and return it."""
    # Most tests want the same one.
    files = made_run(**wanted) if wanted else _usual_run()
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


@functools.cache
def _usual_run() -> dict[str, bytes]:
    return made_run()


def made_run(
    *,
    steps: int = 40,
    layers: int = 4,
    nonfinite_at: int | None = 30,
    points: int | None = None,
    size=None,
    more: list[dict] | None = None,
    **header_changes,
) -> dict[str, bytes]:
    """Return the files of a run folder. ``size`` is (positions, tiles) of larger, random tensors, ``more`` are rows of tensors beside the usual
    ones, other arguments members of ``run.json``.
    """
    every = list(range(layers))
    compressor = str(Tile(96 if size else TILES))
    rows = []
    for step in range(1, steps + 1):
        for layer in every:
            values = values_of(step, layer)
            if size:
                shape = (1, *size)
                values = (
                    np.random.default_rng(step * (layer + 1)).normal(0, layer + 1, shape).astype(np.float32)
                )
            nan = inf = 0
            if step == nonfinite_at and layer == 1:
                values[0, 3, 5], values[0, 4, 6], values[0, 4, 7] = np.nan, np.inf, -np.inf
                nan, inf = 1, 2
            rows.append(tensor(step, layer, "MLP1_mat_mul", "", compressor, values, nan, inf))
        text = [chr(97 + (step + n) % 26) if n % 5 else " " for n in range(POSITIONS)]
        ids = np.array([[ord(c) for c in text]], dtype=np.float32)
        rows.append({**tensor(step, -1, "InputTokens", "ids", "NoOp()", ids), "labels": text})
    for part in ("q", "k", "v"):
        rows.append(tensor(5, 0, "QKV_mat_mul", part, compressor, values_of(5, 0)))
    attention = np.random.default_rng(1).dirichlet(np.ones(6), (1, 2, 6)).astype(np.float32)
    rows.append(tensor(7, 0, "RawAttentionScore_mat_mul", "", "NoOp()", attention))
    rows += more or []
    scalars = []
    points = points or steps
    for n in range(points):
        step = n + 1
        entries = [
            ("loss", 1.6 + 3.9 * np.exp(-n / 12), "nats/byte"),
            ("tokens_per_second", 8700 + 90 * np.sin(n), "1/s"),
        ]
        if n % 10 == 0:
            entries.append(("held_out_loss", 1.7 + 3.8 * np.exp(-n / 12), "nats/byte"))
        scalars += [(step, STARTED + n, 0, name, float(value), unit) for name, value, unit in entries]
    setting = {"compressor": {"name": "Tile", "params": {"tiles": TILES, "reduction": "mean"}}}
    change = {"flags": {"MLP1_mat_mul": setting, "HiddenStates": None}}
    audit = [
        (1, STARTED, "tracer", "connect", "{}"),
        (12, STARTED + 60, "kernel (wandaq)", "configure", json.dumps({"patch": change})),
    ]
    audit.append(
        (20, STARTED + 90, "kernel", "configure", json.dumps({"patch": {"flags": {"QKV_mat_mul": None}}}))
    )
    audit.append((21, STARTED + 91, "kernel", "configure", "not JSON"))
    named = {name: stream_schema(name).names for name in ("scalars", "audit")}
    files = {
        "tensors.parquet": parquet("tensors", rows),
        "scalars.parquet": parquet(
            "scalars", [dict(zip(named["scalars"], row, strict=True)) for row in scalars]
        ),
        "audit.parquet": parquet("audit", [dict(zip(named["audit"], row, strict=True)) for row in audit]),
    }
    projection = {
        "compressor": {"name": "Projection", "params": {"vectors": "/home/wandaq/secret/persona.npy"}}
    }
    header = {
        "format": 2,
        "run": {"id": RUN_ID, "name": "gpt-demo", "started": STARTED},
        "state": "finished",
        "ended": STARTED + points,
        "model": {
            "name": "/home/wandaq/models/GPT",
            "layers": layers,
            "hidden": 128,
            "heads": 4,
            "parameters": 842_000,
            "dtype": "float32",
            "device": "cpu",
        },
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [
            flag_info("MLP1_mat_mul", "MLP1 output", every, [], ["position", "feature"]),
            flag_info(
                "QKV_mat_mul", "Queries, keys and values", every, ["q", "k", "v"], ["position", "feature"]
            ),
            flag_info(
                "RawAttentionScore_mat_mul", "Attention probabilities", every, [], ["head", "query", "key"]
            ),
            flag_info("HiddenStates", "Layer output", every, [], ["position", "feature"]),
            flag_info("InputTokens", "Input tokens", [-1], ["ids", "positions"], ["position"]),
            flag_info(
                "MLP2_mat_mul",
                "MLP2 output",
                [],
                [],
                ["position", "feature"],
                reason="no second matrix was found",
            ),
        ],
        "compressors": compressor_infos(),
        "config": {"flags": {"MLP1_mat_mul": setting, "QKV_mat_mul": projection}},
        "versions": {"megalens": "0.1.0", "torch": "2.9.0", "python": "3.11.9"},
        "streams": {
            name: {"rows": 1, "bytes": 1, "first_step": 1, "last_step": steps}
            for name in ("tensors", "scalars", "audit")
        },
        "missing_steps": [[8, 9]],
        **header_changes,
    }
    return {**files, "run.json": json.dumps(header).encode()}


def tensor_row(**columns: Any) -> dict[str, Any]:
    """One row of the stream ``tensors``: of a forward pass of a training, unless its columns say else."""
    return {
        **{"step": 1, "micro_batch": 0, "phase": "train", "pass": "forward", "rank": 0, "layer": 1},
        **{"flag": "MLP1_mat_mul", "part": "", "compressor": "NoOp()", "labels": []},
        **{"nan_count": 0, "inf_count": 0},
        **STREAMS["tensors"].absent,
        **columns,
    }


def tensor(step, layer, flag, part, compressor, values, nan=0, inf=0, **more) -> dict:
    said = {
        **{"step": step, "layer": layer, "flag": flag, "part": part, "compressor": compressor},
        **{"source_shape": [16, *values.shape[1:-1], 512], "shape": list(values.shape)},
        **{"values": values.ravel(), "nan_count": nan, "inf_count": inf},
    }
    return tensor_row(**(said | more))


def write(folder: Path, stream: str, rows: list[dict]) -> None:
    (folder / f"{stream}.parquet").write_bytes(parquet(stream, rows))


def parquet(stream: str, rows: list[dict]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=stream_schema(stream)), sink)
    return sink.getvalue().to_pybytes()
