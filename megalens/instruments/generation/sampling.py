"""From the logits of a pass to the next token of each sequence."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .errors import GenerationError

Processors = Callable[[Tensor, Tensor], Tensor]
"""From ids ``[B, S]`` so far and logits ``[B, V]`` to the scores to draw from."""


class Sampler:
    """Draws tokens from its own random generator.

    Parameters
    ----------
    temperature : float
        Logits are divided by it; 0 always takes the most probable token.
    top_k, top_p
        Draw from the k most probable tokens only (0: all), and from the fewest that reach p together (1:
        all).
    seed : int
        The same seed draws the same tokens.
    """

    def __init__(
        self, temperature: float, top_k: int, top_p: float, seed: int, device: torch.device | str = "cpu"
    ) -> None:
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self._random = torch.Generator(device=device).manual_seed(seed)

    def filtered(
        self, logits: Tensor, ids: Tensor | None = None, processors: Processors | None = None
    ) -> Tensor:
        """Return the logits to draw from, float32 ``[B, V]``, minus infinity where a token is cut off.

        ``processors`` are those of the model, for the ids ``[B, S]`` so far; without them temperature, top-k
        and top-p are ours. Raises ``GenerationError`` where there is nothing to draw from.
        """
        if processors is None or ids is None:
            scores = self._cut(logits.float())
        else:
            scores = processors(ids, logits.to(torch.float32, copy=True))
        best = scores.amax(-1)
        if not bool(best.isfinite().all()):
            raise GenerationError(
                "The model's generation_config leaves no token to draw."
                if bool(best.isneginf().any())
                else "The model gave logits that are NaN or infinite, from which no token can be taken."
            )
        if self.temperature == 0:
            return torch.full_like(scores, -math.inf).scatter_(1, scores.argmax(-1, keepdim=True), 0.0)
        return scores

    # In the order and by the rules of transformers, for models of others.
    def _cut(self, scores: Tensor) -> Tensor:
        if self.temperature == 0:
            return scores
        if self.temperature != 1:
            scores = scores / self.temperature
        if self.top_k:
            last = scores.topk(min(self.top_k, scores.shape[-1]))[0][..., -1, None]
            scores = scores.masked_fill(scores < last, -math.inf)
        if self.top_p < 1:
            ordered, order = scores.sort(descending=False)
            cut = ordered.softmax(-1).cumsum(-1) <= 1 - self.top_p
            cut[..., -1] = False
            scores = scores.masked_fill(cut.scatter(1, order, cut), -math.inf)
        return scores

    def draw(self, filtered: Tensor) -> Tensor:
        """Return one token of each row, int64 ``[B]``."""
        if self.temperature == 0:
            return filtered.argmax(-1)
        return torch.multinomial(filtered.softmax(-1), 1, generator=self._random)[:, 0]
