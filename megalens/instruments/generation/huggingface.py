"""Causal models of Hugging Face, with their key-value cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.unwrap import unwrapped
from .language_model import LanguageModel, PaddedPrompts, Reading
from .texts import Texts

__all__ = ["HuggingFaceLanguageModel", "is_causal"]


def is_causal(module: nn.Module) -> bool:
    """Return whether a module is a model of Hugging Face that writes text."""
    inner: Any = unwrapped(module)
    return hasattr(inner, "prepare_inputs_for_generation") and hasattr(inner, "config")


class HuggingFaceLanguageModel(LanguageModel):
    """A causal model of Hugging Face.

    Parameters
    ----------
    module : torch.nn.Module
        The model, or what wraps it for a training.
    texts : Texts
        Its tokenizer.
    """

    def __init__(self, module: nn.Module, texts: Texts) -> None:
        inner: Any = unwrapped(module)
        config: Any = inner.config.get_text_config()
        ends = getattr(getattr(inner, "generation_config", None), "eos_token_id", None)
        ends = [ends] if isinstance(ends, int) else ends
        super().__init__(
            module,
            texts,
            vocabulary=getattr(config, "vocab_size", None),
            context=getattr(config, "max_position_embeddings", None),
            end_tokens=ends or None,
        )
        self._pad = next(
            (each for name in ("pad_token_id", "eos_token_id") if isinstance(each := getattr(config, name, None), int)),
            0,
        )  # fmt: skip
        names = inspect.signature(inner.forward).parameters
        self._takes_places = "position_ids" in names or any(
            each.kind is inspect.Parameter.VAR_KEYWORD for each in names.values()
        )

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        """Prepare to read prompts."""
        pad = self._pad if self.vocabulary is None or 0 <= self._pad < self.vocabulary else 0
        return _HuggingFaceReading(
            self.module, PaddedPrompts.of(prompts, self.device, pad), self._takes_places
        )


class _HuggingFaceReading(Reading):
    def __init__(self, module: nn.Module, prompts: PaddedPrompts, takes_places: bool) -> None:
        self._module, self._prompts = module, prompts
        self._takes_places = takes_places
        self._mask = prompts.real().long()
        self._cache: Any = None

    def prompts(self) -> Tensor:
        return self._read(self._prompts.ids)

    def next(self, tokens: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, torch.ones_like(tokens)[:, None]], dim=1)
        return self._read(tokens[:, None])

    def _read(self, ids: Tensor) -> Tensor:
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": self._mask}
        if self._takes_places:
            places = self._mask.cumsum(-1) - 1
            given["position_ids"] = places.clamp(min=0)[:, -ids.shape[1] :]
        # The model makes the cache that it needs.
        output = self._module(**given, past_key_values=self._cache, use_cache=True, return_dict=True)
        self._cache = output.past_key_values
        logits: Tensor = output.logits
        return logits
