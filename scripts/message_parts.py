"""Longer parts of the golden messages: compressors as a hub offers them, and streams that only a producer declares."""

from __future__ import annotations

from typing import Any

__all__ = ["COMPRESSORS", "LATER_STREAMS", "WEIGHT_NORMS"]


def _compressor(
    name: str, title: str, description: str, properties: dict[str, Any], *required: str
) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "required": list(required)}
    return {
        "name": name,
        "title": title,
        "description": description,
        "schema": {**schema, "properties": properties},
    }


COMPRESSORS = [
    _compressor(
        "Tile",
        "Tile",
        "Cut the last axis into equal tiles and reduce each to one number.",
        {
            "tiles": {
                "type": "integer",
                "title": "Tiles",
                "description": "At most this many tiles over the features.",
                "minimum": 1,
                "maximum": 65536,
                "default": 96,
            },
            "reduction": {
                "type": "string",
                "title": "Reduction",
                "description": "One number a tile: mean, rms (how large values of both signs are), max, std, or an expression "
                "over data such as data.abs().mean(dim=-1).",
                "minLength": 1,
                "maxLength": 500,
                "default": "mean",
                "examples": ["mean", "rms", "max", "std", "norm", "abs().mean()"],
            },
        },
    ),
    _compressor("NoOp", "No compression", "Keep every value.", {}),
    _compressor("Empty", "Counts only", "Keep no value, only the shape and the non-finite counts.", {}),
    _compressor(
        "Projection",
        "Projection",
        "Project each position on one or more unit vectors per layer, loaded from a file in an allowed folder.",
        {
            "vectors": {
                "type": "string",
                "title": "Vectors",
                "description": "File with one vector per layer, [layers, features] or [layers, vectors, features]: "
                ".safetensors, .npy or weights-only .pt.",
                "minLength": 1,
                "maxLength": 1000,
            }
        },
        "vectors",
    ),
    _compressor(
        "Peaks",
        "Peaks",
        "Cut queries and keys of attention probabilities into blocks and keep the largest value of each.",
        {
            "cells": {
                "type": "integer",
                "title": "Cells",
                "description": "At most this many blocks along queries and along keys; a block's side is a power of two.",
                "minimum": 1,
                "maximum": 65536,
                "default": 256,
            }
        },
    ),
    _compressor(
        "Histogram",
        "Histogram",
        "Count the values of each sample in fixed bins, the same for every tensor, so that counts of ranks, steps and layers "
        "add up.",
        {
            "bins": {
                "type": "integer",
                "title": "Bins",
                "description": "Bins of each sign, besides one for zero.",
                "minimum": 4,
                "maximum": 1024,
                "default": 128,
            },
            "log": {
                "type": "boolean",
                "title": "Logarithmic",
                "description": "Bins that grow with the value, for sizes from 2^-40 to 2^24; else bins of one width, up to the "
                "limit.",
                "default": True,
            },
            "tiles": {
                "type": "integer",
                "title": "Tiles",
                "description": "Count apart in at most this many tiles over the features.",
                "minimum": 1,
                "maximum": 4096,
                "default": 1,
            },
            "limit": {
                "type": "number",
                "title": "Limit",
                "description": "Size at which bins of one width end.",
                "minimum": 1e-30,
                "maximum": 1e30,
                "default": 1.0,
            },
        },
    ),
]

_POLICY: dict[str, Any] = {
    "keep": "newest",
    "hub_bytes": 1048576,
    "drop": {"order": 3},
    "identity": ["name"],
    "newer": "step",
    "page_bytes": 65536,
    "row_bytes": 48,
    "replay_order": 5,
    "ask": {"name": "equal"},
    "nonfinite": {"values": ["value"], "first": ["step", "name"]},
    "packing": {"group_rows": 65536, "fast": ["value"]},
}

WEIGHT_NORMS: dict[str, Any] = {
    "title": "Weight norms",
    "doc": "One row is the L2 norm of one weight after a step's update.",
    "instrument": "weight_norms",
    "policy": _POLICY,
    "fields": [
        {"name": "step", "type": "int64", "doc": "Training step, counted from 1."},
        {"name": "name", "type": "utf8", "doc": "Canonical name of the weight."},
        {"name": "value", "type": "float64", "doc": "L2 norm."},
    ],
}

LATER_STREAMS = {
    "weight_norms": {
        **WEIGHT_NORMS,
        "policy": {**_POLICY, "of_a_later_version": {"any": [1, "x", None]}},
        "later": True,
    },
    "odd": {
        "title": "Of a later version",
        "policy": {"keep": "by_hand"},
        "fields": [{"name": "step", "type": "int64"}, {"name": "z", "type": "complex64"}],
    },
}
"""Declarations with members, a policy and a type that this version does not know."""
