"""What to trace, as data: compressors and flag settings that need no torch to write down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from .errors import ProtocolError
from .kinds import Kind, kind_from_setting, kind_infos

__all__ = [
    "COMPRESSORS",
    "Compressor",
    "Empty",
    "NoOp",
    "Projection",
    "Tile",
    "compressor_from_setting",
    "compressor_infos",
    "parse_layers",
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
            "description": "One number a tile: mean, max, std, or an expression over data such as data.abs().mean(dim=-1).",
            "minLength": 1,
            "maxLength": 500,
            "default": "mean",
            "examples": ["mean", "max", "std", "norm", "abs().mean()"],
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
    title: ClassVar[str] = "Shape and counts only"


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


COMPRESSORS: dict[str, type[Compressor]] = {kind.name: kind for kind in (Tile, NoOp, Empty, Projection)}


def compressor_infos() -> list[dict[str, Any]]:
    """Return the ``CompressorInfo`` list that ``announce`` and ``hello`` carry."""
    return kind_infos(COMPRESSORS)


def compressor_from_setting(setting: Mapping[str, Any], field: str = "compressor") -> Compressor:
    """Return the compressor that a ``CompressorSetting`` names.

    Raises
    ------
    ProtocolError
        ``unknown-compressor`` or ``bad-parameter``, with the dotted field.
    """
    return kind_from_setting(COMPRESSORS, setting, field, noun="compressor", unknown="unknown-compressor")


def parse_layers(text: str, existing: Iterable[int], field: str = "layers") -> list[int]:
    """Return the layers that a range text such as ``'1-4,7'`` or ``'all'`` names, in order.

    Raises
    ------
    ProtocolError
        ``unknown-layer`` when a named layer does not exist or the text is no range.
    """
    known = sorted(set(existing))
    if text == "all":
        return known
    span = f"{known[0]}–{known[-1]}" if known else "none"
    wanted: set[int] = set()
    for piece in text.split(","):
        first, dash, last = piece.strip().partition("-")
        digits = (first, last) if dash else (first,)
        if not all(d.isascii() and d.isdecimal() and len(d) <= 6 for d in digits):
            raise ProtocolError(
                "unknown-layer",
                f"{text!r:.100} is not a layer range. Write 'all', '3', '1-4' or '1-4,7'.",
                field=field,
                expected="all, 3, 1-4 or 1-4,7",
                got=repr(piece)[:100],
            )
        low, high = int(first), int(last) if dash else int(first)
        outside = low if low not in known else high
        if low > high or low not in known or high not in known:
            raise ProtocolError(
                "unknown-layer",
                f"Layers {piece.strip()} do not all exist here. This model has layers {span}.",
                field=field,
                expected=span,
                got=str(outside),
            )
        wanted.update(layer for layer in known if low <= layer <= high)
    return sorted(wanted)
