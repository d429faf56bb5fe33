"""The demo's GPT, with its key-value cache, and beyond the sequences that it was trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...adapters.unwrap import unwrapped
from ...demo.cache import Cache
from ...demo.model import GPT
from ...tracer.tensors.window import Window
from .language_model import LanguageModel, PaddedPrompts, Reading
from .texts import Texts

__all__ = ["DemoLanguageModel"]


class DemoLanguageModel(LanguageModel):
    """The model of :mod:`megalens.demo`. Beyond its longest sequence it reads the newest positions only, as its own ``generate`` does.

    Parameters
    ----------
    module : torch.nn.Module
        The model, or what wraps it for a training.
    texts : Texts
        Its tokenizer.
    """

    def __init__(self, module: torch.nn.Module, texts: Texts) -> None:
        inner = unwrapped(module)
        assert isinstance(inner, GPT)
        self._config = inner.config
        super().__init__(
            module, texts, vocabulary=inner.config.vocabulary, context=inner.config.sequence, slides=True
        )

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        """Prepare to read prompts."""
        return _DemoReading(self, PaddedPrompts.of(prompts, self.device), self._config.layers)


class _DemoReading(Reading):
    def __init__(self, model: DemoLanguageModel, prompts: PaddedPrompts, layers: int) -> None:
        self._model, self._layers = model, layers
        self._ids, self._pads = prompts.ids, prompts.pads
        self._cache: Cache | None = Cache(layers, prompts.pads)

    def prompts(self) -> Tensor:
        return self._passed(self._ids, self._cache)

    def next(self, tokens: Tensor) -> Tensor:
        self._ids = torch.cat([self._ids, tokens[:, None]], dim=1)
        over = self._ids.shape[1] - (self._model.context or 0)
        if over <= 0:
            return self._passed(tokens[:, None], self._cache)
        # Every place is another one now, so that nothing of the cache holds.
        self._cache = None
        cache = Cache(self._layers, (self._pads - over).clamp(min=0))
        return self._passed(self._ids[:, over:], cache)[:, -1:]

    def _passed(self, ids: Tensor, cache: Cache | None) -> Tensor:
        logits: Tensor = self._model.module(ids, cache)
        if self._ids.shape[1] >= (self._model.context or 0):
            last = torch.full_like(self._pads, (self._model.context or 0) - 1)
            self.window = Window(last[:, None])
        return logits
