"""From a table of paths to the trace points of a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..protocol import EMBEDDING
from ..tracer import FlagPoints, ModelPoints, Source, TracerError
from .layer_roles import Mixture
from .layer_sources import LayerSources
from .sizes import model_sizes, unwrapped
from .table import below, find, is_path, path_and_item, sites_of
from .torch_coordinates import torch_coordinates

_MIXED = {
    "MLP1_mat_mul": "Every layer is a mixture of experts, whose first linear layers see other tokens each, "
    "so that there is no one tensor; ExpertOutputs has what each gives.",
    "ExpertOutputs": "The experts of this model compute all tokens in one product, "
    "where their outputs cannot be told apart.",
}
_LINEARS = ("qkv", "q", "k", "v", "context", "fc1", "gate_up", "gate", "up", "fc2")
"""Entries of the table that are modules with weights, below a layer."""
_RIGHT = (
    'A right table: Adapter(layer="blocks.{i}", attention="attention", qkv="attention.qkv", '
    'context="attention.projection", '
    'fc1="mlp.fc1", fc2="mlp.fc2", tokens="embedding").'
)
_NOT_PATHS = frozenset(("layer", "name", "qkv_order", "mixture", "layout", "heads", "kv_heads", "missing"))
_WITH_ITEM = frozenset(("probabilities", "positions"))
_CHOICES = {"qkv_order": ("concatenated", "grouped"), "layout": ("BSH", "SBH")}


@dataclass(frozen=True)
class Adapter:
    """Dotted module paths of a GPT-like model. Paths in a layer are below that layer; an entry that the model
    lacks stays None.

    ``Adapter(layer="blocks.{i}", qkv="attention.qkv", context="attention.projection", fc1="mlp.fc1",
    fc2="mlp.fc2")`` is a complete one.
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

    @property
    def mlp2(self) -> str | None:
        """Path of what gives the output of the MLP, or of all experts together."""
        return (self.mixture.block or None) if self.mixture else self.fc2

    def paths(self, *names: str) -> list[str]:
        """Return the paths of entries, without what says which value of a module is meant."""
        return [
            path_and_item(path)[0] for path in (getattr(self, name) for name in names) if path is not None
        ]

    def fits(self, model: nn.Module) -> bool:
        """Return whether every path of the table is in ``model``."""
        return self._misfit(unwrapped(model)) is None

    def points(self, model: nn.Module) -> ModelPoints:
        """Return the trace points of ``model``.

        Raises
        ------
        TracerError
            When a path of the table is not in the model, naming it.
        """
        body = unwrapped(model)
        misfit = self._misfit(body)
        if misfit is not None:
            raise TracerError(f"The adapter {self.name!r} does not fit {type(body).__name__}: {misfit}.")
        return self.points_of(model, {i: (layer, self) for i, layer in enumerate(self._layers(body))})

    def points_of(
        self,
        model: nn.Module,
        layers: Mapping[int, tuple[nn.Module, Adapter]],
        supposed: str | None = None,
    ) -> ModelPoints:
        """Return the trace points of ``model``, given its layers with their tables.

        ``supposed`` is the reason to give where a table has nothing: what it has is only supposed then, and
        what does not fit is left out.
        """
        body = unwrapped(model)
        described = model_sizes(body, self, len(layers), below(body, self.tokens))
        mixed = any(table.mixture for _, table in layers.values())
        makers = {
            i: LayerSources(table, layer, described, mixed).makers for i, (layer, table) in layers.items()
        }
        flags: dict[str, FlagPoints] = {}
        for flag in makers[0] if makers else LayerSources(self, body, described, mixed).makers:
            reason = self.missing(body, flag) if self.missing else None
            made = {} if reason else {i: _made(make[flag], supposed) for i, make in makers.items()}
            found = {i: sources for i, sources in made.items() if sources}
            absent = supposed if supposed and not mixed else self._unnamed(flag, mixed)
            flags[flag] = FlagPoints(found, reason or (None if found else absent))
        tokens = self._input_tokens(body)
        flags["InputTokens"] = FlagPoints({EMBEDDING: tokens} if tokens else {}, self._unnamed("InputTokens"))
        sites = sites_of(
            weight={
                i: [layer.get_submodule(path) for path in table.paths(*_LINEARS)]
                for i, (layer, table) in layers.items()
            },
            calculation={i: [below(layer, table.mlp2)] for i, (layer, table) in layers.items()},
            system={i: [layer] for i, (layer, _) in layers.items()},
        )
        return ModelPoints((model,), described, flags, sites, torch_coordinates(model))

    def _input_tokens(self, body: nn.Module) -> tuple[Source, ...]:
        embedding = below(body, self.tokens)
        if embedding is None:
            return ()
        if self.positions is not None:
            path, item = path_and_item(self.positions)
            more: dict[str, Any] = {"item": item, "keyword": "position_ids", "like_ids": True}
            owner: nn.Module | None = body.get_submodule(path)
        else:
            owner, more = _caching(body, self.tokens), {"computed": _counted_on}
        if owner is None:
            return input_tokens(embedding)
        positions = Source(owner, side="input", parts=("positions",), **more)
        return Source(embedding, side="input", parts=("ids",)), positions

    # Matching.

    def _layers(self, body: nn.Module) -> list[nn.Module]:
        found: dict[nn.Module, None] = {}
        # A model that answers to every name has no more layers than it has modules.
        while (layer := find(body, self.layer.format(i=len(found)))) is not None and layer not in found:
            found[layer] = None
        return list(found)

    def _misfit(self, body: nn.Module) -> str | None:
        """Return what of the table ``body`` lacks; None where it has everything."""
        layers = self._layers(body)
        outside = self.paths("tokens", "positions")
        if not layers or any(find(body, path) is None for path in outside):
            children = ", ".join(name for name, _ in body.named_children())[:500]
            return f"expected {', '.join((self.layer, *outside))}, and the model has {children}"
        for number, layer in enumerate(layers):
            modules = self.paths("attention", "probabilities", *_LINEARS)
            absent = [path for path in modules if find(layer, path) is None]
            if absent:
                names = ", ".join(name for name, _ in layer.named_modules() if name)[:1000]
                return f"layer {number} has no {', '.join(absent)}. It has {names}"
        return None

    def _unnamed(self, flag: str, mixed: bool = False) -> str:
        if mixed and flag in _MIXED:
            return _MIXED[flag]
        return f"The adapter {self.name!r} names no module for {flag}."


