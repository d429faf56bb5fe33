"""What can be seen of a mixture of experts: the router's probabilities, and what each expert gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..protocol import expert_part
from ..tracer import Source
from .layer_roles import Mixture
from .sizes import output_features

__all__ = ["expert_sources", "router_sources"]

_LOGITS_SECOND = frozenset(("Llama4Router",))


def router_sources(layer: nn.Module, mixture: Mixture) -> Sequence[Source]:
    """Return where the probabilities of all experts can be seen, ``[B, S, experts]``."""
    if mixture.router is None:
        return []
    router = layer.get_submodule(mixture.router)
    second = type(router).__name__ in _LOGITS_SECOND
    # Models that balance their experts by a bias score each of them by itself.
    alone = second or hasattr(router, "e_score_correction_bias")
    probabilities = _Probabilities(1 if second else 0, alone)
    return [Source(router, computed=probabilities, features=(mixture.count,), rows_of=layer)]


def expert_sources(layer: nn.Module, mixture: Mixture, hidden: int | None) -> Sequence[Source]:
    """Return where the outputs of each expert can be seen, ``[1, tokens, hidden]`` of the tokens that were routed to it; none where they cannot be told apart."""
    experts = layer.get_submodule(mixture.experts)
    if isinstance(experts, (nn.ModuleList, nn.ModuleDict)):
        return [
            Source(expert, parts=(expert_part(number),), features=(_width(expert) or hidden,), sparse=True)
            for number, expert in enumerate(experts.children())
        ]
    inner: Any = experts
    while hasattr(inner, "base_layer"):
        inner = inner.base_layer
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
class _Probabilities:
    """Makes probabilities of a router's output: over all experts, before the best are chosen."""

    item: int
    alone: bool

    def __call__(self, output: Any) -> Tensor:
        logits: Tensor = output if isinstance(output, Tensor) else output[self.item]
        return logits.float().sigmoid() if self.alone else logits.float().softmax(-1)


class _StackedExperts:
    """Outputs of experts whose weights are one tensor, so that no module of theirs is called.

    The module is asked once more for each place among the chosen, with that choice alone and a weight of 1: what it then gives each token is the output of one expert. The ranks' own collectives do not come
    into it, since the weights are there in the module's pre-hook.
    """

    def __init__(self, experts: nn.Module, count: int) -> None:
        self._experts, self._count = experts, count
        self._chosen: tuple[Tensor, Tensor] | None = None

    def of(self, expert: int) -> Callable[[Any], Tensor | None]:
        """Return what gives the outputs of one expert. They are asked for in order, the first computes and the last forgets."""

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
            self._experts.forward(hidden, index[:, place : place + 1], one) for place in range(index.shape[1])
        ]
        return index, torch.stack(each, dim=1)
