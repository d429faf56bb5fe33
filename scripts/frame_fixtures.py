"""The golden frames: rows of every stream, with what is hard to carry."""

from __future__ import annotations

import math

from scripts.moment_fixtures import moment_row

__all__ = ["frame_cases"]

NAN, INF = math.nan, math.inf


def tensor_row(**changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "step": 7,
        "micro_batch": 0,
        "phase": "train",
        "pass": "forward",
        "rank": 0,
        "layer": 0,
        "flag": "MLP1_mat_mul",
        "part": "",
        "compressor": "Tile(tiles=3, reduction='mean')",
        "source_shape": [2, 2, 8],
        "shape": [1, 2, 3],
        "values": [0.5, -1.25, 3.0, 0.0, 1e-30, -65504.0],
        "labels": [],
        "nan_count": 0,
        "inf_count": 0,
    }
    return row | changes


_OF_32 = moment_row([value / 8 for value in range(-12, 20)])
_WHOLE = {name: _OF_32[name] for name in ("count", "mean", "m2", "m3", "m4", "min", "max")}
"""Of the whole tensor of ``source_shape``."""


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


def _scalar(step: int, name: str, value: float, unit: str, time: float = 1.79e9) -> dict[str, object]:
    return {"step": step, "time": time, "rank": 0, "name": name, "value": value, "unit": unit}


def _audit(step: int, who: str, action: str, detail: str) -> list[dict[str, object]]:
    return [{"step": step, "time": 1.79e9, "who": who, "action": action, "detail": detail}]


_PASS: dict[str, object] = {
    **{"step": 20, "rank": 1, "stage": 0, "chunk": 0, "micro_batch": 3},
    **{"start": 8_123_456_789_012, "end": 8_123_457_790_345},
    **{"device": "cuda:1", "clock": 187_649_984_473_770},
}
"""What memory and span say of the same pass."""


