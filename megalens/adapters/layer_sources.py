"""Where each flag's tensor can be seen in one layer of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from ..tracer import Shards, Source
from .experts import expert_sources, router_sources
from .paths import below, path_and_item
from .sizes import ModelSizes, halves, input_features, output_features
from .splits import ConcatenatedParts, GroupedParts, KeyValueParts, qkv_widths
from .torch_layout import input_shards, output_shards

if TYPE_CHECKING:
    from .adapter import Adapter

__all__ = ["EXPERT_FLAGS", "LAYER_FLAGS", "LayerSources"]


class LayerSources:
    """Makes the sources of one layer, one method per flag.

    Parameters
    ----------
    table : Adapter
        What is where below the layer.
    layer : torch.nn.Module
        The layer.
    sizes : ModelSizes
        Of the whole model.
    """

    def __init__(self, table: Adapter, layer: nn.Module, sizes: ModelSizes) -> None:
        self._table, self._layer, self._sizes = table, layer, sizes
        # Experts, latent attention, and linear layers that the layer calls itself may work on all tokens of the batch in one row.
        flat = table.mixture is not None or table.kv is not None or (table.fc2 or ".").isidentifier()
        self._same: dict[str, Any] = {
            "sequence_first": table.layout == "SBH",
            "rows_of": layer if flat else None,
        }

    def queries_keys_values(self) -> Sequence[Source]:
        """Return where the fused layer, or each of its own, gives them."""
        table = self._table
        if table.qkv is not None:
            module = self._at(table.qkv)
            widths = qkv_widths(output_features(module), self._sizes)
            plain = table.qkv_order == "concatenated"
            split = ConcatenatedParts(self._sizes) if plain else GroupedParts(self._sizes)
            return [self._parts(module, ("q", "k", "v"), split, widths)]
        named = [("q", table.q), ("k", table.k), ("v", table.v)]
        sources = [self._output(path, part=part) for part, path in named if path is not None]
        if table.kv is not None:
            module = self._at(table.kv)
            attention: Any = self._at(table.kv.rpartition(".")[0])
            key, value = int(attention.qk_nope_head_dim), int(attention.v_head_dim)
            heads = (output_features(module) or 0) // (key + value)
            widths = (heads * key, heads * value)
            sources.append(self._parts(module, ("k", "v"), KeyValueParts(key, value), widths))
        return sources

    def probabilities(self) -> Sequence[Source]:
        """Return what the attention gives beside its output, or a module of its own."""
        table = self._table
        if table.probabilities is None:
            return []
        path, item = path_and_item(table.probabilities)
        cut = output_shards(below(self._layer, table.q or table.qkv)) == "features"
        shards: Shards = "heads" if cut else "none"
        return [Source(self._at(path), item=item, shards=shards)]

    def context(self) -> Sequence[Source]:
        """Return what the attention's output projection is given."""
        if self._table.context is None:
            return []
        module = self._at(self._table.context)
        shards = input_shards(module)
        return [Source(module, side="input", features=(input_features(module),), shards=shards, **self._same)]

    def attention_output(self) -> Sequence[Source]:
        """Return what the attention gives."""
        path = self._table.attention
        return [] if path is None else [self._output(path, self._table.context)]

    def mlp1(self) -> Sequence[Source]:
        """Return what goes into the MLP's nonlinearity."""
        table = self._table
        if table.gate_up is not None:
            module = self._at(table.gate_up)
            size = output_features(module)
            half = None if size is None else size // 2
            return [self._parts(module, ("gate", "up"), halves, (half, half))]
        if table.gate is not None and table.up is not None:
            return [self._output(table.gate, part="gate"), self._output(table.up, part="up")]
        return [] if table.fc1 is None else [self._output(table.fc1)]

    def mlp2(self) -> Sequence[Source]:
        """Return what the MLP gives, or all experts together."""
        path = self._table.mlp2
        if path is None:
            return []
        return [self._output(path, size=self._sizes.hidden if self._table.mixture else None)]

    def router(self) -> Sequence[Source]:
        """Return what the router gives each expert."""
        mixture = self._table.mixture
        return [] if mixture is None else router_sources(self._layer, mixture)

    def experts(self) -> Sequence[Source]:
        """Return what each expert gives."""
        mixture = self._table.mixture
        return [] if mixture is None else expert_sources(self._layer, mixture, self._sizes.hidden)

    def hidden(self) -> Sequence[Source]:
        """Return what the layer gives."""
        shards = output_shards(self._layer, below(self._layer, self._table.fc2))
        first = self._table.layout == "SBH"
        return [Source(self._layer, features=(self._sizes.hidden,), shards=shards, sequence_first=first)]

    def _at(self, path: str) -> nn.Module:
        return self._layer.get_submodule(path)

    def _output(
        self, path: str, sized_by: str | None = None, *, part: str = "", size: int | None = None
    ) -> Source:
        """Return the output of a module as it is. What it does not say of its own layout is that of ``sized_by``, from which it comes."""
        module, inner = self._at(path), below(self._layer, sized_by)
        features = size or output_features(inner or module)
        return Source(
            module, parts=(part,), features=(features,), shards=output_shards(module, inner), **self._same
        )

    def _parts(
        self,
        module: nn.Module,
        parts: tuple[str, ...],
        split: Any,
        features: tuple[int | None, ...],
    ) -> Source:
        shards = output_shards(module)
        return Source(module, parts=parts, split=split, features=features, shards=shards, **self._same)


LAYER_FLAGS: Mapping[str, Callable[[LayerSources], Sequence[Source]]] = {
    "QKV_mat_mul": LayerSources.queries_keys_values,
    "RawAttentionScore_mat_mul": LayerSources.probabilities,
    "ContextLayer_mat_mul": LayerSources.context,
    "MLP1_mat_mul": LayerSources.mlp1,
    "MLP2_mat_mul": LayerSources.mlp2,
    "AttentionOutput_mat_mul": LayerSources.attention_output,
    "HiddenStates": LayerSources.hidden,
    "RouterProbabilities": LayerSources.router,
    "ExpertOutputs": LayerSources.experts,
}
"""The flags that layers have, each with what makes its sources."""
EXPERT_FLAGS = frozenset(("RouterProbabilities", "ExpertOutputs"))
"""Those that only mixtures of experts have."""
