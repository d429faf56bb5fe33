"""Plain PyTorch models: the table of the demo's GPT, which is also the one to copy for a model of one's own."""

from __future__ import annotations

from .adapter import Adapter

__all__ = ["GPT_TABLE"]

GPT_TABLE = Adapter(
    name="plain",
    layer="blocks.{i}",
    attention="attention",
    qkv="attention.qkv",
    context="attention.projection",
    probabilities="attention.scores",
    fc1="mlp.fc1",
    fc2="mlp.fc2",
    tokens="embedding",
    positions="positions",
)
"""Blocks with a fused ``attention.qkv``, ``attention.scores``, ``attention.projection``, ``mlp.fc1`` and ``mlp.fc2``."""
