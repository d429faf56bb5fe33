"""What every model that writes text is here, and what one that is reading keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...tracer.tensors.window import Window
from .texts import Texts

__all__ = ["LanguageModel", "PaddedPrompts", "Reading"]


@dataclass(frozen=True, eq=False)
class PaddedPrompts:
    """Prompts of different lengths as one batch, padded on the left.

    Attributes
    ----------
    ids : torch.Tensor
        int64 ``[B, padded]``.
    pads : torch.Tensor
        int64 ``[B]``: positions of padding before each prompt.
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
        """Positions of the longest prompt."""
        return self.ids.shape[1]

    def real(self) -> Tensor:
        """Return which positions are no padding, bool ``[B, padded]``."""
        places = torch.arange(self.padded, device=self.ids.device)
        return places >= self.pads[:, None]


class Reading(ABC):
    """What a model that reads some prompts, and then goes on, keeps from pass to pass."""

    window: Window | None = None
    """Positions of the next pass that are new, where it computes others again."""

    @abstractmethod
    def prompts(self) -> Tensor:
        """Read the prompts in one forward pass and return the logits ``[B, padded, vocabulary]``; what they are of padding means nothing."""

    @abstractmethod
    def next(self, tokens: Tensor) -> Tensor:
        """Read one more token of each sequence, int64 ``[B]``, in one forward pass and return the logits ``[B, 1, vocabulary]``."""


class LanguageModel(ABC):
    """A causal model with its tokenizer.

    Parameters
    ----------
    module : torch.nn.Module
        What is traced: its call is one forward pass.
    texts : Texts
        Its tokenizer.
    vocabulary : int, optional
        Number of token ids; None where that is not known.
    context : int, optional
        Positions that it can read; None where that is not known.
    slides : bool
        Whether it goes on beyond the context, reading the newest positions only.
    end_tokens : sequence of int, optional
        Tokens after which a text is over; the tokenizer's own when absent.

    Attributes
    ----------
    alone : bool
        Whether this process computes a forward pass without others.
    """

    alone = True

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
        self.end_tokens = texts.end_tokens if end_tokens is None else frozenset(end_tokens)

    @property
    def device(self) -> torch.device:
        """Where token ids have to be."""
        first = next(self.module.parameters(), None)
        return torch.device("cpu") if first is None else first.device

    def agreed(self, tokens: Tensor) -> Tensor:
        """Return the tokens that all processes which compute the model together go on with, of those that each drew, int64 ``[B]``."""
        return tokens

    @abstractmethod
    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        """Prepare to read prompts, of which none is empty, and up to ``tokens`` more of each. Nothing is computed yet."""
