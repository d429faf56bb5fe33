"""Mutators that every surface shares: JSON by its schema, texts by their grammar's pieces, bytes with their lengths and offsets."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

__all__ = [
    "FIXTURES",
    "HOSTILE",
    "hostile_text",
    "hostile_value",
    "instance",
    "json_text",
    "mutated_bytes",
    "mutated_text",
    "mutated_tree",
    "schema_words",
]

FIXTURES = Path(__file__).parents[2] / "protocol" / "fixtures"
HOSTILE: dict[str, list[Any]] = json.loads((FIXTURES / "hostile.json").read_text(encoding="utf-8"))
"""The list that both languages' suites read."""
_NUMBERS = [*HOSTILE["numbers"], math.nan]
_EDGES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)
_MOST_DEPTH = 40


def hostile_text(chance: Random) -> str:
    """Return one hostile text: control characters, half surrogates, names of prototypes, code, markup, paths, or a long one."""
    if chance.random() < 0.12:
        piece, times = chance.choice(HOSTILE["repeated"])
        return piece * times
    kind = "texts" if chance.random() < 0.8 else chance.choice(("names", "patterns", "expressions"))
    return chance.choice(HOSTILE[kind])


def hostile_value(chance: Random) -> Any:
    """Return one hostile JSON value."""
    kind = chance.randrange(9)
    if kind < 3:
        return hostile_text(chance)
    if kind < 6:
        return chance.choice(_NUMBERS)
    if kind < 8:
        return copy.deepcopy(chance.choice(HOSTILE["others"]))
    shape = chance.randrange(3)
    if shape == 0:
        value = hostile_value(chance)
        return [value] * (chance.choice((2, 70, 3000)) if len(repr(value)) < 300 else 2)
    value: Any = hostile_text(chance)
    for _ in range(chance.choice((3, 33, 300))):
        value = [value] if shape == 1 else {"a": value}
    return value


def mutated_tree(chance: Random, tree: Any, words: Sequence[str] = ()) -> Any:
    """Return a copy of a JSON tree with a few values swapped, bent, removed, doubled or added.

    Parameters
    ----------
    chance : random.Random
        Where choices come from.
    tree : object
        A value that is right, as a rule.
    words : sequence of str
        Member names of the grammar, so that what is added is often looked at.
    """
    box = [copy.deepcopy(tree)]
    for _ in range(chance.choice((1, 1, 1, 2, 3, 6))):
        places = _places(box)
        node, key = chance.choice(places)
        kind = chance.randrange(9)
        if kind == 0 and node is not box:
            del node[key]
        elif kind <= 3:
            node[key] = hostile_value(chance)
        elif kind == 4:
            node[key] = _bent(chance, node[key])
        elif kind == 5:
            other, at = chance.choice(places)
            # Through a copy, so that the tree never holds itself.
            node[key] = copy.deepcopy(other[at]) if _has(other, at) else None
        elif kind == 6 and isinstance(node, dict):
            name = chance.choice(words) if words and chance.random() < 0.6 else hostile_text(chance)
            node[name] = (
                hostile_value(chance) if chance.random() < 0.6 else copy.deepcopy(chance.choice(places)[0])
            )
        elif kind == 7 and isinstance(node, dict):
            node[chance.choice(HOSTILE["names"])] = node.pop(key)
        elif kind == 8 and isinstance(node[key], list):
            times = chance.choice((0, 2, 100)) if len(node[key]) < 100 else 1
            node[key] = node[key] * times + [hostile_value(chance)]
        else:
            node[key] = _retyped(node[key])
    return box[0]


def _places(box: list[Any]) -> list[tuple[Any, Any]]:
    places: list[tuple[Any, Any]] = []
    waiting: list[tuple[Any, int]] = [(box, 0)]
    while waiting and len(places) < 2000:
        node, depth = waiting.pop()
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(child, (dict, list)) and depth < _MOST_DEPTH:
                waiting.append((child, depth + 1))
    return places


def _has(node: Any, key: Any) -> bool:
    return key in node if isinstance(node, dict) else key < len(node)


def _bent(chance: Random, value: Any) -> Any:
    """Return a value next to the one that was: what a bound forgets."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, (int, float)):
        return chance.choice(
            (value + 1, value - 1, -value, value / 3 if abs(value) < 1e300 else 0, value * 10**9)
        )
    if isinstance(value, str):
        return chance.choice(
            (value + hostile_text(chance), value[:1000] * 2, value[:-1], value.upper(), value[::-1])
        )
    return [value]


def _retyped(value: Any) -> Any:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (int, float)):
        return str(value)[:60]
    return list(value) if isinstance(value, dict) else {str(at): each for at, each in enumerate(value or ())}


def json_text(chance: Random, tree: Any) -> str:
    """Return a tree as JSON text with Python's bare words for what is not finite; one in four has its characters changed too."""
    text = json.dumps(tree, ensure_ascii=chance.random() < 0.9)
    text = mutated_text(chance, text, _JSON_PIECES) if chance.random() < 0.25 else text
    # Sockets and files hold UTF-8: half a surrogate pair comes as an escape.
    return text.encode("utf-8", "replace").decode("utf-8")


