"""What to trace, as data: compressors and flag settings that need no torch to write down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from .errors import ProtocolError

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
class Compressor:
    """How one traced tensor is made small. Subclasses hold the parameters; the tracer does the arithmetic."""

    title: ClassVar[str] = ""
    properties: ClassVar[dict[str, dict[str, Any]]] = {}

    def to_setting(self) -> dict[str, Any]:
        """Return the ``CompressorSetting`` that goes into a message."""
        return {"name": type(self).__name__, "params": asdict(self)}

    def __str__(self) -> str:
        """Return the canonical text, such as ``Tile(tiles=96, reduction='mean')``."""
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in asdict(self).items())})"


@dataclass(frozen=True)
class Tile(Compressor):
    """Cut the last axis into equal tiles and reduce each to one number.

    A last axis of F features is cut into tiles of ``ceil(F / tiles)`` features, which gives at most ``tiles`` of them; the last one
    holds what is left and is reduced over its own features only.
    """

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

    title: ClassVar[str] = "No compression"


@dataclass(frozen=True)
class Empty(Compressor):
    """Keep no value, only the shape and the non-finite counts."""

    title: ClassVar[str] = "Shape and counts only"


@dataclass(frozen=True)
class Projection(Compressor):
    """Project each position on one or more unit vectors per layer, loaded from a file in an allowed folder."""

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


COMPRESSORS: dict[str, type[Compressor]] = {c.__name__: c for c in (Tile, NoOp, Empty, Projection)}


def compressor_infos() -> list[dict[str, Any]]:
    """Return the ``CompressorInfo`` list that ``announce`` and ``hello`` carry."""
    return [
        {
            "name": name,
            "title": kind.title,
            "description": " ".join((kind.__doc__ or "").split("\n\n")[0].split()),
            "schema": {
                "type": "object",
                "additionalProperties": False,
                "required": [k for k, v in kind.properties.items() if "default" not in v],
                "properties": kind.properties,
            },
        }
        for name, kind in COMPRESSORS.items()
    ]


def compressor_from_setting(setting: Mapping[str, Any], field: str = "compressor") -> Compressor:
    """Return the compressor that a ``CompressorSetting`` names.

    Raises
    ------
    ProtocolError
        ``unknown-compressor`` or ``bad-parameter``, with the dotted field.
    """
    name = setting.get("name")
    kind = COMPRESSORS.get(name) if isinstance(name, str) else None
    if kind is None:
        known = ", ".join(COMPRESSORS)
        raise ProtocolError(
            "unknown-compressor",
            f"There is no compressor {name!r}. Choose one of {known}.",
            field=f"{field}.name",
            expected=known,
            got=repr(name)[:200],
        )
    given = dict(setting.get("params") or {})
    known_names = [f.name for f in fields(kind)]
    for key, value in given.items():
        where = f"{field}.params.{key}"
        if key not in known_names:
            raise ProtocolError(
                "bad-parameter",
                f"{name} has no parameter {key!r}. It takes {', '.join(known_names) or 'none'}.",
                field=where,
                expected=", ".join(known_names) or "none",
                got=repr(key)[:200],
            )
        _check_parameter(str(name), key, value, kind.properties[key], where)
    for key, spec in kind.properties.items():
        if key not in given and "default" not in spec:
            raise ProtocolError(
                "bad-parameter", f"{name} needs {key}: {spec['description']}", field=f"{field}.params.{key}"
            )
    return kind(**given)


def _check_parameter(name: str, key: str, value: Any, spec: Mapping[str, Any], field: str) -> None:
    if spec["type"] == "integer":
        low, high = spec["minimum"], spec["maximum"]
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        expected = f"a whole number from {low} to {high}"
    else:
        low, high = spec["minLength"], spec["maxLength"]
        fits = isinstance(value, str) and low <= len(value) <= high
        expected = f"text of {low} to {high} characters"
    if not fits:
        raise ProtocolError(
            "bad-parameter",
            f"{name}({key}=…) must be {expected}, and {value!r:.100} came.",
            field=field,
            expected=expected,
            got=repr(value)[:200],
        )


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