def frame_cases() -> dict[str, tuple[str, list[dict[str, object]], dict[str, int]]]:
    """Fixture name → stream, rows, header."""
    return {
        "tensors-plain": (
            "tensors",
            [tensor_row(layer=layer, **_WHOLE) for layer in (0, 1, 2)],
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
                    layer=-1,
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
                _scalar(7, "loss", 2.5, "nats/byte"),
                _scalar(7, "lr", 3e-4, ""),
                _scalar(7, "grad_norm", NAN, ""),
                _scalar(7, "held_out_loss", -INF, "nats/byte"),
            ],
            {"seq": 6, "step": 7},
        ),
        "scalars-caught-up": (
            "scalars",
            [_scalar(s, "loss", 5.0 / s, "nats/byte", 1.79e9 + s) for s in range(1, 6)],
            {"seq": 9, "step": 5, "caught_up": True, "merged": True},
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
                    stat="underflow",
                    name="decoder.layers.0.mlp.linear_fc1/input0/activation:float8_e4m3fn",
                    **moment_row([1.0] + [0.0] * 7),
                ),
                moments_row(
                    rank=3, stage=1, m4=INF, min=NAN, max=NAN, nan_count=NAN, inf_count=NAN, rounding=2.0**-24
                ),
            ],
            {"seq": 11, "step": 20},
        ),
        "alarms": (
            "alarms",
            [
                {
                    "step": 20,
                    "time": 1.79e9,
                    "rank": 1,
                    "stage": -1,
                    "micro_batch": 0,
                    "rule": "nonfinite",
                    "severity": "critical",
                    "direction": "forward",
                    "stat": "activation",
                    "name": "decoder.layers.3.mlp.linear_fc1/output0",
                    "statistic": "inf_count",
                    "value": INF,
                    "expected": 0.0,
                    "sentence": "12 of 4,096 values are infinite.",
                    "place": 17,
                    "samples": "[640, 641]",
                    "cause": 20,
                }
            ],
            {"seq": 13, "step": 20},
        ),
        "memory": (
            "memory",
            [
                {
                    **_PASS,
                    **{"phase": phase, "name": name, "before": 6_100_000_000, "allocated": 6_900_000_000},
                    **{
                        "reserved": 9_000_000_000,
                        "peak": peak,
                        "limit": 85_899_345_920,
                        "limit_of": "device",
                    },
                }
                for phase, name, peak in (
                    ("forward", "layers.2", 7_200_000_000),
                    ("backward", "", 7_900_000_000),
                )
            ],
            {"seq": 19, "step": 20},
        ),
        "spans": (
            "spans",
            [
                {
                    **_PASS,
                    **{"kind": "forward", "name": "layers.2.mlp", "count": 1, "blocked": 1_001_333},
                    **{"bytes": 0, "group": "", "peer": -1, "sequence": -1},
                },
                {
                    **_PASS,
                    **{"chunk": -1, "micro_batch": -1, "device": "cpu"},
                    **{"start": 8_123_458_000_000, "end": 8_123_461_500_000},
                    **{"kind": "collective", "name": "all_reduce", "count": 1, "blocked": 250_000},
                    **{"bytes": 1_048_576, "group": "0-3,8", "peer": -1, "sequence": 41},
                },
            ],
            {"seq": 14, "step": 20},
        ),
        "generations": (
            "generations",
            [
                {
                    "step": 41,
                    "time": 1.79e9,
                    "generation": 2,
                    "state": "running",
                    "who": "panel",
                    "place": 0,
                    "control": 1,
                    "sequences": 2,
                    "padded": 5,
                    "first_step": 40,
                    "last_step": 41,
                    "tokens": 2,
                    "seconds": 0.25,
                    "request": '{"prompts": ["The list", "A"]}',
                    "message": "Attention was computed with eager instead of sdpa.",
                }
            ],
            {"seq": 15, "step": 41},
        ),
        "tokens": (
            "tokens",
            [
                {
                    "step": 40,
                    "generation": 2,
                    "sequence": 1,
                    "position": 0,
                    "kind": "prompt",
                    "id": 226,
                    "text": "",
                    "piece": "<0xE2>",
                    "logit": NAN,
                    "probability": NAN,
                    "sampled_probability": NAN,
                    "rank": -1,
                    "entropy": NAN,
                    "candidate_ids": [],
                    "candidate_texts": [],
                    "candidate_logits": [],
                    "candidate_probabilities": [],
                    "candidate_sampled": [],
                    "tensor_step": 40,
                    "tensor_pass": 0,
                    "tensor_offset": 4,
                },
                {
                    "step": 41,
                    "generation": 2,
                    "sequence": 1,
                    "position": 1,
                    "kind": "generated",
                    "id": 32,
                    "text": " ",
                    "piece": " ",
                    "logit": 4.5,
                    "probability": 0.75,
                    "sampled_probability": 1.0,
                    "rank": 0,
                    "entropy": 0.5,
                    "candidate_ids": [32, 101],
                    "candidate_texts": [" ", "e"],
                    "candidate_logits": [4.5, float("-inf")],
                    "candidate_probabilities": [0.75, 0.0],
                    "candidate_sampled": [1.0, 0.0],
                    "tensor_step": -1,
                    "tensor_pass": -1,
                    "tensor_offset": -1,
                },
            ],
            {"seq": 16, "step": 41},
        ),
        "lens": (
            "lens",
            [
                {
                    "step": 41,
                    "generation": 2,
                    "sequence": 0,
                    "position": 7,
                    "layer": 3,
                    "ids": [32, 101],
                    "texts": [" ", "e"],
                    "probabilities": [0.5, 0.25],
                    "token": 101,
                    "token_rank": 1,
                    "token_probability": 0.25,
                    "entropy": 1.5,
                }
            ],
            {"seq": 17, "step": 41},
        ),
        "effects": (
            "effects",
            [
                {
                    "step": 60,
                    "generation": 2,
                    "control": 1,
                    "sequence": 0,
                    "position": -1,
                    "layer": -1,
                    "point": 2,
                    "setting": "0.1",
                    "value": 0.1,
                    "kl": 0.125,
                    "changed": 0.25,
                    "distance": NAN,
                    "divergence": 12,
                }
            ],
            {"seq": 18, "step": 60},
        ),
        "audit": (
            "audit",
            _audit(12, "panel", "configure", '{"flags":{"HiddenStates":null}}'),
            {"seq": 10, "step": 12},
        ),
        "audit-no-step": (
            "audit",
            _audit(-1, "tracer", "connect", "{}"),
            {"seq": 0, "step": -1},
        ),
        "audit-checkpoint": (
            "audit",
            _audit(500, "tracer", "checkpoint", '{"name": "checkpoint-500"}'),
            {"seq": 12, "step": 500},
        ),
    }
