"""The golden messages: each kind, and what it may hold."""

from __future__ import annotations

from scripts.message_parts import COMPRESSORS, LATER_STREAMS, WEIGHT_NORMS

__all__ = ["message_cases"]


def message_cases() -> dict[str, dict[str, object]]:
    """Fixture name → message."""
    peer = {"name": "panel", "version": "0.1.0"}
    config = {
        "flags": {
            "MLP1_mat_mul": {
                "layers": "0-3",
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
            "layers": [0, 1, 2, 3],
            "parts": [""],
            "axes": ["position", "feature"],
            "features": 512,
            "bytes_per_layer": 262144,
            "widths": [512],
            "compressor": {"name": "Tile", "params": {"tiles": 64, "reduction": "rms"}},
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
        {
            "name": "ExpertOutputs",
            "title": "Expert outputs",
            "layers": [1, 3],
            "parts": ["expert0", "expert1"],
            "axes": ["token", "feature"],
            "features": 256,
            "bytes_per_layer": None,
            "widths": [128, 128],
            "compressor": {"name": "Tile", "params": {"tiles": 64, "reduction": "rms"}},
        },
    ]
    versions = {"megalens": "0.1.0", "torch": "2.13.0", "python": "3.11.7"}
    kind = {"name": "noise1", "params": {"coefficient": 0.01}}
    site = {
        "name": "system",
        "title": "Between layers",
        "layers": [0, 1, 2, 3],
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
    judged = {
        "rules": {"jump": {"on": True, "threshold": 12.0}},
        "muted": [{"rule": "dead", "name": "*.bias"}],
    }
    configurable = {
        "monitor": {
            "title": "Rules",
            "schema": {
                "type": "object",
                "properties": {
                    "rules": {
                        "type": "object",
                        "properties": {
                            "jump": {
                                "type": "object",
                                "title": "Jump",
                                "properties": {
                                    "on": {"type": "boolean", "default": True},
                                    "threshold": {"type": "number", "exclusiveMinimum": 0, "default": 10.0},
                                },
                            }
                        },
                    },
                    "muted": {"type": "array", "items": {"type": "object"}},
                },
            },
        }
    }
    run = {"id": "20261121-120000-gpt-demo-1a2b", "name": "gpt-demo", "started": 1.79e9}
    traced = {
        **{"model": model, "layout": layout, "flags": flags, "compressors": COMPRESSORS},
        **{"config": config, "versions": versions},
    }
    joins = {"type": "join", "protocol": "megalens.v2"}
    hello = {
        **{"type": "hello", "protocol": "megalens.v2", "run": run, "seq": 41},
        **traced,
        "limits": {"max_message_bytes": 1048576, "viewer_queue_bytes": 8388608, "backlog_bytes": 67108864},
    }
    announce = {"type": "announce", "rank": 0, "run_name": "gpt-demo", **traced}
    perturb = {
        "sites": {"system": {"kind": kind, "layers": "1-2", "phases": ["train"]}},
        "seed": 7,
        "steps": 50,
    }
    accepted = {"type": "configured", "id": "c-1", "applied": False, "step": 1243, "config": config}
    overhead = {"percent": 0.6, "low": 0.4, "high": 0.8}
    status = {
        "type": "status",
        "state": "training",
        "step": 1242,
        "time": 1.79e9,
        "probes": {
            "fired": 11,
            "expected": 12,
            "missing": ["MLP1_mat_mul layer 2"],
            "reasons": [
                {
                    "reason": "its module was not called in this step",
                    "missing": ["MLP1_mat_mul layer 2"],
                }
            ],
        },
        "overhead": overhead,
        "nonfinite": {"count": 3, "first": {"step": 812, "layer": 2, "flag": "MLP1_mat_mul"}},
        "dropped": {"producer": 0, "viewer": 12, "recorder": 0},
        "bytes_per_step": 43008,
        "viewers": 2,
        "producers": [0],
        "recording": {"state": "on", "bytes": 1048576, "missing_steps": [[3, 4]]},
        "warnings": ["The hub was restarted at step 812."],
    }
    return {
        "join-viewer": {**joins, "role": "viewer", "peer": peer, "since": None},
        "join-again": {
            **joins,
            **{"role": "viewer", "peer": peer | {"user": "ada"}},
            **{"since": 41, "run": run["id"], "backlog": 1048576},
        },
        "join-producer": {**joins, "role": "producer", "peer": {"name": "tracer", "version": "0.1.0"}},
        "announce": announce,
        "announce-streams": announce | {"streams": {"weight_norms": WEIGHT_NORMS}},
        "hello": hello,
        "hello-streams": hello | {"streams": LATER_STREAMS},
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
            **{"type": "announce", "rank": 2, "leader": 0, **traced, "layout": split},
            "controls": ["pause", "watched", "perturb"],
            "sites": [site],
            "statistics": {"param": 1, "activation": 100},
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
            "patch": both | {"perturb": perturb, "mode": {"paused": True, "steps": 1}, "budget": 1},
        },
        "configure-disarm": {
            "type": "configure",
            "id": "c-3",
            "patch": {"flags": {}, "perturb": None, "mode": {"paused": False}, "budget": None},
        },
        "configure-instruments": {
            "type": "configure",
            "id": "c-4",
            "patch": {
                "flags": {},
                "instruments": {
                    "monitor": {"rules": {"jump": {"threshold": 12.0}}, "muted": judged["muted"]},
                    "moments": {"every": {"grad": 0}},
                },
            },
        },
        "configured-instruments": {
            "type": "configured",
            "id": "c-4",
            "applied": True,
            "step": 1252,
            "config": {**config, "instruments": {"monitor": judged, "moments": {"every": {"grad": 0}}}},
        },
        "hello-instruments": {
            **hello,
            "config": {**config, "instruments": {"monitor": judged}},
            "configurable": configurable,
        },
        "configured-controls": {
            "type": "configured",
            "id": "c-2",
            "applied": True,
            "step": 1300,
            "config": both | {"perturb": perturb | {"until": 1349}, "mode": {"paused": True}, "budget": 1},
        },
        "configured-accepted": accepted,
        "configured-applied": accepted | {"applied": True, "by": peer, "time": 1.79e9},
        "status-producer": {
            "type": "status",
            "state": "training",
            "step": 1242,
            "probes": {"fired": 312, "expected": 312, "missing": []},
            "compiled": {"times": 2, "again": 0},
            "overhead": overhead,
        },
        "status": status,
        "status-streams": status
        | {
            "streams": {
                "tensors": {
                    "rows": 2484,
                    "bytes": 53415936,
                    "first_step": 1,
                    "last_step": 1242,
                    "dropped": 12,
                    "nonfinite": {"count": 3, "first": {"step": 812, "layer": 2, "flag": "MLP1_mat_mul"}},
                },
                "weight_norms": {
                    "rows": 1242,
                    "bytes": 496800,
                    "first_step": 1,
                    "last_step": 1242,
                    "of_a_later_version": [1],
                },
            }
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
            "left_out_passes": 3,
            "micro_batches": 8,
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
        "generate": {
            "type": "generate",
            "id": "g-1",
            "request": {
                "prompts": ["The list", "A tuple is\n"],
                "tokens": 40,
                "temperature": 0.8,
                "top_k": 50,
                "top_p": 0.95,
                "seed": 7,
                "samples": 2,
                "stop": ["\n\n"],
                "stop_tokens": [0],
                "candidates": 10,
                "attention": True,
                "lens": 5,
                "perturb": {
                    "sites": {
                        "system": {
                            "kind": {"name": "Noise1", "params": {"coefficient": 0.1}},
                            "layers": "1-2",
                        }
                    }
                },
                "sweep": {"over": "coefficient", "values": [0.01, 0.1, 1]},
            },
            "by": {"name": "panel", "version": "0.1.0", "user": "Ada"},
        },
        "generate-plain": {
            "type": "generate",
            "id": "g-2",
            "request": {"prompts": ["x"], "perturb": None, "sweep": None},
        },
        "generating": {"type": "generating", "id": "g-1", "generation": 4, "control": 3},
        "cancel": {"type": "cancel", "id": "g-3", "generation": 4},
        "goodbye": {"type": "goodbye", "reason": "finished", "message": "Training ended after 3 000 steps."},
    }
