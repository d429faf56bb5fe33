"""Any causal model of plain PyTorch: ``ids [B, S]`` to ``logits [B, S, vocabulary]``, and nothing kept from pass to pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...tracer.tensors.window import Window
from .errors import GenerationError
from .language_model import LanguageModel, PaddedPrompts, Reading

__all__ = ["PlainLanguageModel", "RereadingReading"]


class PlainLanguageModel(LanguageModel):
    """A module that takes ids and gives logits, or something with ``logits``. Each pass computes everything again.

    It is padded on the right: a causal model sees nothing of that. What is reported is in the order of padding on the left, as of every other model, and of each pass only what is new.
    """

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        """Prepare to read prompts."""
        return RereadingReading(self._logits, PaddedPrompts.of(prompts, self.device))

    def _logits(self, ids: Tensor, places: Tensor) -> Tensor:
        return _logits(self.module(ids), ids).take_along_dim(places[:, :, None], 1)


class RereadingReading(Reading):
    """Reads everything in every pass.

    Parameters
    ----------
    read : callable
        Gives the logits ``[B, n, vocabulary]`` at places ``[B, n]`` of ids ``[B, S]``, which are padded on the right.
    prompts : PaddedPrompts
        What is read first.
    """

    def __init__(self, read: Callable[[Tensor, Tensor], Tensor], prompts: PaddedPrompts) -> None:
        self._logits = read
        self._ids, self._pads = prompts.ids, prompts.pads
        self.window = self._new(prompts.padded)

    def prompts(self) -> Tensor:
        """Read the prompts."""
        return self._read(self._ids.shape[1])

    def next(self, tokens: Tensor) -> Tensor:
        """Read all of it with one more token of each."""
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        return self._read(1)

    def _read(self, count: int) -> Tensor:
        """Read everything and return the logits of the last ``count`` places."""
        length = self._ids.shape[1]
        places = torch.arange(length, device=self._ids.device).expand_as(self._ids)
        # The ids of padding go round to the end.
        given = self._ids.take_along_dim((places + self._pads[:, None]) % length, 1)
        logits = self._logits(given, self._places(length)[:, -count:])
        self.window = Window(self._places(length + 1)[:, -1:], self._places(length + 1))
        return logits

    def _new(self, count: int) -> Window:
        return Window(self._places(count), self._places(count))

    def _places(self, length: int) -> Tensor:
        """Return where each place of the batch padded on the left is when it is padded on the right, int64 ``[B, length]``; of padding the first place."""
        places = torch.arange(length, device=self._ids.device)
        return (places - self._pads[:, None]).clamp(min=0)


def _logits(output: Any, ids: Tensor) -> Tensor:
    logits = getattr(output, "logits", output)
    if not isinstance(logits, Tensor) or logits.ndim != 3 or logits.shape[:2] != ids.shape:
        came = f"of shape {list(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise GenerationError(
            f"The model must give logits of shape [{ids.shape[0]}, {ids.shape[1]}, vocabulary] for ids of shape {list(ids.shape)}, got {came}."
        )
    return logits
