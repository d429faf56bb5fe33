"""Changes of the settings as viewers send them: right ones by the schema of messages and of each kind's parameters, and what grows of them when they are bent."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from megalens.protocol import compressor_infos, perturbation_infos
from megalens.protocol.contract import contract_json

__all__ = ["hostile_value", "right_patch", "sent_patch"]

_DEFINITIONS: dict[str, Any] = contract_json("messages.schema.json")["$defs"]
_COMPRESSORS = {info["name"]: info["schema"] for info in compressor_infos()}
_KINDS = {info["name"]: info["schema"] for info in perturbation_infos()}
_SITES = ("weight", "calculation", "system")
_REDUCTIONS = (
    "mean",
    "max",
    "std",
    "norm",
    "abs().mean()",
    "quantile(0.9)",
    "data.max() - data.min()",
    "(data > 0).mean()",
)
_LAYERS = ("all", "1", "2", "1-2", "1,2")
_NUMBERS = (
    0,
    -1,
    1,
    2,
    0.5,
    1e308,
    -1e-320,
    2**31,
    2**53,
    2**63,
    2**64,
    10**30,
    10**400,
    -(10**400),
    65536,
    65537,
)
_TEXTS = (
    "",
    "x",
    "x" * 300,
    "x" * 1000,
    "x" * 5000,
    "é\U0001f600",
    "\0",
    "\x1b[31m",
    "\ufffe",
    "\n",
    "all",
    "0",
    "1-4,7",
    "3-1",
    "0-999999999",
    "..",
    "/",
)
_CODES = (
    "(" * 499,
    "((((" * 8000,
    "-" * 499 + "data",
    "2**" * 160 + "2",
    "data." * 90,
    "mean(",
    "max(data, 1e999)",
    "norm(0)",
    "norm(1e300)",
    "9" * 400 + "*mean",
    "sum/0",
)
_FILES = (
    "good.npy",
    "x" * 300,
    "../good.npy",
    "/dev/zero",
    "folder",
    "pipe.npy",
    "lies.npy",
    "wide.pt",
    "nested.pt",
    "lies.safetensors",
    "a\0b",
    "a/" * 400,
)
_KEYS = (
    "__proto__",
    "constructor",
    "toString",
    "flags",
    "perturb",
    "mode",
    "until",
    "cost_reduction",
    "",
    "x" * 400,
    "\0",
    "é",
)


def right_patch(chance: Random, flags: Sequence[str]) -> dict[str, Any]:
    """Return a ``ConfigPatch`` that fits its schema; whether the model and the script take it is another matter.

    Parameters
    ----------
    chance : random.Random
        Where choices come from.
    flags : sequence of str
        Names to choose from.
    """
    patch: dict[str, Any] = {"flags": {}}
    for name in chance.sample(list(flags), chance.randrange(min(4, len(flags) + 1))):
        patch["flags"][name] = (
            None if chance.random() < 0.2 else _setting(chance, "FlagSetting", _COMPRESSORS)
        )
    kind = chance.random()
    if kind < 0.1:
        sites = chance.sample(_SITES, chance.randrange(1, 4))
        patch["perturb"] = {
            "sites": {site: _setting(chance, "PerturbSite", _KINDS) for site in sites},
            "steps": chance.choice((1, 2, 3)),
            "seed": chance.choice((0, 7, 2**53 - 1)),
        }
    elif kind < 0.2:
        patch["perturb"] = None
    elif kind < 0.25:
        patch["mode"] = _made(chance, _DEFINITIONS["Mode"])
    return patch


def sent_patch(chance: Random, flags: Sequence[str]) -> str:
    """Return what a viewer sends: a right patch, or one with types, sizes, texts, numbers and nesting changed, or its text cut. Its id is ``fuzz``."""
    message: dict[str, Any] = {"type": "configure", "id": "fuzz", "patch": right_patch(chance, flags)}
    if chance.random() < 0.75:
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            _bend(chance, message["patch"])
    text = json.dumps(message, ensure_ascii=chance.random() < 0.8).encode("utf-8", "replace").decode()
    if chance.random() < 0.1:
        at = chance.randrange(len(text))
        piece = chance.choice(
            ("", "{", "]", '"', "NaN", "-Infinity", "1e999", "\\ud800", "9" * 5000, "[" * 2000, "\0")
        )
        text = text[:at] + piece + text[at + chance.randrange(4) :]
    return text


def hostile_value(chance: Random) -> Any:
    """Return a JSON value that few expect."""
    kind = chance.randrange(8)
    if kind < 3:
        return chance.choice(_NUMBERS)
    if kind < 6:
        return chance.choice((*_TEXTS, *_CODES, *_FILES, *_LAYERS, *_REDUCTIONS))
    if kind == 6:
        return chance.choice((None, True, False, [], {}, [[]], [1, "1", None], {"": {}}, [0] * 3000))
    value: Any = chance.choice(_TEXTS)
    for _ in range(chance.choice((3, 40, 300))):
        value = [value] if chance.random() < 0.5 else {"a": value}
    return value


def _setting(chance: Random, definition: str, kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return a ``FlagSetting`` or a ``PerturbSite``: what its schema has, with a kind and parameters of that kind's schema."""
    made: dict[str, Any] = _made(chance, _DEFINITIONS[definition])
    name = chance.choice(list(kinds))
    made["kind" if definition == "PerturbSite" else "compressor"] = {
        "name": name,
        "params": _made(chance, kinds[name]),
    }
    if "layers" in made:
        made["layers"] = chance.choice(_LAYERS)
    return made


def _made(chance: Random, schema: Mapping[str, Any]) -> Any:
    if "$ref" in schema:
        return _made(chance, _DEFINITIONS[schema["$ref"].rsplit("/", 1)[1]])
    if "enum" in schema:
        return chance.choice(schema["enum"])
    kind = schema["type"] if isinstance(schema["type"], str) else chance.choice(schema["type"])
    if kind == "object":
        members = schema.get("properties", {}).items()
        needed = schema.get("required", ())
        return {
            name: _made(chance, each) for name, each in members if name in needed or chance.random() < 0.5
        }
    if kind == "array":
        every = _DEFINITIONS[schema["items"]["$ref"].rsplit("/", 1)[1]]["enum"]
        return chance.sample(every, chance.randrange(1, len(every) + 1))
    if kind in ("integer", "number"):
        low = schema.get("minimum", 1)
        high = min(schema.get("maximum", 4), 1000)
        return chance.randint(low, high) if kind == "integer" else chance.uniform(low, high)
    if kind == "string":
        return chance.choice(_FILES if "minLength" in schema and "examples" not in schema else _REDUCTIONS)
    return None if kind == "null" else chance.random() < 0.5


def _bend(chance: Random, tree: dict[str, Any]) -> None:
    places: list[tuple[Any, Any]] = []
    waiting: list[Any] = [tree]
    while waiting and len(places) < 500:
        node = waiting.pop()
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(child, (dict, list)):
                waiting.append(child)
    node, key = chance.choice(places or [(tree, "flags")])
    kind = chance.randrange(6)
    if kind == 0 and places:
        del node[key]
    elif kind == 1 and isinstance(node, dict):
        node[chance.choice(_KEYS)] = hostile_value(chance)
    elif kind == 2 and places and isinstance(node, dict):
        node[chance.choice(_KEYS)] = node.pop(key)
    elif kind == 3 and places:
        other, at = chance.choice(places)
        inside = at in other if isinstance(other, dict) else at < len(other)
        node[key] = copy.deepcopy(other[at]) if inside else None
    else:
        node[key] = hostile_value(chance)
