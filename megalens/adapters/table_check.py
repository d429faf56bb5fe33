"""What a table may hold, told before a model is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..tracer import TracerError
from .paths import is_path

if TYPE_CHECKING:
    from .adapter import Adapter

__all__ = ["check_table"]

_RIGHT = (
    'A right table: Adapter(layer="blocks.{i}", attention="attention", qkv="attention.qkv", context="attention.projection", '
    'fc1="mlp.fc1", fc2="mlp.fc2", tokens="embedding").'
)
_NOT_PATHS = frozenset(
    ("layer", "name", "qkv_order", "mixture", "positions_keyword", "layout", "heads", "kv_heads", "missing")
)
_WITH_ITEM = frozenset(("probabilities", "positions"))
_CHOICES = {"qkv_order": ("concatenated", "grouped"), "layout": ("BSH", "SBH")}


def check_table(table: Adapter) -> None:
    """Refuse a table that can fit no model.

    Raises
    ------
    TracerError
        Naming the entry, what was expected and what came, with an example of a right table.
    """
    layer: Any = table.layer
    if not isinstance(layer, str) or layer.count("{i}") != 1 or not is_path(layer.replace("{i}", "0")):
        raise _wrong("layer", 'the path of a layer with {i} for its number, such as "blocks.{i}"', layer)
    for entry in table.__dataclass_fields__.keys() - _NOT_PATHS:
        path = getattr(table, entry)
        item = entry in _WITH_ITEM
        if path is not None and not (isinstance(path, str) and is_path(path, item=item)):
            more = ', or "attn[1]" for the second value of attn' if item else ""
            raise _wrong(entry, f'a dotted path of names, such as "attn.proj"{more}', path)
    for entry, choices in _CHOICES.items():
        if getattr(table, entry) not in choices:
            raise _wrong(entry, " or ".join(map(repr, choices)), getattr(table, entry))
    for entry in ("heads", "kv_heads"):
        number = getattr(table, entry)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            raise _wrong(entry, "a whole number from 1", number)
    for one, other in (("gate", "up"), ("up", "gate")):
        if getattr(table, one) is not None and getattr(table, other) is None:
            raise _wrong(other, f"the path of a module, as there is {one}={getattr(table, one)!r}", None)


def _wrong(entry: str, expected: str, came: Any) -> TracerError:
    return TracerError(f"Adapter({entry}=…) must be {expected}; got {came!r:.100}. {_RIGHT}")
