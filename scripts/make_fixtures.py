"""Write the golden messages and frames that pytest and jest both decode and re-encode.

Run from the root of a checkout: ``python scripts/make_fixtures.py``. The frames hold a fixed time, so that running it
again changes nothing unless the contract changed; ``--check`` says so instead of writing.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path

import pyarrow as pa

from megalens.protocol import (
    BIT_CAUGHT_UP,
    BIT_MERGED,
    Tile,
    compressor_infos,
    encode_frame,
    encode_message,
    stream_schema,
)
from scripts.moment_fixtures import merge_cases, moment_row, name_cases, raw_cases
from scripts.moment_group_cases import group_cases

ROOT = Path(__file__).parents[1] / "protocol" / "fixtures"
TIME_US = 1_790_000_000_123_456
NAN, INF = math.nan, math.inf


def tensor_row(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "step": 7,
        "micro_batch": 0,
        "phase": "train",
        "pass": "forward",
        "rank": 0,
        "layer": 1,
        "flag": "MLP1_mat_mul",
        "part": "",
        "compressor": str(Tile(3)),
        "source_shape": [2, 2, 8],
        "shape": [1, 2, 3],
        "values": [0.5, -1.25, 3.0, 0.0, 1e-30, -65504.0],
        "labels": [],
        "nan_count": 0,
        "inf_count": 0,
        "compression_error": NAN,
    }
    return row | changes


def moments_row(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "step": 20,
        "samples": 160,
        "stat": "param",
        "name": "decoder.layers.0.mlp.linear_fc1.weight",
        "rank": 0,
        "stage": 0,
        **moment_row([1.0, 2.0, 3.0, 4.0]),
        "gradient_stage": "",
        "loss_scale": 1.0,
    }
    return row | changes


def frames() -> dict[str, tuple[str, list[dict[str, object]], dict[str, int]]]:
    """Fixture name → stream, rows, header."""
    return {
        "tensors-plain": (
            "tensors",
            [tensor_row(layer=layer) for layer in (1, 2, 3)],
            {"seq": 1, "step": 7},
        ),
        "tensors-nonfinite": (
            "tensors",
            [tensor_row(values=[NAN, INF, -INF, -0.0, 2.0, 3.4e38], nan_count=3, inf_count=2)],
            {"seq": 2, "step": 7},
        ),
        "tensors-parts-and-labels": (
            "tensors",
            [
                tensor_row(flag="QKV_mat_mul", part=part, micro_batch=1, phase="eval")
                for part in ("q", "k", "v")
            ]
            + [
                tensor_row(
                    flag="InputTokens",
                    part="ids",
                    layer=0,
                    compressor="NoOp()",
                    source_shape=[2, 4],
                    shape=[1, 4],
                    values=[104.0, 195.0, 169.0, 10.0],
                    labels=["h", "Ã", "é", "⏎"],
                )
            ],
            {"seq": 2**40 + 3, "step": 2**40},
        ),
        "tensors-empty-values": (
            "tensors",
            [tensor_row(compressor="Empty()", shape=[1, 2, 0], values=[])],
            {"seq": 4, "step": 7},
        ),
        "tensors-no-rows": ("tensors", [], {"seq": 5, "step": 8}),
        "scalars": (
            "scalars",
            [
                {"step": 7, "time": 1.79e9, "rank": 0, "name": n, "value": v, "unit": u}
                for n, v, u in (
                    ("loss", 2.5, "nats/byte"),
                    ("lr", 3e-4, ""),
                    ("grad_norm", NAN, ""),
                    ("held_out_loss", -INF, "nats/byte"),
                )
            ],
            {"seq": 6, "step": 7},
        ),
        "scalars-caught-up": (
            "scalars",
            [
                {
                    "step": s,
                    "time": 1.79e9 + s,
                    "rank": 0,
                    "name": "loss",
                    "value": 5.0 / s,
                    "unit": "nats/byte",
                }
                for s in range(1, 6)
            ],
            {"seq": 9, "step": 5, "bits": BIT_CAUGHT_UP | BIT_MERGED},
        ),
        "moments": (
            "moments",
            [
                moments_row(),
                moments_row(
                    stat="dgrad",
                    name="decoder.layers.0.mlp.linear_fc1/output0",
                    gradient_stage="backward",
                    loss_scale=128.0,
                ),
                moments_row(
                    stat="grad", count=0.0, mean=NAN, m2=0.0, m3=0.0, m4=0.0, min=NAN, max=NAN, nan_count=4.0
                ),
                moments_row(
                    rank=3, stage=1, m4=INF, min=NAN, max=NAN, nan_count=NAN, inf_count=NAN, rounding=2.0**-24
                ),
            ],
            {"seq": 11, "step": 20},
        ),
        "audit": (
            "audit",
            [
                {
                    "step": 12,
                    "time": 1.79e9,
                    "who": "panel",
                    "action": "configure",
                    "detail": '{"flags":{"HiddenStates":null}}',
                }
            ],
            {"seq": 10, "step": 12},
        ),
    }


def messages() -> dict[str, dict[str, object]]:
    """Fixture name → message."""
    peer = {"name": "panel", "version": "0.1.0"}
    config = {
        "flags": {
            "MLP1_mat_mul": {
                "layers": "1-4",
                "every": 2,
                "phases": ["train"],
                "samples": 1,
                "compressor": {"name": "Tile", "params": {"tiles": 96, "reduction": "mean"}},
            }
        }
    }
    model = {
        "name": "GPT",
        "adapter": "plain",
        "layers": 4,
        "hidden": 128,
        "heads": 4,
        "kv_heads": 4,
        "vocabulary": 256,
        "parameters": 842_496,
        "dtype": "float32",
        "device": "cpu",
    }
    layout = {"world_size": 1, "tp": 1, "pp": 1, "dp": 1}
    flags = [
        {
            "name": "MLP1_mat_mul",
            "title": "MLP1 output",
            "layers": [1, 2, 3, 4],
            "parts": [""],
            "axes": ["position", "feature"],
            "features": 512,
            "bytes_per_layer": 262144,
        },
        {
            "name": "RawAttentionScore_mat_mul",
            "title": "Attention probabilities",
            "layers": [],
            "parts": [""],
            "axes": ["head", "query", "key"],
            "features": None,
            "bytes_per_layer": None,
            "reason": "This attention implementation returns no probabilities.",
        },
    ]
    versions = {"megalens": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}
    kind = {"name": "noise1", "params": {"coefficient": 0.01}}
    site = {
        "name": "system",
        "title": "Between layers",
        "layers": [1, 2, 3, 4],
        "kinds": [
            {
                "name": "noise1",
                "title": "Additive Gaussian noise",
                "description": "Add noise of standard deviation coefficient.",
                "schema": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["coefficient"],
                    "properties": {"coefficient": {"type": "number", "minimum": 0, "default": 0.01}},
                },
            }
        ],
    }
    split = {
        "world_size": 4,
        "tp": 2,
        "pp": 2,
        "dp": 1,
        "vpp": 2,
        "ranks": [
            {"rank": rank, "tp": rank % 2, "pp": rank // 2, "dp": 0, "host": "node-1"} for rank in range(4)
        ],
    }
    both = {
        "flags": {
            "HiddenStates": {
                "passes": ["forward", "backward"],
                "replicas": "all",
                "compressor": {"name": "Tile", "params": {"tiles": 96}},
            }
        }
    }
    run = {"id": "20261121-120000-gpt-demo-1a2b", "name": "gpt-demo", "started": 1.79e9}
    hello = {
        "type": "hello",
        "protocol": "megalens.v1",
        "run": run,
        "seq": 41,
        "model": model,
        "layout": layout,
        "flags": flags,
        "compressors": compressor_infos(),
        "config": config,
        "limits": {"max_message_bytes": 1048576, "viewer_queue_bytes": 8388608, "backlog_bytes": 67108864},
        "versions": versions,
    }
    return {
        "join-viewer": {
            "type": "join",
            "protocol": "megalens.v1",
            "role": "viewer",
            "peer": peer,
            "since": None,
        },
        "join-again": {
            "type": "join",
            "protocol": "megalens.v1",
            "role": "viewer",
            "peer": peer | {"user": "ada"},
            "since": 41,
            "run": run["id"],
            "backlog": 1048576,
        },
        "join-producer": {
            "type": "join",
            "protocol": "megalens.v1",
            "role": "producer",
            "peer": {"name": "tracer", "version": "0.1.0"},
        },
        "announce": {
            "type": "announce",
            "rank": 0,
            "run_name": "gpt-demo",
            "model": model,
            "layout": layout,
            "flags": flags,
            "compressors": compressor_infos(),
            "config": config,
            "versions": versions,
        },
        "hello": hello,
        "hello-waiting": hello
        | {"seq": 0, "model": None, "layout": None, "flags": [], "config": {"flags": {}}},
        "hello-resumed": hello
        | {"resumed": {"since": 30, "missed_frames": 2, "missed_rows": 24, "first_step": 8, "last_step": 9}},
        "configure": {
            "type": "configure",
            "id": "c-1",
            "patch": {
                "flags": {
                    "HiddenStates": {"compressor": {"name": "Tile", "params": {"tiles": 96}}},
                    "MLP1_mat_mul": None,
                }
            },
        },
        "announce-stage": {
            "type": "announce",
            "rank": 2,
            "leader": 0,
            "model": model,
            "layout": split,
            "flags": flags,
            "compressors": compressor_infos(),
            "controls": ["pause", "watched", "perturb"],
            "sites": [site],
            "statistics": {"param": 1, "activation": 100},
            "config": config,
            "versions": versions,
        },
        "hello-foreign": hello
        | {
            "layout": split,
            "controls": ["perturb"],
            "sites": [site],
            "origin": {"kind": "foreign", "name": "3606", "steps": "inferred"},
        },
        "hello-replay": hello
        | {"origin": {"kind": "replay", "name": run["id"], "steps": "counted", "speed": 4}},
        "configure-controls": {
            "type": "configure",
            "id": "c-2",
            "patch": both
            | {
                "perturb": {
                    "sites": {"system": {"kind": kind, "layers": "2-3", "phases": ["train"]}},
                    "seed": 7,
                    "steps": 50,
                },
                "mode": {"paused": True, "steps": 1},
                "budget": 1,
            },
        },
        "configure-disarm": {
            "type": "configure",
            "id": "c-3",
            "patch": {"flags": {}, "perturb": None, "mode": {"paused": False}, "budget": None},
        },
        "configured-controls": {
            "type": "configured",
            "id": "c-2",
            "applied": True,
            "step": 1300,
            "config": both
            | {
                "perturb": {
                    "sites": {"system": {"kind": kind, "layers": "2-3", "phases": ["train"]}},
                    "seed": 7,
                    "steps": 50,
                    "until": 1349,
                },
                "mode": {"paused": True},
                "budget": 1,
            },
        },
        "configured-accepted": {
            "type": "configured",
            "id": "c-1",
            "applied": False,
            "step": 1243,
            "config": config,
        },
        "configured-applied": {
            "type": "configured",
            "id": "c-1",
            "applied": True,
            "step": 1243,
            "config": config,
            "by": peer,
            "time": 1.79e9,
        },
        "status-producer": {
            "type": "status",
            "state": "training",
            "step": 1242,
            "probes": {"fired": 312, "expected": 312, "missing": []},
            "overhead": {"percent": 0.6, "low": 0.4, "high": 0.8},
        },
        "status": {
            "type": "status",
            "state": "training",
            "step": 1242,
            "time": 1.79e9,
            "probes": {"fired": 11, "expected": 12, "missing": ["MLP1_mat_mul layer 3"]},
            "overhead": {"percent": 0.6, "low": 0.4, "high": 0.8},
            "nonfinite": {"count": 3, "first": {"step": 812, "layer": 3, "flag": "MLP1_mat_mul"}},
            "dropped": {"producer": 0, "viewer": 12, "recorder": 0},
            "bytes_per_step": 43008,
            "viewers": 2,
            "producers": [0],
            "recording": {"state": "on", "bytes": 1048576, "missing_steps": [[3, 4]]},
            "warnings": ["The hub was restarted at step 812."],
        },
        "status-ranks": {
            "type": "status",
            "state": "paused",
            "step": 1300,
            "ranks": [
                {"rank": 0, "name": "rank 0 (tp 0, pp 0)", "state": "paused", "step": 1300, "seconds": 0.1},
                {
                    "rank": 3,
                    "name": "rank 3 (tp 1, pp 1) on node-1",
                    "state": "silent",
                    "step": 1299,
                    "seconds": 2.5,
                },
            ],
            "perturbed_steps": 12,
            "budget": {
                "limit": 1,
                "state": "inside",
                "percent": 0.8,
                "low": 0.5,
                "high": 1.1,
                "steps": 400,
                "gave_up": ["Every second step is traced instead of every step."],
            },
        },
        "error": {
            "type": "error",
            "code": "bad-reduction",
            "message": "The reduction 'meen' is not known at column 1. Write mean, max, std or an expression over data.",
            "reply_to": "c-1",
            "field": "flags.MLP1_mat_mul.compressor.params.reduction",
            "column": 1,
            "expected": "an expression over data",
            "got": "meen",
        },
        "goodbye": {"type": "goodbye", "reason": "finished", "message": "Training ended after 3 000 steps."},
    }


def rows_as_json(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    def plain(value: object) -> object:
        if isinstance(value, list):
            return [plain(item) for item in value]
        if isinstance(value, float) and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if value == 0 and isinstance(value, float) and math.copysign(1, value) < 0:
            return "-0"
        return value

    return [{name: plain(value) for name, value in row.items()} for row in rows]


def contents() -> dict[str, bytes]:
    """Every fixture file by its path under ``protocol/fixtures``."""
    files: dict[str, bytes] = {}
    for name, (stream, rows, header) in frames().items():
        table = pa.Table.from_pylist(rows, schema=stream_schema(stream))
        files[f"frames/{name}.frame"] = encode_frame(stream, table, time_us=TIME_US, **header)
        # float32 columns: the JSON holds what the frame holds, not what was typed above.
        described = {
            "stream": stream,
            "seq": header["seq"],
            "step": header["step"],
            "time_us": TIME_US,
            "bits": header.get("bits", 0),
            "rows": rows_as_json(table.to_pylist()),
        }
        files[f"frames/{name}.json"] = (json.dumps(described, indent=2, ensure_ascii=False) + "\n").encode()
    for name, message in messages().items():
        encode_message(message)
        files[f"messages/{name}.json"] = (json.dumps(message, indent=2, ensure_ascii=False) + "\n").encode()
    for name, cases in (
        ("merge", merge_cases()),
        ("raw", raw_cases()),
        ("names", name_cases()),
        ("groups", group_cases()),
    ):
        files[f"moments/{name}.json"] = (json.dumps(cases, indent=1, ensure_ascii=False) + "\n").encode()
    return files


def main() -> int:
    changed = [path for path, data in contents().items() if not _same(ROOT / path, data)]
    if "--check" in sys.argv[1:]:
        print("\n".join(f"{path} would change: run python scripts/make_fixtures.py" for path in changed))
        return 1 if changed else 0
    for path, data in contents().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_bytes(data)
    print(f"{len(changed)} of {len(contents())} fixtures changed")
    return 0


def _same(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


if __name__ == "__main__":
    sys.exit(main())
