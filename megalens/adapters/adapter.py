"""From a table of paths to the trace points of a model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol import EMBEDDING
from ..tracer import FlagPoints, ModelPoints, SitePoints, Source, TracerError
from .layer_sources import EXPERT_FLAGS, LAYER_FLAGS, LayerSources
from .sizes import model_sizes, unwrapped
from .table import LayerTable, below, find, path_and_item, sites_of
from .torch_coordinates import torch_coordinates

_MIXED = {
    "MLP1_mat_mul": "Every layer is a mixture of experts, whose first linear layers see other tokens each, "
    "so that there is no one tensor; ExpertOutputs has what each gives.",
    "ExpertOutputs": "The experts of this model compute all tokens in one product, "
    "where their outputs cannot be told apart.",
}


@dataclass(frozen=True)
class Adapter(LayerTable):
    """Dotted module paths of a GPT-like model. Paths in a layer are below that layer; an entry that the model
    lacks stays None.

    ``Adapter(layer="blocks.{i}", qkv="attention.qkv", context="attention.projection", fc1="mlp.fc1",
    fc2="mlp.fc2")`` is a complete one.
    """

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
        layers: Mapping[int, tuple[nn.Module, LayerTable]],
        supposed: str | None = None,
    ) -> ModelPoints:
        """Return the trace points of ``model``, given its layers with their tables.

        ``supposed`` is the reason to give where a table has nothing: what it has is only supposed then, and
        what does not fit is left out.
        """
        body = unwrapped(model)
        described = model_sizes(body, self, len(layers), below(body, self.tokens))
        sources = {i: LayerSources(table, layer, described) for i, (layer, table) in layers.items()}
        flags: dict[str, FlagPoints] = {}
        mixed = any(table.mixture for _, table in layers.values())
        for flag, make in LAYER_FLAGS.items():
            if flag in EXPERT_FLAGS and not mixed:
                continue
            reason = self.missing(body, flag) if self.missing else None
            found = {} if reason else {i: _made(make, here, supposed) for i, here in sources.items()}
            found = {i: made for i, made in found.items() if made}
            absent = supposed if supposed and not mixed else self._unnamed(flag, mixed)
            flags[flag] = FlagPoints(found, reason or (None if found else absent))
        tokens = self._input_tokens(body)
        flags["InputTokens"] = FlagPoints({EMBEDDING: tokens} if tokens else {}, self._unnamed("InputTokens"))
        return ModelPoints((model,), described, flags, _sites(layers), torch_coordinates(model))

    def _input_tokens(self, body: nn.Module) -> tuple[Source, ...]:
        embedding = below(body, self.tokens)
        if embedding is None:
            return ()
        if self.positions is None:
            owner = _caching(body, self.tokens)
            if owner is None:
                return (Source(embedding, side="input", parts=("ids", "positions"), split=_counted),)
            return (
                Source(embedding, side="input", parts=("ids",)),
                Source(owner, side="input", parts=("positions",), computed=_counted_on),
            )
        path, item = path_and_item(self.positions)
        module = body.get_submodule(path)
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

    def _layers(self, body: nn.Module) -> list[nn.Module]:
        found: dict[nn.Module, None] = {}
        # A model that answers to every name has no more layers than it has modules.
        while (layer := find(body, self.layer.format(i=len(found)))) is not None and layer not in found:
            found[layer] = None
        return list(found)

    def _misfit(self, body: nn.Module) -> str | None:
        """Return what of the table ``body`` lacks; None where it has everything."""
        layers = self._layers(body)
        outside = [path_and_item(path)[0] for path in self.paths("tokens", "positions")]
        if not layers or any(find(body, path) is None for path in outside):
            children = ", ".join(name for name, _ in body.named_children())[:500]
            return f"expected {', '.join((self.layer, *outside))}, and the model has {children}"
        for number, layer in enumerate(layers):
            absent = [path for path in self.modules() if find(layer, path) is None]
            if absent:
                names = ", ".join(name for name, _ in layer.named_modules() if name)[:1000]
                return f"layer {number} has no {', '.join(absent)}. It has {names}"
        return None

    def _unnamed(self, flag: str, mixed: bool = False) -> str:
        if mixed and flag in _MIXED:
            return _MIXED[flag]
        return f"The adapter {self.name!r} names no module for {flag}."


def _made(make: Any, here: LayerSources, supposed: str | None) -> tuple[Source, ...]:
    try:
        return tuple(make(here))
    except (TracerError, AttributeError, TypeError):
        if supposed is None:
            raise
        return ()


def _sites(layers: Mapping[int, tuple[nn.Module, LayerTable]]) -> dict[str, SitePoints]:
    return sites_of(
        weight={
            i: [layer.get_submodule(path) for path in table.linears()] for i, (layer, table) in layers.items()
        },
        calculation={i: [below(layer, table.mlp2)] for i, (layer, table) in layers.items()},
        system={i: [layer] for i, (layer, _) in layers.items()},
    )


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