_JSON_PIECES = (
    *("{", "}", "[", "]", '"', ",", ":", "null", "NaN", "-Infinity", "1e999", "-0", "\\ud800", "\\u0000"),
    *("0" * 50, "9" * 4400, "[" * 2000, '{"a":' * 500, "\x00", "\n", '"__proto__":1,', "\ufeff", "/*"),
)


def mutated_text(chance: Random, text: str, pieces: Sequence[str]) -> str:
    """Return a text with some of the grammar's pieces put in, taken out, doubled or swapped."""
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(text) + 1)
        end = min(len(text), at + chance.choice((0, 1, 1, 4, 20)))
        kind = chance.randrange(5)
        if kind <= 1:
            text = text[:at] + chance.choice(pieces) + text[end:]
        elif kind == 2:
            text = text[:at] + text[at:end] * chance.choice((2, 30)) + text[end:]
        elif kind == 3:
            text = text[:at] + hostile_text(chance) + text[end:]
        else:
            text = text[:at] + text[end:]
    return text


def mutated_bytes(chance: Random, data: bytes, spots: Sequence[range] = ()) -> bytes:
    """Return bytes with a few numbers changed (lengths and offsets are numbers of 1 to 8 bytes), moved, cut or added.

    Parameters
    ----------
    chance : random.Random
        Where choices come from.
    data : bytes
        A file or frame that is right.
    spots : sequence of range
        Where its headers, offsets and footers are: most changes fall there.
    """
    body = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 5, 9))):
        size = len(body)
        if size < 16:
            break
        spot = chance.choice(spots) if spots and chance.random() < 0.8 else range(size)
        at = min(chance.choice(spot) if len(spot) else 0, size - 1)
        width = chance.choice((1, 2, 4, 8))
        aligned = at - at % width
        kind = chance.randrange(7)
        if kind == 0:
            body[at] ^= 1 << chance.randrange(8)
        elif kind <= 2:
            value = chance.choice(_EDGES) if chance.random() < 0.7 else chance.getrandbits(64)
            body[aligned : aligned + width] = _number(value, width)[: size - aligned]
        elif kind == 3:
            value = int.from_bytes(body[aligned : aligned + width], "little") + chance.choice((-8, -1, 1, 8))
            body[aligned : aligned + width] = _number(value, width)[: size - aligned]
        elif kind == 4:
            del body[at : at + chance.choice((1, 8, size))]
        elif kind == 5:
            body[at:at] = chance.randbytes(chance.randrange(1, 9))
        else:
            start = chance.randrange(size)
            body[at : at + 32] = body[start : start + chance.randrange(1, 64)]
    return bytes(body)


def _number(value: int, width: int) -> bytes:
    return (value % 256**width).to_bytes(width, "little")


def schema_words(schema: Mapping[str, Any]) -> list[str]:
    """Return every member name that a schema's definitions know."""
    return sorted({name for each in schema["$defs"].values() for name in each.get("properties", {})})


def instance(chance: Random, schema: Any, definitions: Mapping[str, Any], depth: int = 0) -> Any:
    """Return a value that a JSON Schema of the contract takes, as a rule: any member, branch and bound of it may come up."""
    if not isinstance(schema, Mapping):
        return chance.choice((1, "x", None))
    if "$ref" in schema:
        return instance(chance, definitions[schema["$ref"].rsplit("/", 1)[1]], definitions, depth)
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return chance.choice(schema["enum"])
    for word in ("oneOf", "anyOf"):
        if word in schema:
            return instance(chance, chance.choice(schema[word]), definitions, depth)
    kind = schema.get("type", "string")
    kind = chance.choice(kind) if isinstance(kind, list) else kind
    if kind == "object":
        return _object(chance, schema, definitions, depth)
    if kind == "array":
        least = schema.get("minItems", 0)
        count = least if depth > 6 else max(least, min(schema.get("maxItems", 4), chance.randrange(4)))
        return [instance(chance, schema.get("items", {}), definitions, depth + 1) for _ in range(count)]
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", -3) + 1)
        high = schema.get("maximum", low + 20)
        return chance.choice((low, high, low + min(1, high - low)))
    if kind == "boolean":
        return chance.random() < 0.5
    if kind == "null":
        return None
    usual = chance.choice(("a", "all", "1-3", "mean", "train", "forward", "HiddenStates", "layers.0.weight"))
    return schema.get("examples", [usual])[0] if chance.random() < 0.5 else usual


def _object(chance: Random, schema: Mapping[str, Any], definitions: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties", {})
    required = schema.get("required", ())
    made = {
        name: instance(chance, each, definitions, depth + 1)
        for name, each in properties.items()
        if name in required or (depth < 6 and chance.random() < 0.4)
    }
    extra = schema.get("additionalProperties")
    if isinstance(extra, Mapping) and depth < 6:
        for _ in range(chance.randrange(3)):
            made[hostile_text(chance)[:100]] = instance(chance, extra, definitions, depth + 1)
    return made
