"""From a module and its tokenizer to a model that writes text."""

from __future__ import annotations

from typing import Any

from torch import nn

from ...adapters.unwrap import unwrapped
from .errors import GenerationError
from .language_model import LanguageModel
from .texts import Texts

__all__ = ["as_language_model"]


def as_language_model(model: Any, tokenizer: Any = None) -> LanguageModel:
    """Return the language model that a module is.

    Parameters
    ----------
    model : torch.nn.Module or LanguageModel
        Of Hugging Face, of Megatron-Core (also the list of its one chunk), of :mod:`megalens.demo`, or any causal module that gives logits ``[B, S, vocabulary]`` for ids ``[B, S]``.
    tokenizer : optional
        With ``encode(text)`` and ``decode(ids)``. The demo's model over bytes needs none.

    Raises
    ------
    GenerationError
        When it is none, or has no tokenizer.
    """
    if isinstance(model, LanguageModel):
        return model
    from .megatron import MegatronLanguageModel, is_megatron, vocabulary_of

    if is_megatron(model):
        return MegatronLanguageModel(model, _texts(model, tokenizer), vocabulary_of(tokenizer))
    if not isinstance(model, nn.Module):
        raise GenerationError(
            f"Text is written by a torch.nn.Module or a megalens.instruments.generation.LanguageModel, got a {type(model).__name__}."
        )
    # Models that are not asked for are not imported for it.
    from ...demo.model import GPT
    from ...demo.tokenizer import ByteTokenizer
    from .demo import DemoLanguageModel
    from .huggingface import HuggingFaceLanguageModel, is_causal
    from .plain import PlainLanguageModel

    inner = unwrapped(model)
    demo = isinstance(inner, GPT)
    if tokenizer is None and isinstance(inner, GPT) and inner.config.vocabulary == ByteTokenizer.vocab_size:
        tokenizer = ByteTokenizer()
    texts = _texts(inner, tokenizer)
    if demo:
        return DemoLanguageModel(model, texts)
    if is_causal(model):
        return HuggingFaceLanguageModel(model, texts)
    return PlainLanguageModel(model, texts)


def _texts(model: Any, tokenizer: Any) -> Texts:
    if tokenizer is None:
        raise GenerationError(
            f"{type(model).__name__} needs its tokenizer to write text: something with encode(text) and decode(ids)."
        )
    return Texts(tokenizer)
