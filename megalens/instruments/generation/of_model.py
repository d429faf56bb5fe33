"""From a module and its tokenizer to a model that writes text.

What a model of Hugging Face sets in its ``generation_config``, followed by transformers' own classes.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...adapters.sizes import unwrapped
from ...demo.model import GPT, ByteTokenizer, Cache
from ...tracer.tensors.probes import Window
from .errors import GenerationError
from .language_model import (
    LanguageModel,
    PaddedPrompts,
    PlainLanguageModel,
    Processors,
    Reading,
    RereadingReading,
    Sampler,
)
from .texts import Texts

_ASKED = ("temperature", "top_k", "top_p")
"""A request has them always: its numbers stand in place of the model's own."""

_NOT_FOLLOWED = (
    "assistant_early_exit",
    "cache_implementation",
    "guidance_scale",
    "is_assistant",
    "max_time",
    "prompt_lookup_num_tokens",
    "token_healing",
    "use_mtp",
)
"""What ``generate`` follows and a lab does not, which reads each token in one pass of this model."""


def followed_processors(
    inner: Any, sampler: Sampler, ids: Tensor, mask: Tensor, tokens: int, stop_tokens: frozenset[int]
) -> Processors | None:
    """Return what makes scores of ids ``[B, S]`` and logits ``[B, V]``, as ``generate`` of a model does.

    ``ids`` are the padded prompts, ``mask`` is 1 where they are real. None where the model has no config, or
    its ``generate`` takes no function that decodes. Raises ``GenerationError`` for beam search and other
    modes that do not draw one token after another, and for a config that transformers refuses.
    """
    if not _prepares(inner):
        return None
    found: list[Any] = []

    # All that generate prepares up to its loop; the arguments are those of its own loops.
    def take(
        model: Any, input_ids: Tensor, logits_processor: Any, generation_config: Any, **rest: Any
    ) -> Tensor:
        found.extend((logits_processor, generation_config))
        return input_ids

    asked = {name: getattr(sampler, name) for name in _ASKED} if sampler.temperature else {}
    without = dict.fromkeys(name for name in _NOT_FOLLOWED if hasattr(inner.generation_config, name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # The class's: a model's own may be compiled.
            type(inner).generate(
                inner,
                ids,
                attention_mask=mask,
                custom_generate=take,
                max_new_tokens=tokens,
                eos_token_id=sorted(stop_tokens) or None,
                do_sample=bool(sampler.temperature),
                num_return_sequences=1,
                stop_strings=None,
                **without,
                **asked,
            )
    except Exception as error:  # The config is the user's.
        raise GenerationError(
            f"The generation_config of {type(inner).__name__} cannot be followed: {error}"
        ) from error
    processors, config = found
    mode = str(config.get_generation_mode().value)
    if mode not in ("greedy_search", "sample"):
        raise GenerationError(
            f"The generation_config of {type(inner).__name__} asks for {mode.replace('_', ' ')}. A lab draws "
            "one token after another. Set num_beams=1 there, and none of penalty_alpha, dola_layers, "
            "constraints and force_words_ids."
        )
    return processors  # type: ignore[no-any-return]


def config_notes(inner: Any, sampler: Sampler) -> str:
    """Return sentences about what a text does not follow of a model's config; empty where it follows all."""
    config = getattr(inner, "generation_config", None)
    if config is None:
        return ""
    if not _prepares(inner):
        return "The model's generation_config is not followed: its generate takes no function that decodes."
    left = [
        f"{name}={value!r}"
        for name in _NOT_FOLLOWED
        if (value := getattr(config, name, None)) not in (None, False)
    ]
    replaced = [
        f"{name}={value:g}"
        for name in _ASKED
        if sampler.temperature
        and (value := getattr(config, name, None)) is not None
        and value != getattr(sampler, name)
    ]
    said = []
    if left:
        said.append(f"Of the model's generation_config is not followed: {', '.join(left)}.")
    if replaced:
        said.append(f"The request stands in place of {', '.join(replaced)} of the model's generation_config.")
    return " ".join(said)


def _prepares(inner: Any) -> bool:
    """Return whether a model has a config and a ``generate`` that prepares everything for others' loops."""
    generate = getattr(type(inner), "generate", None)
    if getattr(inner, "generation_config", None) is None or generate is None:
        return False
    takes = inspect.signature(generate).parameters
    # Versions of transformers before 4.56 take names of repositories only.
    return "custom_generate" in takes and "Callable" in str(takes["custom_generate"].annotation)


# Causal models of Hugging Face, with their key-value cache.
def is_causal(module: nn.Module) -> bool:
    """Return whether a module is a model of Hugging Face that writes text."""
    inner: Any = unwrapped(module)
    return hasattr(inner, "prepare_inputs_for_generation") and hasattr(inner, "config")


class HuggingFaceLanguageModel(LanguageModel):
    """A causal model of Hugging Face, or what wraps it for a training."""

    def __init__(self, module: nn.Module, texts: Texts) -> None:
        inner: Any = unwrapped(module)
        self._inner = inner
        if getattr(inner.config, "is_encoder_decoder", False):
            raise GenerationError(
                f"{type(inner).__name__} is an encoder and a decoder. Text is written by models that "
                "go on from a prompt."
            )
        if _adds_tokens(inner):
            raise GenerationError(
                f"{type(inner).__name__} is given one token more than there are for each that it writes, and "
                "predicts that one alone. A lab reads one token after another, and would write another text "
                "than its generate. Write with model.generate(…) itself."
            )
        config: Any = inner.config.get_text_config()
        super().__init__(
            module,
            texts,
            vocabulary=getattr(config, "vocab_size", None),
            context=getattr(config, "max_position_embeddings", None),
        )
        names = inspect.signature(inner.forward).parameters
        self._takes_positions = "position_ids" in names or any(
            each.kind is inspect.Parameter.VAR_KEYWORD for each in names.values()
        )

    @property
    def end_tokens(self) -> frozenset[int]:
        ends = self._setting("eos_token_id")
        return frozenset([ends] if isinstance(ends, int) else ends or ()) or super().end_tokens

    @property
    def stop(self) -> tuple[str, ...]:
        stop = self._setting("stop_strings")
        return (stop,) if isinstance(stop, str) else tuple(stop or ())

    @property
    def pad(self) -> int:  # type: ignore[override]
        """The id with which generate pads."""
        config = self._inner.config.get_text_config()
        ids = (getattr(config, name, None) for name in ("pad_token_id", "eos_token_id"))
        for each in (self._setting("pad_token_id"), *sorted(self.end_tokens), *ids):
            if isinstance(each, int) and 0 <= each < (self.vocabulary or each + 1):
                return each
        return 0

    def _setting(self, name: str) -> Any:
        return getattr(getattr(self._inner, "generation_config", None), name, None)

    def processors(
        self, prompts: PaddedPrompts, sampler: Sampler, tokens: int, stop_tokens: frozenset[int]
    ) -> Processors | None:
        return followed_processors(
            self._inner, sampler, prompts.ids, prompts.real().long(), tokens, stop_tokens
        )

    def said(self, sampler: Sampler) -> str:
        return config_notes(self._inner, sampler)

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
        padded = PaddedPrompts.of(prompts, self.device, self.pad)
        if getattr(self._inner, "_is_stateful", False):
            # Some of these take no mask: padding behind a text is what none of them has read.
            return RereadingReading(self._reread, padded)
        rereads = self._setting("use_cache") is False
        return _HuggingFaceReading(self.module, padded, self._takes_positions, rereads)

    def _reread(self, ids: Tensor, indices: Tensor) -> Tensor:
        logits: Tensor = self.module(input_ids=ids, use_cache=False, return_dict=True).logits
        return logits.take_along_dim(indices[:, :, None], 1)


def _adds_tokens(inner: Any) -> bool:
    """Return whether a model's ``generate`` gives it more than the ids, as that of XLNet and XLM does."""
    ids = torch.zeros(1, 2, dtype=torch.long)
    try:
        given = inner.prepare_inputs_for_generation(ids, attention_mask=torch.ones_like(ids))["input_ids"]
    except Exception:  # Models of others may want more than this; their own words come when they are called.
        return False
    return isinstance(given, Tensor) and given.shape[1] > ids.shape[1]


class _HuggingFaceReading(Reading):
    """Reads what is new, beside cached keys and values; or, if it ``rereads``, everything in every pass."""

    def __init__(
        self, module: nn.Module, prompts: PaddedPrompts, takes_positions: bool, rereads: bool
    ) -> None:
        self._module, self._ids = module, prompts.ids
        self._takes_positions, self._rereads = takes_positions, rereads
        self._mask = prompts.real().long()
        self._cache: Any = None

    def prompts(self) -> Tensor:
        return self._read(self._ids)

    def next(self, tokens: Tensor) -> Tensor:
        new = tokens[:, None]
        self._mask = torch.cat([self._mask, torch.ones_like(new)], dim=1)
        if not self._rereads:
            return self._read(new)
        self._ids = torch.cat([self._ids, new], dim=1)
        return self._read(self._ids)[:, -1:]

    def _read(self, ids: Tensor) -> Tensor:
        given: dict[str, Any] = {"input_ids": ids, "attention_mask": self._mask}
        if self._takes_positions:
            positions = self._mask.cumsum(-1) - 1
            given["position_ids"] = positions.clamp(min=0)[:, -ids.shape[1] :]
        if self._rereads:
            self.window = Window(torch.full_like(ids[:, :1], ids.shape[1]))
            logits: Tensor = self._module(**given, use_cache=False, return_dict=True).logits
            return logits
        # The model makes the cache that it needs.
        output = self._module(**given, past_key_values=self._cache, use_cache=True, return_dict=True)
        self._cache = getattr(output, "past_key_values", None)
        if self._cache is None:
            raise GenerationError(
                f"{type(unwrapped(self._module)).__name__} kept no keys and values of what it read. Have it "
                "read everything in every pass: model.generation_config.use_cache = False."
            )
        logits = output.logits
        return logits


class DemoLanguageModel(LanguageModel):
    """The model of :mod:`megalens.demo`. Beyond its context it reads the newest positions only."""

    def __init__(self, module: torch.nn.Module, texts: Texts) -> None:
        inner = unwrapped(module)
        assert isinstance(inner, GPT)
        self._config = inner.config
        super().__init__(
            module, texts, vocabulary=inner.config.vocabulary, context=inner.config.sequence, slides=True
        )

    def begin(self, prompts: Sequence[Sequence[int]], tokens: int = 0) -> Reading:
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
        # All positions have shifted, so that the cache is invalid.
        self._cache = None
        cache = Cache(self._layers, (self._pads - over).clamp(min=0))
        return self._passed(self._ids[:, over:], cache)[:, -1:]

    def _passed(self, ids: Tensor, cache: Cache | None) -> Tensor:
        logits: Tensor = self._model.module(ids, cache)
        if self._ids.shape[1] >= (self._model.context or 0):
            last = torch.full_like(self._pads, (self._model.context or 0) - 1)
            self.window = Window(last[:, None])
        return logits


def as_language_model(model: Any, tokenizer: Any = None) -> LanguageModel:
    """Return the language model of a module.

    The module is of Hugging Face, of Megatron-Core (also the list of its one chunk), of :mod:`megalens.demo`,
    or any causal module from ids to logits ``[B, S, vocabulary]``. A tokenizer has ``encode(text)`` and
    ``decode(ids)``; the demo's model over bytes needs none. Raises ``GenerationError`` when it is no such
    module, or has no tokenizer.
    """
    if isinstance(model, LanguageModel):
        return model
    from .megatron import MegatronLanguageModel, is_megatron, vocabulary_of

    if is_megatron(model):
        return MegatronLanguageModel(model, _texts(model, tokenizer), vocabulary_of(tokenizer))
    if not isinstance(model, nn.Module):
        raise GenerationError(
            "Text is written by a torch.nn.Module or a megalens.instruments.generation.LanguageModel, got a "
            f"{type(model).__name__}."
        )
    inner = unwrapped(model)
    if isinstance(inner, GPT):
        if tokenizer is None and inner.config.vocabulary == ByteTokenizer.vocab_size:
            tokenizer = ByteTokenizer()
        return DemoLanguageModel(model, _texts(inner, tokenizer))
    kind = HuggingFaceLanguageModel if is_causal(model) else PlainLanguageModel
    return kind(model, _texts(inner, tokenizer))


def _texts(model: Any, tokenizer: Any) -> Texts:
    if tokenizer is None:
        raise GenerationError(
            f"{type(model).__name__} needs its tokenizer to write text: something with encode(text) and "
            "decode(ids)."
        )
    return Texts(tokenizer)
