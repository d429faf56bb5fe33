"""An adapter is a small table: where in a transformer's layer each trace point is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from ..protocol import EMBEDDING
from ..tracer import FlagPoints, ModelPoints, Shards, SitePoints, Source, TracerError
from .sites import sites_of
from .sizes import ModelSizes, halves, input_features, model_sizes, output_features
from .torch_layout import output_shards
from .torch_place import torch_place
from .unwrap import unwrapped

__all__ = ["Adapter"]

_LINEARS = ("qkv", "q", "k", "v", "context", "fc1", "gate_up", "gate", "up", "fc2")
"""Entries of the table that are modules with weights, below a layer."""


@dataclass(frozen=True)
class Adapter:
    """Dotted module paths of a GPT-like model. Paths in a layer are below that layer; an entry that the model lacks stays None.

    ``Adapter(layer="blocks.{i}", qkv="attention.qkv", context="attention.projection", fc1="mlp.fc1", fc2="mlp.fc2")`` is a complete one.
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
    """Module whose output is the attention probabilities ``[B, H, Sq, Sk]``; ``attention path[1]`` for the second value that a module returns."""
    fc1: str | None = None
    """Module whose output is ``MLP1_mat_mul``."""
    gate_up: str | None = None
    """Instead of ``fc1``: module whose output is gate and up halves side by side (SwiGLU)."""
    gate: str | None = None
    """Instead of ``fc1``: the gate module, with ``up``."""
    up: str | None = None
    fc2: str | None = None
    """Module whose output is ``MLP2_mat_mul``."""
    tokens: str | None = None
    """Token embedding: its input is the ids. From the model's root."""
    positions: str | None = None
    """Module that is given the position ids, from the model's root; positions are 0, 1, 2, … where it is None. ``path[1]`` for the second argument."""
    positions_keyword: str = "position_ids"
    """Name of that argument when it is passed by name."""
    layout: Literal["BSH", "SBH"] = "BSH"
    """Order of the axes in the model itself."""
    heads: int | None = None
    """Attention heads, where the model's config does not say."""
    kv_heads: int | None = None
    """Key-value heads, where the model's config does not say; as many as heads when unknown."""
    prefixes: tuple[str, ...] = ("",)
    """What may stand before every path, such as ``transformer.`` in a model with a head; the first that fits is taken."""
    missing: Callable[[nn.Module, str], str | None] | None = None
    """Gives the reason why a flag cannot be seen in this very model, such as an attention that returns no probabilities."""

    def fits(self, model: nn.Module) -> bool:
        """Return whether every path of the table is in ``model``."""
        return self._prefix(model) is not None

    def points(self, model: nn.Module) -> ModelPoints:
        """Return the trace points of ``model``.

        Raises
        ------
        TracerError
            When a path of the table is not in the model, naming it.
        """
        body = unwrapped(model)
        prefix = self._prefix(model)
        if prefix is None:
            raise TracerError(self._misfit(body))
        layers = list(self._layers(body, prefix))
        sizes = model_sizes(body, self.heads, self.kv_heads, _below(body, self.tokens, prefix))
        flags: dict[str, FlagPoints] = {}
        makers: dict[str, Callable[[nn.Module], Sequence[Source]]] = {
            "QKV_mat_mul": functools.partial(self._qkv, sizes=sizes),
            "RawAttentionScore_mat_mul": self._probabilities,
            "ContextLayer_mat_mul": self._context,
            "MLP1_mat_mul": self._mlp1,
            "MLP2_mat_mul": lambda layer: self._whole(layer, self.fc2),
            "AttentionOutput_mat_mul": lambda layer: self._whole(layer, self.attention, self.context),
            "HiddenStates": lambda layer: [self._source(layer, sizes.hidden, _below(layer, self.fc2))],
        }
        for flag, make in makers.items():
            reason = self.missing(body, flag) if self.missing else None
            found = {} if reason else {i: tuple(make(layer)) for i, layer in enumerate(layers)}
            found = {i: sources for i, sources in found.items() if sources}
            flags[flag] = FlagPoints(found, reason or (None if found else self._unnamed(flag)))
        tokens = self._input_tokens(body, prefix)
        flags["InputTokens"] = FlagPoints({EMBEDDING: tokens} if tokens else {}, self._unnamed("InputTokens"))
        described = sizes.to_message(type(body).__name__, self.name, len(layers))
        return ModelPoints((model,), described, flags, self._sites(layers), torch_place(model))

    def _sites(self, layers: Sequence[nn.Module]) -> dict[str, SitePoints]:
        paths = self._paths(*_LINEARS)
        numbered = dict(enumerate(layers))
        return sites_of(
            weight={i: [layer.get_submodule(path) for path in paths] for i, layer in numbered.items()},
            calculation={i: [_find(layer, self.fc2)] for i, layer in numbered.items() if self.fc2},
            system={i: [layer] for i, layer in numbered.items()},
        )

    # One maker per flag, each for one layer.

    def _qkv(self, layer: nn.Module, sizes: ModelSizes) -> Sequence[Source]:
        if self.qkv is not None:
            module = layer.get_submodule(self.qkv)
            widths = _qkv_widths(output_features(module), sizes)
            plain = self.qkv_order == "concatenated"
            cuts = tuple(width for width in widths if width is not None) if plain else ()
            return [
                Source(
                    module,
                    parts=("q", "k", "v"),
                    split=_Concatenated(sizes) if plain else _Grouped(sizes),
                    cuts=cuts if len(cuts) == 3 else None,
                    features=widths,
                    sequence_first=self.layout == "SBH",
                    shards=output_shards(module),
                )
            ]
        named = [("q", self.q), ("k", self.k), ("v", self.v)]
        modules = [(part, layer.get_submodule(path)) for part, path in named if path is not None]
        return [self._source(module, output_features(module), part=part) for part, module in modules]

    def _mlp1(self, layer: nn.Module) -> Sequence[Source]:
        if self.gate_up is not None:
            module = layer.get_submodule(self.gate_up)
            size = output_features(module)
            half = None if size is None else size // 2
            return [
                Source(
                    module,
                    parts=("gate", "up"),
                    split=halves,
                    features=(half, half),
                    sequence_first=self.layout == "SBH",
                    shards=output_shards(module),
                )
            ]
        if self.gate is not None and self.up is not None:
            modules = [("gate", layer.get_submodule(self.gate)), ("up", layer.get_submodule(self.up))]
            return [self._source(module, output_features(module), part=part) for part, module in modules]
        return self._whole(layer, self.fc1)

    def _whole(self, layer: nn.Module, path: str | None, sized_by: str | None = None) -> Sequence[Source]:
        if path is None:
            return []
        module, inner = layer.get_submodule(path), _below(layer, sized_by)
        return [self._source(module, output_features(inner or module), inner)]

    def _source(
        self, module: nn.Module, size: int | None, inner: nn.Module | None = None, part: str = ""
    ) -> Source:
        """Return the output of a module as it is. What it does not say of its own layout is that of ``inner``, from which it comes."""
        shards = output_shards(module, inner)
        first = self.layout == "SBH"
        return Source(module, parts=(part,), features=(size,), sequence_first=first, shards=shards)

    def _context(self, layer: nn.Module) -> Sequence[Source]:
        if self.context is None:
            return []
        module = layer.get_submodule(self.context)
        features = (input_features(module),)
        return [Source(module, side="input", features=features, sequence_first=self.layout == "SBH")]

    def _probabilities(self, layer: nn.Module) -> Sequence[Source]:
        if self.probabilities is None:
            return []
        path, item = _path_and_item(self.probabilities)
        cut = output_shards(_below(layer, self.q or self.qkv)) == "features"
        shards: Shards = "heads" if cut else "none"
        return [Source(layer.get_submodule(path), item=item, shards=shards)]

    def _input_tokens(self, body: nn.Module, prefix: str) -> tuple[Source, ...]:
        embedding = _below(body, self.tokens, prefix)
        if embedding is None:
            return ()
        if self.positions is None:
            return (Source(embedding, side="input", parts=("ids", "positions"), split=_counted),)
        path, item = _path_and_item(self.positions)
        module = body.get_submodule(prefix + path)
        return (
            Source(embedding, side="input", parts=("ids",)),
            Source(
                module,
                side="input",
                item=item,
                keyword=self.positions_keyword,
                parts=("positions",),
                like_ids=True,
            ),
        )

    # Matching.

    def _paths(self, *names: str) -> list[str]:
        return [path for path in (getattr(self, name) for name in names) if path is not None]

    def _inside(self) -> list[str]:
        return [_path_and_item(path)[0] for path in self._paths("attention", "probabilities", *_LINEARS)]

    def _prefix(self, model: nn.Module) -> str | None:
        body = unwrapped(model)
        outside = [_path_and_item(path)[0] for path in self._paths("tokens", "positions")]
        for prefix in self.prefixes:
            layer = _find(body, prefix + self.layer.format(i=0))
            if layer is None or any(_find(body, prefix + path) is None for path in outside):
                continue
            if all(_find(layer, path) is not None for path in self._inside()):
                return prefix
        return None

    def _layers(self, body: nn.Module, prefix: str) -> Iterator[nn.Module]:
        index = 0
        while (layer := _find(body, prefix + self.layer.format(i=index))) is not None:
            yield layer
            index += 1

    def _misfit(self, body: nn.Module) -> str:
        for prefix in self.prefixes:
            layer = _find(body, prefix + self.layer.format(i=0))
            if layer is not None:
                absent = [path for path in self._inside() if _find(layer, path) is None]
                if absent:
                    return (
                        f"The adapter {self.name!r} does not fit {type(body).__name__}: its layers have no {', '.join(absent)}. "
                        f"They have {', '.join(name for name, _ in layer.named_modules() if name)[:1000]}."
                    )
        wanted = ", ".join(path for path in (self.layer, self.tokens, self.positions) if path)
        return (
            f"The adapter {self.name!r} does not fit {type(body).__name__}: expected {wanted}, "
            f"and the model has {', '.join(name for name, _ in body.named_children())[:500]}."
        )

    def _unnamed(self, flag: str) -> str:
        return f"The adapter {self.name!r} names no module for {flag}."


