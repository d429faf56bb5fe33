"""What attention, routers and weights are like, in numbers: pure functions of tensors, bounded in cost."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "PowerIteration",
    "attention_entropy",
    "attention_largest",
    "attention_probabilities",
    "router_entropy",
    "router_similarity",
]

MOST_ROWS = 64
"""Query rows of each head that are looked at, evenly over the sequence with its last."""
MOST_SAMPLES = 4
"""Samples of which probabilities are computed anew."""
MOST_TOKENS = 4096
_FIRST_ITERATIONS, _MORE_ITERATIONS = 24, 4


def attention_probabilities(query: Tensor, key: Tensor, size: int, *, causal: bool = True) -> Tensor:
    """Return what each query row attends to, ``[B, heads, rows, S]``, float32: the softmax of scaled products, of few samples and rows.

    Parameters
    ----------
    query, key : Tensor
        ``[B, S, heads * size]``, before positions are turned into them; keys may be of fewer heads, each for a group of queries.
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
    """Return the entropy in nats of each query row of ``[..., rows, S]``: 0 where it looks at one position only."""
    found: Tensor = torch.special.entr(_some(probabilities).float()).sum(-1)
    return found


def attention_largest(probabilities: Tensor) -> Tensor:
    """Return the largest probability of each query row of ``[..., rows, S]``."""
    return _some(probabilities).float().amax(-1)


def router_entropy(probabilities: Tensor) -> Tensor:
    """Return the entropy in nats of each token over experts, of ``[..., experts]``; scores that do not sum to 1 are made to."""
    tokens = probabilities.flatten(0, -2)
    tokens = tokens[_rows(len(tokens), tokens.device, MOST_TOKENS)].float()
    found: Tensor = torch.special.entr(tokens / tokens.sum(-1, keepdim=True)).sum(-1)
    return found


def router_similarity(weight: Tensor) -> Tensor:
    """Return the cosine of each pair of experts in a router's weight; the shorter axis is that of the experts."""
    experts = (weight if weight.shape[0] <= weight.shape[1] else weight.T).float()
    experts = torch.nn.functional.normalize(experts, dim=-1)
    above = torch.triu_indices(len(experts), len(experts), 1, device=weight.device)
    cosines: Tensor = (experts @ experts.T)[above[0], above[1]]
    return cosines


class PowerIteration:
    """Finds the largest singular value of a weight that changes a little from step to step: begins where it was left, so that a few products are enough."""

    def __init__(self) -> None:
        self._start: Tensor | None = None
        self._vector: Tensor | None = None

    def __call__(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return the largest singular value of ``[m, n]``, and the stable rank: the sum of all squares over its own; each ``[1]``."""
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
        # What is no number, or nothing, is no place to begin at.
        self._vector = torch.where(torch.isfinite(norm) & (norm > 0), vector, self._start)
        return norm, (values.norm() / norm).square()


def _some(probabilities: Tensor) -> Tensor:
    return probabilities[..., _rows(probabilities.shape[-2], probabilities.device), :]


def _rows(length: int, device: torch.device, most: int = MOST_ROWS) -> Tensor:
    if length <= most:
        return torch.arange(length, device=device)
    return torch.linspace(0, length - 1, most, device=device).long()
