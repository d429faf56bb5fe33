"""Titles and captions in words, as ``src/views/describe.ts`` says them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from .words import clean

__all__ = [
    "compressor_words",
    "flag_words",
    "last_axis",
    "layer_words",
    "list_words",
    "read_compressor",
]

_PASS_WORDS = {"backward": "Gradient of "}
_PART = re.compile(r"""(?:'[^']*'|"[^"]*"|\([^)]*\)|\[[^\]]*\]|[^,])+""")


def read_compressor(text: str) -> tuple[str, dict[str, str]]:
    """Return name and parameters of a compressor's canonical text. Commas inside quotes and brackets belong to a value."""
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", text.strip(), re.DOTALL)
    if match is None:
        return text, {}
    params: dict[str, str] = {}
    for part in _PART.findall(match[2] or ""):
        name, equals, value = part.partition("=")
        value = value.strip()
        if equals:
            params[name.strip()] = value[1:-1] if value[:1] in "'\"" and value[-1:] == value[:1] else value
    return match[1], params


def compressor_words(text: str, tiles: int | None = None) -> str:
    """Say what the compressed numbers are: ``mean of 96 tiles``.

    ``tiles`` is how many there are in fact: an axis that cannot be cut into as many as were asked for has fewer.
    """
    name, params = read_compressor(text)
    if name == "Tile":
        reduction = re.sub(
            r"^(\w+)\(data\)$|^data\.(\w+)\(\)$", lambda m: m[1] or m[2], params.get("reduction", "mean")
        )
        return f"{reduction} of {params.get('tiles', '?') if tiles is None else tiles} tiles"
    if name == "NoOp":
        return "every value"
    if name == "Projection":
        return f"projected on {clean(params.get('vectors', 'vectors'))}"
    return clean(text)


def last_axis(compressor: str, before: str) -> str:
    """Name the last axis after compression."""
    return {"Tile": "tile", "Projection": "vector"}.get(read_compressor(compressor)[0], before)


def flag_words(
    flags: Mapping[str, Mapping[str, Any]], flag: str, part: str | None, pass_: str | None = None
) -> str:
    """Name a flag in words, with its part where it has several; its gradient where that is drawn. ``flags`` is what the run says of each."""
    info = flags.get(flag)
    title = str(info["title"]) if info else flag
    words = f"{title}, part {part}" if part else title
    return _PASS_WORDS.get(pass_ or "", "") + words


def layer_words(layers: Sequence[int]) -> str:
    """Name layers, ascending: ``layer 3``, ``layers 1 to 4``, ``layers 1, 2 and 7``."""
    return f"layer {list_words(layers)}" if len(layers) == 1 else f"layers {list_words(layers)}"


def list_words(layers: Sequence[int]) -> str:
    """List numbers, ascending: ``1 to 4``, ``1, 2 and 7``."""
    groups: list[str] = []
    at = 0
    while at < len(layers):
        end = at
        while end + 1 < len(layers) and layers[end + 1] == layers[end] + 1:
            end += 1
        groups += (
            [f"{layers[at]} to {layers[end]}"]
            if end - at >= 2
            else [str(layer) for layer in layers[at : end + 1]]
        )
        at = end + 1
    return f"{', '.join(groups[:-1])} and {groups[-1]}" if len(groups) > 1 else "".join(groups)
