"""The interface of models that write text, and their state while they read.

From the logits of a pass to the next token of each sequence.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...tracer.first_pass import extra_pass
from ...tracer.tensors.probes import Window
from .errors import GenerationError
from .texts import Texts

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


@dataclass(frozen=True, eq=False)
class PaddedPrompts:
    """Prompts of different lengths as one batch, padded on the left.

    ``ids`` are int64 ``[B, padded]``; ``pads`` are the positions of padding before each prompt, int64
    ``[B]``.
    """

    ids: Tensor
    pads: Tensor

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], device: torch.device | str, pad: int = 0) -> PaddedPrompts:
        """Pad prompts, of which none is empty."""
        padded = max(len(prompt) for prompt in prompts)
        rows = [[pad] * (padded - len(prompt)) + list(prompt) for prompt in prompts]
        pads = [padded - len(prompt) for prompt in prompts]
        return cls(torch.tensor(rows, device=device), torch.tensor(pads, device=device))

    @property
    def padded(self) -> int:
        return self.ids.shape[1]

    def real(self) -> Tensor:
        """Return which positions are no padding, bool ``[B, padded]``."""
        indices = torch.arange(self.padded, device=self.ids.device)
        return indices >= self.pads[:, None]


class Reading(ABC):
    """A model's state from pass to pass."""

    window: Window | None = None
    """Positions of the next pass that are new, where it recomputes others."""

    @abstractmethod
    def prompts(self) -> Tensor:
        """Read the prompts in one pass; return logits ``[B, padded, vocabulary]``, undefined for padding."""

    @abstractmethod
    def next(self, tokens: Tensor) -> Tensor:
        """Read another token of each sequence, int64 ``[B]``; return logits ``[B, 1, vocabulary]``."""


class LanguageModel(ABC):
    """A causal model with its tokenizer.

    Parameters
    ----------
    module : torch.nn.Module
        What is traced: its call is one forward pass.
    vocabulary : int, optional
        Number of token ids; None where that is not known.
    context : int, optional
        Positions that it can read; None where that is not known.
    slides : bool
        Whether it continues beyond the context, reading the newest positions only.
    end_tokens : sequence of int, optional
        Tokens after which a text is over; the tokenizer's own when absent.

    Attributes
    ----------
    alone : bool
        Whether this process computes a forward pass without others.
    pad : int
        The id of padding.
    """

    alone = True
    pad = 0

    def __init__(
        self,
        module: nn.Module,
        texts: Texts,
        *,
        vocabulary: int | None = None,
        context: int | None = None,
        slides: bool = False,
        end_tokens: Sequence[int] | None = None,
    ) -> None:
        self.module, self.texts = module, texts
        self.vocabulary, self.context, self.slides = vocabulary, context, slides
        self._end_tokens = texts.end_tokens if end_tokens is None else frozenset(end_tokens)

    @property
    def end_tokens(self) -> frozenset[int]:
        """Tokens after which a text is over."""
        return self._end_tokens

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts after which a text is over."""
        return ()

    @property
    def device(self) -> torch.device:
        first = next(self.module.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    def agreed(self, tokens: Tensor) -> Tensor:
        """Return the tokens, int64 ``[B]``, on which all processes of the model agree."""
        return tokens

    def processors(
        self, prompts: PaddedPrompts, sampler: Sampler, tokens: int, stop_tokens: frozenset[int]
    ) -> Processors | None:
        """Return what the model itself makes of its logits before a token is drawn; None: nothing."""
        return None

    def said(self, sampler: Sampler) -> str:
        """Return sentences about what the texts do not follow of the model's own settings."""
        return ""

    @abstractmethod
    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        """Prepare to read prompts, none empty, and ``tokens`` more of each. Nothing is computed yet."""


class PlainLanguageModel(LanguageModel):
    """A module from ids to logits, or an output with ``logits``, without a cache.

    It is padded on the right: a causal model sees nothing of that. The reported order is that of padding on
    the left, as of every other model, and of each pass only the new positions are reported.
    """

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        return RereadingReading(self._logits, PaddedPrompts.of(prompts, self.device))

    def _logits(self, ids: Tensor, indices: Tensor) -> Tensor:
        return _logits(self.module(ids), ids).take_along_dim(indices[:, :, None], 1)


class RereadingReading(Reading):
    """Reads everything in every pass.

    ``read`` returns the logits ``[B, n, vocabulary]`` at indices ``[B, n]`` of ids ``[B, S]``, padded on the
    right.
    """

    def __init__(self, read: Callable[[Tensor, Tensor], Tensor], prompts: PaddedPrompts) -> None:
        self._logits = read
        self._ids, self._pads = prompts.ids, prompts.pads
        self.window = self._new(prompts.padded)

    def prompts(self) -> Tensor:
        return self._read(self._ids.shape[1])

    def next(self, tokens: Tensor) -> Tensor:
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        return self._read(1)

    def _read(self, count: int) -> Tensor:
        """Read everything and return the logits of the last ``count`` positions."""
        length = self._ids.shape[1]
        indices = torch.arange(length, device=self._ids.device).expand_as(self._ids)
        # The ids of padding go round to the end.
        given = self._ids.take_along_dim((indices + self._pads[:, None]) % length, 1)
        logits = self._logits(given, self._right_padded(length)[:, -count:])
        self.window = Window(self._right_padded(length + 1)[:, -1:], self._right_padded(length + 1))
        return logits

    def _new(self, count: int) -> Window:
        return Window(self._right_padded(count), self._right_padded(count))

    def _right_padded(self, length: int) -> Tensor:
        """Return each left-padded index's right-padded one, int64 ``[B, length]``; 0 for padding."""
        indices = torch.arange(length, device=self._ids.device)
        return (indices - self._pads[:, None]).clamp(min=0)


def _logits(output: Any, ids: Tensor) -> Tensor:
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
        came = f"of shape {list(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise GenerationError(
            f"The model must give logits of shape [{ids.shape[0]}, {ids.shape[1]}, vocabulary] for ids of "
            f"shape {list(ids.shape)}, got {came}."
        )
    return logits


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode, and restore the mode of each module afterwards."""
    training = [each for each in module.modules() if each.training]
    module.eval()
    try:
        yield
    finally:
        for each in training:
            each.training = True


def short_pass(model: nn.Module, around: AbstractContextManager[Any]) -> Tensor:
    """Run a pass over two texts of five tokens in evaluation mode, of which nothing stays; return its ids.

    Batch and positions are of sizes of their own, so that they can be told apart. ``around`` is entered for
    the pass.
    """
    device = next((each.device for each in model.parameters()), torch.device("cpu"))
    ids = torch.arange(10, device=device).reshape(2, 5)
    with extra_pass(model), evaluating(model), around:
        model(ids)
    return ids
