"""What to trace, as data: compressors and flag settings that need no torch to write down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .kinds import Kind, kind_from_setting, kind_infos
from .messages_generated import CompressorInfo

__all__ = [
    "COMPRESSORS",
    "Compressor",
    "Empty",
    "NoOp",
    "Peaks",
    "Projection",
    "Tile",
    "compressor_from_setting",
    "compressor_infos",
]


@dataclass(frozen=True)
class Compressor(Kind):
    """How one traced tensor is made small. Subclasses hold the parameters; the tracer does the arithmetic."""

    def __str__(self) -> str:
        """Return the canonical text, such as ``Tile(tiles=96, reduction='mean')``."""
        return f"{self.name}({', '.join(f'{k}={v!r}' for k, v in asdict(self).items())})"


@dataclass(frozen=True)
class Tile(Compressor):
    """Cut the last axis into equal tiles and reduce each to one number.

    A last axis of F features is cut into tiles of ``ceil(F / tiles)`` features, which gives at most ``tiles`` of them; the last one
    holds what is left and is reduced over its own features only.
    """

    name: ClassVar[str] = "Tile"
    title: ClassVar[str] = "Tile"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
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
            "description": "One number a tile: mean, rms (how large values of both signs are), max, std, or an expression over data such as data.abs().mean(dim=-1).",
            "minLength": 1,
            "maxLength": 500,
            "default": "mean",
            "examples": ["mean", "rms", "max", "std", "norm", "abs().mean()"],
        },
    }
    tiles: int = 96
    reduction: str = "mean"


@dataclass(frozen=True)
class NoOp(Compressor):
    """Keep every value."""

    name: ClassVar[str] = "NoOp"
    title: ClassVar[str] = "No compression"


@dataclass(frozen=True)
class Empty(Compressor):
    """Keep no value, only the shape and the non-finite counts."""

    name: ClassVar[str] = "Empty"
    title: ClassVar[str] = "Counts only"


@dataclass(frozen=True)
class Projection(Compressor):
    """Project each position on one or more unit vectors per layer, loaded from a file in an allowed folder."""

    name: ClassVar[str] = "Projection"
    title: ClassVar[str] = "Projection"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "vectors": {
            "type": "string",
            "title": "Vectors",
            "description": "File with one vector per layer, [layers, features] or [layers, vectors, features]: .safetensors, .npy or weights-only .pt.",
            "minLength": 1,
            "maxLength": 1000,
        }
    }
    vectors: str = ""


@dataclass(frozen=True)
class Peaks(Compressor):
    """Cut queries and keys of attention probabilities into blocks and keep the largest value of each.

    An axis of N positions is cut into blocks of ``side(N)``; the last one holds what is left. Where N is at most ``cells`` the blocks are single positions.
    """

    name: ClassVar[str] = "Peaks"
    title: ClassVar[str] = "Peaks"
    properties: ClassVar[dict[str, dict[str, Any]]] = {
        "cells": {
            "type": "integer",
            "title": "Cells",
            "description": "At most this many blocks along queries and along keys; a block's side is a power of two.",
            "minimum": 1,
            "maximum": 65536,
            "default": 256,
        }
    }
    cells: int = 256

    def side(self, positions: int) -> int:
        """Return the side of the blocks of an axis: the smallest power of two that leaves at most ``cells`` of them."""
        return 1 << (max(1, -(-positions // self.cells)) - 1).bit_length()


COMPRESSORS: dict[str, type[Compressor]] = {
    kind.name: kind for kind in (Tile, NoOp, Empty, Projection, Peaks)
}


def compressor_infos() -> list[CompressorInfo]:
    """Return the ``CompressorInfo`` list that ``announce`` and ``hello`` carry."""
    return [*kind_infos(COMPRESSORS)]


def compressor_from_setting(setting: Mapping[str, Any], field: str = "compressor") -> Compressor:
    """Return the compressor that a ``CompressorSetting`` names.

    Raises
    ------
    ProtocolError
        ``unknown-compressor`` or ``bad-parameter``, with the dotted field.
    """
    return kind_from_setting(COMPRESSORS, setting, field, noun="compressor", unknown="unknown-compressor")
