"""Layer, expert, role and module path from a tensor's name. The browser's twin reads the same cases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

__all__ = [
    "SUMMARY_LEVELS",
    "TensorName",
    "merged_name",
    "merged_names",
    "name_values",
    "natural_key",
    "parse_name",
    "EXPERT",
    "expert_of_part",
    "expert_part",
]

GLOBAL_STACK = "(global)"
LAYER_ITEM = "(layer)"

_STACKS = frozenset((
    "layer", "layers", "block", "blocks", "h", "resblocks", "transformer_blocks", "decoder_layers",
    "encoder_layers",
))  # fmt: skip
_BODIES = frozenset(("encoder", "decoder", "transformer", "module", "model", "backbone"))
_EXPERT_WORDS = frozenset(("expert", "experts"))
# Numbers after these count something inside a layer.
_INNER_WORDS = _EXPERT_WORDS | {
    "head", "heads", "rank", "ranks", "shard", "shards", "adapter", "adapters",
}  # fmt: skip
_ROLE = re.compile(r"(input|output)\d*")
_GROUPED = re.compile(r"(weight|bias)([0-9]{1,9})")
# A whole component, see _numbers; the digit comes first because that is what is searched for fastest.
_NUMBER = re.compile(r"([0-9](?<![^./].)[0-9]{0,8})(?![^./])")
_ENOUGH = 6

EXPERT = "expert"


def expert_part(expert: int) -> str:
    """Return the name of the part that is of one expert, counted from 0: ``expert3``."""
    return f"{EXPERT}{expert}"


def expert_of_part(part: str) -> int | None:
    """Return the expert that a part is of; None where it is of none."""
    number = part.removeprefix(EXPERT)
    return int(number) if number != part and _is_number(number) else None


class TensorName(NamedTuple):
    """What a name says.

    Attributes
    ----------
    layer : int or None
        Layer index as the name has it (canonical names count from 0); None for tensors outside of the layers.
    stack : str
        What comes before the index (``decoder.layers``); ``layer`` where nothing does, ``(global)`` without a
        layer.
    item_type : str
        What comes after it, without an expert's index: the same text in every layer and expert. ``(layer)``
        where nothing does.
    family, kind : str
        First and last component of ``item_type`` (``mlp``; ``weight``, ``output0``).
    module_type : str or None
        ``item_type`` without its last component.
    role : str or None
        ``input`` or ``output`` of a module.
    expert : int or None
        Global expert index.
    """

    layer: int | None
    stack: str
    item_type: str
    family: str
    kind: str
    module_type: str | None
    role: str | None
    expert: int | None


@lru_cache(maxsize=1 << 17)
def parse_name(name: str) -> TensorName:
    """Return what ``name`` says.

    The layer is the number that most probably is one, by the word before it: ``layers.3``, ``h.3``,
    ``multihead_layers.3``, ``encoder.3``, never ``experts.3`` or ``head.3``. Of equals it is the first.
    """
    parts = _NUMBER.split(name)
    form = _form(tuple(parts[::2]))
    if form is None:
        return _parsed(name)[0]
    parsed, layer, expert = form
    numbers = parts[1::2]
    return TensorName(
        None if layer is None else int(numbers[layer]),
        *parsed[1:-1],
        parsed.expert if expert is None else int(numbers[expert]),
    )


SUMMARY_LEVELS: dict[str, tuple[str, ...]] = {
    "total": ("role",),
    "family": ("family", "role"),
    "layer": ("layer", "role"),
}
"""What tensors have in common whose rows a summary of ``moments`` merges; the level of fewest rows first."""


@lru_cache(maxsize=1 << 17)
def merged_name(name: str, level: str) -> str | None:
    """Return the name that all tensors of one group of a level have together, or None."""
    return next(iter(merged_names([name], level)), None)


def merged_names(names: Sequence[str], level: str) -> list[str]:
    """Return the different names that tensors have together by the fields of a level, and say no more."""
    fields = SUMMARY_LEVELS[level]
    found = []
    for said in dict.fromkeys(zip(*(name_values(names, field) for field in fields), strict=True)):
        *what, role = said
        home = what[0] if level == "family" else "tensor" if what in ([], [None]) else f"layers.{what[0]}"
        name = home if role is None else f"{home}/{role}0"
        if tuple(getattr(parse_name(name), field) for field in fields) == said:
            found.append(name)
    return found


def name_values(names: Iterable[str], field: str) -> list[Any]:
    """Return one field of each name's :func:`parse_name`; of thousands of names in half of the time."""
    found: list[Any] = []
    for name in names:
        parts = _NUMBER.split(name)
        form = _form(tuple(parts[::2]))
        if form is None:
            found.append(getattr(_parsed(name)[0], field))
            continue
        parsed, layer, expert = form
        number = layer if field == "layer" else expert if field == "expert" else None
        found.append(getattr(parsed, field) if number is None else int(parts[1::2][number]))
    return found


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts numbers inside of names as numbers: ``layers.2`` before ``layers.10``."""
    # Split with a group: texts at even indices, digits at odd ones. Of two numbers the longer one is larger;
    # some are too long to be numbers of Python.
    return [
        (0, len(digits := part.lstrip("0")), digits) if at % 2 else (1, 0, part)
        for at, part in enumerate(re.split(r"([0-9]+)", name))
        if part
    ]


@lru_cache(maxsize=1 << 12)
def _form(texts: tuple[str, ...]) -> tuple[TensorName, int | None, int | None] | None:
    """Return what names with these texts around their numbers say, and which numbers are layer and expert;
    None where they have others too. A model has thousands of names, and a few dozen such forms.
    """
    parsed, layer, expert = _parsed("0".join(texts))
    known = sorted(at for at in (layer, expert) if at is not None)
    if len(known) < len(texts) - 1:
        return None
    layer, expert = (None if at is None else known.index(at) for at in (layer, expert))
    return parsed, layer, expert


def _parsed(name: str) -> tuple[TensorName, int | None, int | None]:
    """Return what a name says, and the indices of the components that are the layer and the expert."""
    tokens = name.replace("/", ".").split(".")
    # What a cast loses is named after what is cast: "fc1/input0/activation:float8_e4m3fn".
    cast = [tokens.pop()] if len(tokens) > 1 and ":" in tokens[-1] else []
    expert, expert_at, tokens = _without_expert(tokens)
    at = _layer_at(tokens)
    if at is None:
        layer, stack, items = None, GLOBAL_STACK, tokens
    else:
        layer, stack, items = int(tokens[at]), ".".join(tokens[:at]) or "layer", tokens[at + 1 :]
        # Among all components.
        at += expert_at is not None and expert_at <= at
    items = items or [LAYER_ITEM]
    tail = _ROLE.fullmatch(items[-1])
    items = items + cast
    parsed = TensorName(
        layer=layer,
        stack=stack,
        item_type=".".join(items),
        family=items[0],
        kind=items[-1],
        module_type=".".join(items[:-1]) or None,
        role=tail[1] if tail else None,
        expert=expert,
    )
    return parsed, at, expert_at


def _without_expert(tokens: list[str]) -> tuple[int | None, int | None, list[str]]:
    """Return the expert, the index of the component that is only its number, and the other components."""
    for at in _numbers(tokens):
        before = tokens[at - 1].lower() if at else ""
        if _words(before) & _EXPERT_WORDS and not _tells_layer(before):
            return int(tokens[at]), at, tokens[:at] + tokens[at + 1 :]
    grouped = _GROUPED.fullmatch(tokens[-1])
    if grouped and any(_words(token.lower()) & _EXPERT_WORDS for token in tokens[:-1]):
        return int(grouped[2]), None, [*tokens[:-1], grouped[1]]
    return None, None, tokens


def _layer_at(tokens: list[str]) -> int | None:
    best, best_score = None, _ENOUGH - 1
    for at in _numbers(tokens):
        score = _score(tokens, at)
        if score > best_score:
            best, best_score = at, score
    return best


def _score(tokens: list[str], at: int) -> int:
    before = tokens[at - 1].lower() if at else ""
    score = int(at + 1 < len(tokens))
    if before in _STACKS:
        score += 12
    elif before in _BODIES:
        score += 6
    if _tells_layer(before):
        score += 8
    elif _words(before) & _INNER_WORDS:
        score -= 24
    if before == "layers" and at > 1 and tokens[at - 2].lower() == "mtp_model_layer":
        score += 20
    return score


def _tells_layer(before: str) -> bool:
    return "layer" in before or "block" in before


@lru_cache(maxsize=1 << 12)
def _words(token: str) -> frozenset[str]:
    return frozenset(token.split("_"))


def _numbers(tokens: list[str]) -> list[int]:
    """Return the indices of tokens that are numbers."""
    return [at for at, token in enumerate(tokens) if _is_number(token)]


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii() and len(text) <= 9