def _made(make: Callable[[], Sequence[Source]], supposed: str | None) -> tuple[Source, ...]:
    try:
        return tuple(make())
    except (TracerError, AttributeError, TypeError):
        if supposed is None:
            raise
        return ()


def input_tokens(module: nn.Module, item: int = 0, keyword: str | None = None) -> tuple[Source, ...]:
    """Return what is given to ``module`` as the ids of tokens at the positions 0, 1, 2, …."""
    parts = ("ids", "positions")
    return (Source(module, side="input", item=item, keyword=keyword, parts=parts, split=_counted),)


def _counted(ids: Tensor) -> Sequence[Tensor]:
    return ids, torch.arange(ids.shape[-1], device=ids.device).expand(ids.shape)


def _caching(body: nn.Module, path: str | None) -> nn.Module | None:
    """Return the innermost module around ``path`` that goes on from cached keys and values, if one does.

    Of an encoder and a decoder each has ids of its own: none.
    """
    if getattr(getattr(body, "config", None), "is_encoder_decoder", False):
        return None
    while path:
        path = path.rpartition(".")[0]
        module = body.get_submodule(path)
        if "past_key_values" in inspect.signature(module.forward).parameters:
            return module
    return None


def _counted_on(given: tuple[Sequence[Any], Mapping[str, Any]]) -> Tensor | None:
    """Count the positions of what a module is given, ``[B, n]``, behind those that it read before.

    Padding before a text counts as nothing: the mask ``[B, read before + n]`` shows it.
    """
    args, named = given
    tensors = (named.get("input_ids"), named.get("inputs_embeds"), *args[:1])
    read = next((each for each in tensors if isinstance(each, Tensor) and each.ndim > 1), None)
    if read is None:
        return None
    batch, count = read.shape[:2]
    places = torch.arange(count, device=read.device).expand(batch, count)
    mask = named.get("attention_mask")
    if isinstance(mask, Tensor) and mask.ndim == 2 and mask.shape[1] >= count:
        pads = (mask.cumsum(-1) == 0).sum(-1, keepdim=True)
        return (places + (mask.shape[1] - count) - pads).clamp(min=0)
    before = getattr(named.get("past_key_values"), "get_seq_length", None)
    return places if before is None else places + before()


def _check(table: Adapter) -> None:
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
