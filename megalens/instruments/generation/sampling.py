"""From logits to the next token: temperature, top-k and top-p in the order and by the rules of transformers' ``LogitsProcessor`` classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import GenerationError

__all__ = ["Candidates", "Sampler", "candidates_of"]


class Sampler:
    """Draws tokens with random numbers of its own: those of everybody else stay as they are.

    Parameters
    ----------
    temperature : float
        Logits are divided by it; 0 always takes the most probable token.
    top_k, top_p
        Draw from the k most probable tokens only (0 from all), and from the fewest that reach p together (1 from all).
    seed : int
        The same seed draws the same tokens.
    device : torch.device
        Where the logits are.
    """

    def __init__(
        self, temperature: float, top_k: int, top_p: float, seed: int, device: torch.device | str = "cpu"
    ) -> None:
        self._temperature, self._top_k, self._top_p = temperature, top_k, top_p
        self._random = torch.Generator(device=device).manual_seed(seed)

    def filtered(self, logits: Tensor) -> Tensor:
        """Return the logits that are drawn from, float32 ``[B, V]``, minus infinity where a token is cut off.

        Raises
        ------
        GenerationError
            When they are no numbers.
        """
        scores = logits.float()
        if bool((scores.isnan() | scores.isposinf()).any()):
            raise GenerationError(
                "The model gave logits that are NaN or infinite, from which no token can be taken."
            )
        if self._temperature == 0:
            best = scores.argmax(-1, keepdim=True)
            return torch.full_like(scores, -math.inf).scatter_(1, best, 0.0)
        if self._temperature != 1:
            scores = scores / self._temperature
        if self._top_k:
            last = scores.topk(min(self._top_k, scores.shape[-1]))[0][..., -1, None]
            scores = scores.masked_fill(scores < last, -math.inf)
        if self._top_p < 1:
            ordered, places = scores.sort(descending=False)
            cut = ordered.softmax(-1).cumsum(-1) <= 1 - self._top_p
            cut[..., -1] = False
            scores = scores.masked_fill(cut.scatter(1, places, cut), -math.inf)
        return scores

    def draw(self, filtered: Tensor) -> Tensor:
        """Return one token of each row, int64 ``[B]``."""
        if self._temperature == 0:
            return filtered.argmax(-1)
        return torch.multinomial(filtered.softmax(-1), 1, generator=self._random)[:, 0]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Some rows of logits, and the token that each is asked about. On the host.

    Attributes
    ----------
    logit, probability, entropy : torch.Tensor
        Of the token, at temperature 1 over the whole vocabulary, ``[N]``; entropy of the row in nats.
    rank : torch.Tensor
        int64 ``[N]``: tokens with a higher logit.
    sampled : torch.Tensor or None
        Probability of the token in what was drawn from, ``[N]``.
    ids, logits, probabilities : torch.Tensor
        The most probable tokens, most probable first, ``[N, count]``.
    candidates_sampled : torch.Tensor or None
        Their probabilities in what was drawn from.
    """

    logit: Tensor
    probability: Tensor
    entropy: Tensor
    rank: Tensor
    ids: Tensor
    logits: Tensor
    probabilities: Tensor
    sampled: Tensor | None = None
    candidates_sampled: Tensor | None = None


def candidates_of(logits: Tensor, tokens: Tensor, count: int, filtered: Tensor | None = None) -> Candidates:
    """Return what there is to say of rows of logits.

    Parameters
    ----------
    logits : torch.Tensor
        ``[N, V]``, as the model gave them.
    tokens : torch.Tensor
        int64 ``[N]``: the token that was taken, or that follows in the prompt.
    count : int
        Candidates of each row.
    filtered : torch.Tensor, optional
        What was drawn from, as :meth:`Sampler.filtered` gives it.
    """
    scores = logits.float()
    log_chances = scores.log_softmax(-1)
    chances = log_chances.exp()
    # A chance of 0 adds nothing, where 0 times minus infinity would be NaN.
    entropy = -(chances * log_chances.clamp(min=torch.finfo(torch.float32).min)).sum(-1)
    at = tokens[:, None]
    logit = scores.gather(1, at)
    best, ids = scores.topk(min(count, scores.shape[-1]))
    sampled = None if filtered is None else filtered.softmax(-1)
    found = Candidates(
        logit[:, 0],
        chances.gather(1, at)[:, 0],
        entropy,
        (scores > logit).sum(-1),
        ids,
        best,
        chances.gather(1, ids),
        None if sampled is None else sampled.gather(1, at)[:, 0],
        None if sampled is None else sampled.gather(1, ids),
    )
    return found if logits.device.type == "cpu" else _on_host(found)


def _on_host(found: Candidates) -> Candidates:
    return Candidates(*(None if each is None else each.cpu() for each in vars(found).values()))  # type: ignore[arg-type]
