"""An adapter's table: dotted paths in a layer, such as ``attn.scores``, or ``attn[1]`` for a second value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from ..tracer import SitePoints, TracerError
from .layer_roles import Mixture

_LINEARS = ("qkv", "q", "k", "v", "kv", "context", "fc1", "gate_up", "gate", "up", "fc2")

_NONE = {
    "weight": "This model names no linear modules whose weights could be perturbed.",
    "calculation": "This model names no module whose output is the MLP's.",
    "system": "This model names no layers.",
}

Modules = Mapping[int, Iterable[nn.Module | None]]


def sites_of(
    *,
    weight: Modules | None = None,
    calculation: Modules | None = None,
    system: Modules | None = None,
) -> dict[str, SitePoints]:
    """Return ``ModelPoints.sites``. Fused or quantised weights may be in it: the tracer refuses them by name.

    Parameters
    ----------
    weight : mapping
        By layer, counted from 0 over all stages: its linear modules, those of queries, keys and values, of
        the attention's output, and of the MLP. None is skipped, as is a module that is there twice.
    calculation : mapping
        By layer: the module whose output, the first of a tuple, is that of the MLP before it is added to the
        residual stream.
    system : mapping
        By layer: the layer itself.
    """
    given = {"weight": weight or {}, "calculation": calculation or {}, "system": system or {}}
    sites: dict[str, SitePoints] = {}
    for name, layers in given.items():
        found = {
            number: tuple(dict.fromkeys(module for module in modules if module is not None))
            for number, modules in layers.items()
        }
        found = {number: modules for number, modules in found.items() if modules}
        sites[name] = SitePoints(found, None if found else _NONE[name])
    return sites


"""Entries of the table that are modules with weights, below a layer."""

_RIGHT = (
    'A right table: Adapter(layer="blocks.{i}", attention="attention", qkv="attention.qkv", '
    'context="attention.projection", '
    'fc1="mlp.fc1", fc2="mlp.fc2", tokens="embedding").'
)
_NOT_PATHS = frozenset(
    ("layer", "name", "qkv_order", "mixture", "positions_keyword", "layout", "heads", "kv_heads", "missing")
)
_WITH_ITEM = frozenset(("probabilities", "positions"))
_CHOICES = {"qkv_order": ("concatenated", "grouped"), "layout": ("BSH", "SBH")}
_PATH = re.compile(r"([^\s.:\[\]{}]+(?:\.[^\s.:\[\]{}]+)*)(?:\[(\d{1,3})\])?(:input)?")


def is_path(text: str, *, item: bool = False) -> bool:
    """Return whether ``text`` is a path; with ``item`` a number in brackets and ``:input`` may follow."""
    match = _PATH.fullmatch(text)
    return match is not None and (item or match[2] == match[3] is None)


def path_and_item(text: str) -> tuple[str, int]:
    """Return the path of a module and the index of a value in what it returns or takes, 0 by default."""
    path, _, item = text.removesuffix(":input").partition("[")
    return path, int(item.rstrip("]") or 0)


def find(module: nn.Module, path: str) -> nn.Module | None:
    """Return what is at ``path`` below ``module``, or None."""
    try:
        return module.get_submodule(path)
    except (AttributeError, TypeError):
        return None


def below(holder: nn.Module, path: str | None) -> nn.Module | None:
    """Return what is at ``path``; None where there is no path."""
    return None if path is None else holder.get_submodule(path)


@dataclass(frozen=True)
class LayerTable:
    """Dotted module paths of a GPT-like model. Paths in a layer are below that layer; an entry that the model
    lacks stays None.
    """

    layer: str
    """Path of a layer, with ``{i}`` for its number counted from 0. Its output is ``HiddenStates``."""
    name: str = "table"
    """Name that viewers are shown."""
    attention: str | None = None
    """Module whose output (the first, of a tuple) is ``AttentionOutput_mat_mul``."""
    qkv: str | None = None
    """Module whose output holds queries, keys and values side by side."""
    qkv_order: Literal["concatenated", "grouped"] = "concatenated"
    """All q, then all k, then all v; or interleaved per key-value head: its queries, its key, its value."""
    q: str | None = None
    """Module whose output is the queries, where they have one of their own; likewise ``k`` and ``v``."""
    k: str | None = None
    v: str | None = None
    kv: str | None = None
    """Instead of ``k`` and ``v``, in latent attention: module whose output holds the key (without what knows
    its position) and the value of each head.
    """
    context: str | None = None
    """Module whose *input* is the attention context: the output projection."""
    probabilities: str | None = None
    """Module whose output is the attention probabilities ``[B, H, Sq, Sk]``; ``attention path[1]`` for the
    second value that a module returns, ``path:input`` for what a module is given, such as a dropout.
    """
    fc1: str | None = None
    """Module whose output is ``MLP1_mat_mul``."""
    gate_up: str | None = None
    """Instead of ``fc1``: module whose output is gate and up halves side by side (SwiGLU)."""
    gate: str | None = None
    """Instead of ``fc1``: the gate module, with ``up``."""
    up: str | None = None
    fc2: str | None = None
    """Module whose output is ``MLP2_mat_mul``."""
    mixture: Mixture | None = None
    """Where the layer is a mixture of experts: where they and their router are. ``MLP2_mat_mul`` is then what
    all of them give together.
    """
    tokens: str | None = None
    """Token embedding: its input is the ids. From the model's root."""
    positions: str | None = None
    """Module that is given the position ids, from the model's root; positions are 0, 1, 2, … where it is
    None. ``path[1]`` for the second argument.
    """
    positions_keyword: str = "position_ids"
    """Name of that argument when it is passed by name."""
    layout: Literal["BSH", "SBH"] = "BSH"
    """Order of the axes in the model itself."""
    heads: int | None = None
    """Attention heads, where the model's config does not say."""
    kv_heads: int | None = None
    """Key-value heads, where the model's config does not say; as many as heads when unknown."""
    missing: Callable[[nn.Module, str], str | None] | None = None
    """Gives the reason why a flag cannot be seen in this very model, such as an attention that returns no
    probabilities.
    """

    def __post_init__(self) -> None:
        _check(self)

    def linears(self) -> list[str]:
        """Return the paths of modules with weights, below a layer."""
        return self.paths(*_LINEARS)

    @property
    def mlp2(self) -> str | None:
        """Path of what gives the output of the MLP, or of all experts together."""
        return (self.mixture.block or None) if self.mixture else self.fc2

    def paths(self, *names: str) -> list[str]:
        return [path for path in (getattr(self, name) for name in names) if path is not None]

    def modules(self) -> list[str]:
        """Return the paths of all modules that every layer must have."""
        return [path_and_item(path)[0] for path in self.paths("attention", "probabilities", *_LINEARS)]


def _check(table: LayerTable) -> None:
    """Raise ``TracerError`` for a table that can fit no model, with an example of a right one."""
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
