"""Where each flag's tensor can be seen in one layer of a table, and how a fused tensor is cut."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol import expert_part
from ..protocol.messages_generated import Model
from ..tracer import Shards, Source, TracerError
from .feature_parts import HALVES, Shares
from .layer_roles import Mixture
from .sizes import input_features, output_features, stored
from .table import LayerTable, below, path_and_item
from .torch_coordinates import input_shards, output_shards


def router_sources(layer: nn.Module, mixture: Mixture) -> Sequence[Source]:
    """Return where the probabilities of all experts can be seen, ``[B, S, experts]``."""
    if mixture.router is None:
        return []
    router = layer.get_submodule(mixture.router)
    computed = RouterScores(0, "softmax")
    return [Source(router, computed=computed, features=(mixture.count,), rows_of=layer)]


def expert_sources(layer: nn.Module, mixture: Mixture, hidden: int | None) -> Sequence[Source]:
    """Return the sources of each expert's output, ``[1, tokens, hidden]`` of the tokens routed to it.

    There are none where the outputs cannot be told apart.
    """
    experts = layer.get_submodule(mixture.experts)
    if isinstance(experts, (nn.ModuleList, nn.ModuleDict)):
        return [
            Source(expert, parts=(expert_part(number),), features=(_width(expert) or hidden,), sparse=True)
            for number, expert in enumerate(experts.children())
        ]
    inner: Any = experts
    while (below_it := stored(inner, "base_layer")) is not None:
        inner = below_it
    if len(inspect.signature(inner.forward).parameters) < 3:
        return []
    outputs = _StackedExperts(experts, mixture.count)
    return [
        Source(
            experts,
            side="input",
            parts=(expert_part(number),),
            computed=outputs.of(number),
            features=(hidden,),
            sparse=True,
        )
        for number in range(mixture.count)
    ]


def _width(expert: nn.Module) -> int | None:
    linears = [module for module in expert.modules() if output_features(module) is not None]
    return output_features(linears[-1]) if linears else None


@dataclass(frozen=True)
class RouterScores:
    """Makes probabilities of a router's output: over all experts, before the best are chosen.

    Attributes
    ----------
    by : str
        ``softmax``, or ``sigmoid`` for those that score each expert by itself; empty for what already went
        through it.
    """

    item: int
    by: str

    def __call__(self, output: Any) -> Tensor:
        scores: Tensor = (output if isinstance(output, Tensor) else output[self.item]).float()
        if not self.by:
            return scores
        return scores.sigmoid() if self.by == "sigmoid" else scores.softmax(-1)


class _StackedExperts:
    """Outputs of experts whose weights are one tensor, so that no module of theirs is called.

    The module is called once more for each of the top-k choices, with that choice alone and a weight of 1:
    what it then gives each token is the output of one expert. The ranks' own collectives do not come into it,
    since the weights are there in the module's pre-hook.
    """

    def __init__(self, experts: nn.Module, count: int) -> None:
        self._experts, self._count = experts, count
        self._chosen: tuple[Tensor, Tensor] | None = None

    def of(self, expert: int) -> Callable[[Any], Tensor | None]:
        """Return what gives the outputs of one expert; the first call computes, the last forgets."""

        def outputs(given: Any) -> Tensor | None:
            if expert == 0:
                self._chosen = self._outputs(*given)
            if self._chosen is None:
                return None
            index, each = self._chosen
            if expert == self._count - 1:
                self._chosen = None
            own = each[index == expert]
            return own.unsqueeze(0) if len(own) else None

        return outputs

    def _outputs(self, args: Any, kwargs: Any) -> tuple[Tensor, Tensor] | None:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        index = next((tensor for tensor in tensors if not tensor.is_floating_point()), None)
        if index is None or index.ndim != 2 or len(tensors) < 3:
            return None
        hidden = tensors[0].detach()
        one = torch.ones_like(tensors[2][:, :1])
        each = [
            self._experts.forward(hidden, index[:, choice : choice + 1], one)
            for choice in range(index.shape[1])
        ]
        return index, torch.stack(each, dim=1)


class LayerSources:
    """Makes the sources of one layer, one method per flag."""

    def __init__(self, table: LayerTable, layer: nn.Module, model: Model) -> None:
        self._table, self._layer, self._model = table, layer, model
        # Experts, latent attention, and linear layers that the layer calls itself may work on all tokens of
        # the batch in one row.
        flat = table.mixture is not None or table.kv is not None or (table.fc2 or ".").isidentifier()
        self._same: dict[str, Any] = {
            "sequence_first": table.layout == "SBH",
            "rows_of": layer if flat else None,
        }

    def queries_keys_values(self) -> Sequence[Source]:
        """Return where the fused layer, or each of its own, gives them."""
        table = self._table
        if table.qkv is not None:
            module, size = self._at(table.qkv), output_features(self._at(table.qkv))
            heads = self._model.get("heads") or 1
            groups = self._model.get("kv_heads") or heads
            shares = (heads, groups, groups)
            head, rest = divmod(size or 0, sum(shares))
            if rest:
                raise TracerError(
                    f"The fused query, key and value tensor does not fit: {size} features cannot be cut into "
                    f"{heads} query heads and twice {groups} key-value heads; set heads and kv_heads in the "
                    "adapter."
                )
            grouped = table.qkv_order == "grouped"
            split = Shares((heads // groups, 1, 1), groups) if grouped else Shares(shares, 1)
            return [self._parts(module, ("q", "k", "v"), split, [head * share or None for share in shares])]
        named = [("q", table.q), ("k", table.k), ("v", table.v)]
        sources = [self._output(path, part=part) for part, path in named if path is not None]
        if table.kv is not None:
            module = self._at(table.kv)
            attention: Any = self._at(table.kv.rpartition(".")[0])
            key, value = int(stored(attention, "qk_nope_head_dim")), int(stored(attention, "v_head_dim"))
            heads = (output_features(module) or 0) // (key + value)
            widths = (heads * key, heads * value)
            sources.append(self._parts(module, ("k", "v"), Shares((key, value)), widths))
        return sources

    def probabilities(self) -> Sequence[Source]:
        """Return the attention's second value, or the output of a module of its own."""
        table = self._table
        if table.probabilities is None:
            return []
        path, item = path_and_item(table.probabilities)
        cut = output_shards(below(self._layer, table.q or table.qkv)) == "features"
        shards: Shards = "heads" if cut else "none"
        source = Source(self._at(path), item=item, shards=shards)
        return [replace(source, side="input") if table.probabilities.endswith(":input") else source]

    def context(self) -> Sequence[Source]:
        """Return the input of the attention's output projection."""
        if self._table.context is None:
            return []
        module = self._at(self._table.context)
        shards = input_shards(module)
        return [Source(module, side="input", features=(input_features(module),), shards=shards, **self._same)]

    def attention_output(self) -> Sequence[Source]:
        path = self._table.attention
        return [] if path is None else [self._output(path, self._table.context)]

    def mlp1(self) -> Sequence[Source]:
        """Return what goes into the MLP's nonlinearity."""
        table = self._table
        if table.gate_up is not None:
            module = self._at(table.gate_up)
            size = output_features(module)
            half = None if size is None else size // 2
            return [self._parts(module, ("gate", "up"), HALVES, (half, half))]
        if table.gate is not None and table.up is not None:
            return [self._output(table.gate, part="gate"), self._output(table.up, part="up")]
        return [] if table.fc1 is None else [self._output(table.fc1)]

    def mlp2(self) -> Sequence[Source]:
        """Return the output of the MLP, or of all experts together."""
        path = self._table.mlp2
        if path is None:
            return []
        return [self._output(path, size=self._model.get("hidden") if self._table.mixture else None)]

    def router(self) -> Sequence[Source]:
        mixture = self._table.mixture
        return [] if mixture is None else router_sources(self._layer, mixture)

    def experts(self) -> Sequence[Source]:
        mixture = self._table.mixture
        return [] if mixture is None else expert_sources(self._layer, mixture, self._model.get("hidden"))

    def hidden(self) -> Sequence[Source]:
        shards = output_shards(self._layer, below(self._layer, self._table.fc2))
        first = self._table.layout == "SBH"
        return [
            Source(self._layer, features=(self._model.get("hidden"),), shards=shards, sequence_first=first)
        ]

    def _at(self, path: str) -> nn.Module:
        return self._layer.get_submodule(path)

    def _output(
        self, path: str, sized_by: str | None = None, *, part: str = "", size: int | None = None
    ) -> Source:
        """Return the output of a module as it is, with the layout of ``sized_by`` where it has none."""
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
        features: Sequence[int | None],
    ) -> Source:
        sizes, shards = tuple(features), output_shards(module)
        return Source(module, parts=parts, split=split, features=sizes, shards=shards, **self._same)


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
