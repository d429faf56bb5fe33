"""Features of attention, routers and weights: pure functions of bounded cost."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from . import measure
from .hooks.sites import made_of
from .part import MeasuredRows, NameList
from .points import FeaturePoint, ParamPoint

MOST_ROWS = 64
"""Query rows of each head that are looked at, evenly over the sequence with its last."""
MOST_SAMPLES = 4
"""Samples of which probabilities are computed anew."""
MOST_TOKENS = 4096
"""Tokens of a router, evenly over all of them."""
_FIRST_ITERATIONS, _MORE_ITERATIONS = 24, 4
"""Products with a weight and its transpose in the first step, and in each one after it."""
_NORMS = ("kernel_norm", "stable_rank")


def attention_probabilities(query: Tensor, key: Tensor, size: int, *, causal: bool = True) -> Tensor:
    """Return the softmax of scaled products of few samples and rows, ``[B, heads, rows, S]``, float32.

    Parameters
    ----------
    query, key : Tensor
        ``[B, S, heads * size]``, before positions are rotated into them; keys may be of fewer heads, each for
        a group of queries.
    size : int
        Of one head.
    causal : bool
        Whether a row sees no later position.
    """
    query = torch.unflatten(query[:MOST_SAMPLES].float(), -1, (-1, size)).transpose(1, 2)
    key = torch.unflatten(key[:MOST_SAMPLES].float(), -1, (-1, size)).transpose(1, 2)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    rows = _rows(query.shape[-2], query.device)
    scores = query[..., rows, :] @ key.transpose(-2, -1) / size**0.5
    if causal:
        later = torch.arange(key.shape[-2], device=key.device) > rows[:, None]
        scores = scores.masked_fill(later, -torch.inf)
    found: Tensor = scores.softmax(-1)
    return found


def attention_entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy in nats of each query row of ``[..., rows, S]``; 0 for a one-hot row."""
    found: Tensor = torch.special.entr(_some(probabilities).float()).sum(-1)
    return found


def attention_largest(probabilities: Tensor) -> Tensor:
    """Return the largest probability of each query row of ``[..., rows, S]``."""
    return _some(probabilities).float().amax(-1)


def router_entropy(probabilities: Tensor) -> Tensor:
    """Return each token's entropy in nats over experts, of ``[..., experts]``; scores are normalised."""
    tokens = probabilities.flatten(0, -2)
    tokens = tokens[_rows(len(tokens), tokens.device, MOST_TOKENS)].float()
    found: Tensor = torch.special.entr(tokens / tokens.sum(-1, keepdim=True)).sum(-1)
    return found


def router_similarity(weight: Tensor) -> Tensor:
    """Return the cosine of each pair of experts in a router's weight, whose shorter axis is the experts'."""
    experts = (weight if weight.shape[0] <= weight.shape[1] else weight.T).float()
    experts = torch.nn.functional.normalize(experts, dim=-1)
    above = torch.triu_indices(len(experts), len(experts), 1, device=weight.device)
    cosines: Tensor = (experts @ experts.T)[above[0], above[1]]
    return cosines


class PowerIteration:
    """Finds the largest singular value of a weight that changes a little from step to step.

    It begins at the last step's vector, so that a few products are enough.
    """

    def __init__(self) -> None:
        self._start: Tensor | None = None
        self._vector: Tensor | None = None

    def __call__(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest singular value σ of ``[m, n]``, and the stable rank ‖W‖²/σ²; each ``[1]``."""
        values = weight.detach().float()
        times = _MORE_ITERATIONS
        if self._vector is None or self._start is None or self._vector.device != values.device:
            # The training's own random numbers are not touched.
            self._start = torch.randn(values.shape[1], generator=torch.Generator().manual_seed(0)).to(values)
            self._vector, times = self._start, _FIRST_ITERATIONS
        vector, norm = self._vector, values.new_zeros(1)
        for _ in range(times):
            left = torch.nn.functional.normalize(values @ vector, dim=0)
            vector = values.T @ left
            norm = vector.norm().reshape(1)
            vector = torch.nn.functional.normalize(vector, dim=0)
        # A vector that is zero or not finite cannot be iterated.
        self._vector = torch.where(torch.isfinite(norm) & (norm > 0), vector, self._start)
        return norm, (values.norm() / norm).square()


def _some(probabilities: Tensor) -> Tensor:
    return probabilities[..., _rows(probabilities.shape[-2], probabilities.device), :]


def _rows(length: int, device: torch.device, most: int = MOST_ROWS) -> Tensor:
    if length <= most:
        return torch.arange(length, device=device)
    return torch.linspace(0, length - 1, most, device=device).long()


class WeightFeatures:
    """Measures features of parameters that this process has complete, before a step.

    ``features`` whose source is no module are of parameters.
    """

    def __init__(
        self, params: Sequence[ParamPoint], features: Sequence[FeaturePoint], names: NameList
    ) -> None:
        self._weights = [(point, PowerIteration()) for point in params if _is_complete(point)]
        self._features = [
            (each, each.source) for each in features if not isinstance(each.source, torch.nn.Module)
        ]
        self._names = names

    def measure(self, due: Collection[str]) -> dict[str, MeasuredRows]:
        """Return what is due, by statistic."""
        found: dict[str, list[tuple[str, Tensor]]] = {}
        norms = [stat for stat in _NORMS if stat in due]
        for point, iteration in self._weights if norms else ():
            value = point.value()
            if value is None or value.ndim != 2 or not value.numel():
                continue
            made = made_of(lambda each: torch.stack(iteration(each)), value)  # noqa: B023
            for at, stat in enumerate(_NORMS):
                if stat in due and made is not None:
                    found.setdefault(stat, []).append((point.name, made[at]))
        for feature, give in self._features:
            value = give() if feature.stat in due and feature.counted else None
            tensor = None if value is None else made_of(feature.of, value)
            if tensor is not None:
                found.setdefault(feature.stat, []).append((feature.name, tensor))
        return {stat: self._rows(stat, given) for stat, given in found.items()}

    def _rows(self, stat: str, given: Sequence[tuple[str, Tensor]]) -> MeasuredRows:
        part = MeasuredRows(stat)
        by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
        for name, tensor in given:
            by_device.setdefault(tensor.device, []).append((name, tensor))
        for here in by_device.values():
            part.add([self._names.index(name) for name, _ in here], measure([each for _, each in here]))
        return part


def _is_complete(point: ParamPoint) -> bool:
    """Return whether a weight is not a shard, as of tensor parallelism or ``fully_shard``."""
    parameter = point.parameter
    return (
        parameter.ndim >= 2
        and not hasattr(parameter, "placements")
        and not getattr(parameter, "tensor_model_parallel", False)
    )