@dataclass(frozen=True)
class _Concatenated:
    """Cut ``[..., q | k | v]`` by head counts, which is right for grouped-query attention too."""

    sizes: ModelSizes

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        q, k, v = _widths(data.shape[-1], self.sizes)
        return data.narrow(-1, 0, q), data.narrow(-1, q, k), data.narrow(-1, q + k, v)


@dataclass(frozen=True)
class _Grouped:
    """Cut ``[..., (queries of the group, key, value) x groups]``, as Megatron and GPT-NeoX lay it out."""

    sizes: ModelSizes

    def __call__(self, data: Tensor) -> Sequence[Tensor]:
        q, k, _ = _widths(data.shape[-1], self.sizes)
        groups = self.sizes.kv_heads or 1
        head = k // groups
        grouped = torch.unflatten(data, -1, (groups, q // groups + 2 * head))
        cuts = torch.split(grouped, [q // groups, head, head], dim=-1)
        return [cut.flatten(-2) for cut in cuts]


def _widths(size: int, sizes: ModelSizes) -> tuple[int, int, int]:
    heads = sizes.heads or 1
    groups = sizes.kv_heads or heads
    head, rest = divmod(size, heads + 2 * groups)
    if rest:
        raise ValueError(
            f"{size} features cannot be cut into {heads} query heads and twice {groups} key-value heads; set heads and kv_heads in the adapter"
        )
    return heads * head, groups * head, groups * head


def _qkv_widths(size: int | None, sizes: ModelSizes) -> tuple[int | None, ...]:
    if size is None:
        return (None, None, None)
    try:
        return _widths(size, sizes)
    except ValueError as error:
        raise TracerError(f"The fused query, key and value tensor does not fit: {error}.") from error


def _counted(ids: Tensor) -> Sequence[Tensor]:
    return ids, torch.arange(ids.shape[-1], device=ids.device).expand(ids.shape)


def _path_and_item(text: str) -> tuple[str, int]:
    path, bracket, item = text.partition("[")
    return path, int(item.rstrip("]")) if bracket else 0


def _find(module: nn.Module, path: str) -> nn.Module | None:
    try:
        return module.get_submodule(path)
    except (AttributeError, TypeError):
        return None


def _below(holder: nn.Module, path: str | None, prefix: str = "") -> nn.Module | None:
    return None if path is None else holder.get_submodule(prefix + path)
