"""Where each flag's tensor can be seen in one layer of a table, and how a fused tensor is cut."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol import expert_part
from ..protocol.messages_generated import Model
from ..tracer import Source, TracerError
from .feature_parts import HALVES, Shares
from .sizes import input_features, output_features, stored
from .table import below, path_and_item
from .torch_coordinates import input_shards, output_shards


@dataclass(frozen=True)
class RouterScores:
    """Makes probabilities of a router's output: over all experts, before the best are chosen.

    ``by`` is ``softmax``, or ``sigmoid`` for those that score each expert by itself; empty for what already
    went through it.
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

    def of(self, expert: int, given: Any) -> Tensor | None:
        """Return the outputs of one expert; the first call computes, the last forgets."""
        if expert == 0:
            self._chosen = self._outputs(*given)
        if self._chosen is None:
            return None
        index, each = self._chosen
        if expert == self._count - 1:
            self._chosen = None
        own = each[index == expert]
        return own.unsqueeze(0) if len(own) else None

    def _outputs(self, args: Any, kwargs: Any) -> tuple[Tensor, Tensor] | None:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        index = next((tensor for tensor in tensors if not tensor.is_floating_point()), None)
        if index is None or index.ndim != 2 or len(tensors) < 3:
            return None
        hidden, one = tensors[0].detach(), torch.ones_like(tensors[2][:, :1])
        each = [
            self._experts.forward(hidden, index[:, choice : choice + 1], one)
            for choice in range(index.shape[1])
        ]
        return index, torch.stack(each, dim=1)


class LayerSources:
    """Makes the sources of one layer of an ``Adapter``: ``makers`` has what makes those of each flag."""

    def __init__(self, table: Any, layer: nn.Module, model: Model, mixed: bool) -> None:
        self._table, self._layer, self._model = table, layer, model
        # Experts, and linear layers that the layer calls itself, may have all tokens of the batch in one row.
        flat = table.mixture is not None or (table.fc2 or ".").isidentifier()
        self._same: dict[str, Any] = {
            "sequence_first": table.layout == "SBH",
            "rows_of": layer if flat else None,
        }
        hidden = model.get("hidden") if table.mixture else None
        self.makers: dict[str, Callable[[], Sequence[Source]]] = {
            "QKV_mat_mul": self._qkv,
            "RawAttentionScore_mat_mul": self._probabilities,
            "ContextLayer_mat_mul": self._context,
            "MLP1_mat_mul": self._mlp1,
            "MLP2_mat_mul": lambda: self._outputs(("", table.mlp2), size=hidden),
            "AttentionOutput_mat_mul": lambda: self._outputs(("", table.attention), by=table.context),
            "HiddenStates": self._hidden,
        }
        if mixed:
            self.makers |= {"RouterProbabilities": self._router, "ExpertOutputs": self._experts}

    def _qkv(self) -> Sequence[Source]:
        """Return where the fused layer, or each of its own, gives queries, keys and values."""
        table = self._table
        if table.qkv is None:
            return self._outputs(("q", table.q), ("k", table.k), ("v", table.v))
        size = output_features(self._at(table.qkv))
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
        return [self._fused(table.qkv, ("q", "k", "v"), split, [head * share or None for share in shares])]

    def _probabilities(self) -> Sequence[Source]:
        """Return the attention's second value, or the output of a module of its own."""
        table = self._table
        if table.probabilities is None:
            return []
        path, item = path_and_item(table.probabilities)
        cut = output_shards(below(self._layer, table.q or table.qkv)) == "features"
        source = Source(self._at(path), item=item, shards="heads" if cut else "none")
        return [replace(source, side="input") if table.probabilities.endswith(":input") else source]

    def _context(self) -> Sequence[Source]:
        """Return the input of the attention's output projection."""
        if self._table.context is None:
            return []
        module = self._at(self._table.context)
        size = input_features(module)
        return [Source(module, side="input", features=(size,), shards=input_shards(module), **self._same)]

    def _mlp1(self) -> Sequence[Source]:
        """Return what goes into the MLP's nonlinearity."""
        table = self._table
        if table.gate_up is not None:
            size = output_features(self._at(table.gate_up))
            half = None if size is None else size // 2
            return [self._fused(table.gate_up, ("gate", "up"), HALVES, (half, half))]
        return self._outputs(("gate", table.gate), ("up", table.up)) or self._outputs(("", table.fc1))

    def _hidden(self) -> Sequence[Source]:
        shards, first = (
            output_shards(self._layer, below(self._layer, self._table.fc2)),
            self._table.layout == "SBH",
        )
        size = self._model.get("hidden")
        return [Source(self._layer, features=(size,), shards=shards, sequence_first=first)]

    def _router(self) -> Sequence[Source]:
        """Return where the probabilities of all experts can be seen, ``[B, S, experts]``."""
        mixture = self._table.mixture
        if mixture is None or mixture.router is None:
            return []
        scores = RouterScores(0, "softmax")
        return [
            Source(self._at(mixture.router), computed=scores, features=(mixture.count,), rows_of=self._layer)
        ]

    def _experts(self) -> Sequence[Source]:
        """Return the sources of each expert's output, ``[1, tokens, hidden]`` of the tokens routed to it.

        There are none where the outputs cannot be told apart.
        """
        mixture, hidden = self._table.mixture, self._model.get("hidden")
        if mixture is None:
            return []
        experts = self._at(mixture.experts)
        if isinstance(experts, (nn.ModuleList, nn.ModuleDict)):
            sizes = [
                [size for m in each.modules() if (size := output_features(m))] for each in experts.children()
            ]
            return [
                Source(
                    each, parts=(expert_part(number),), features=(size[-1] if size else hidden,), sparse=True
                )
                for number, (each, size) in enumerate(zip(experts.children(), sizes, strict=True))
            ]
        inner: Any = experts
        while (wrapped := stored(inner, "base_layer")) is not None:
            inner = wrapped
        if len(inspect.signature(inner.forward).parameters) < 3:
            return []
        outputs = _StackedExperts(experts, mixture.count)
        return [
            Source(
                experts,
                side="input",
                parts=(expert_part(number),),
                computed=partial(outputs.of, number),
                features=(hidden,),
                sparse=True,
            )
            for number in range(mixture.count)
        ]

    def _at(self, path: str) -> nn.Module:
        return self._layer.get_submodule(path)

    def _outputs(
        self, *named: tuple[str, str | None], by: str | None = None, size: int | None = None
    ) -> list[Source]:
        """Return the outputs of modules as they are, with the layout of ``by`` where they have none."""
        sources = []
        for part, module in ((part, self._at(path)) for part, path in named if path is not None):
            inner = below(self._layer, by)
            features = size or output_features(inner or module)
            shards = output_shards(module, inner)
            sources.append(Source(module, parts=(part,), features=(features,), shards=shards, **self._same))
        return sources

    def _fused(self, path: str, parts: tuple[str, ...], split: Any, sizes: Sequence[int | None]) -> Source:
        module = self._at(path)
        shards, features = output_shards(module), tuple(sizes)
        return Source(module, parts=parts, split=split, features=features, shards=shards, **self._same)
