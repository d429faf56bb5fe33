"""What a model of Hugging Face sets in its ``generation_config``, followed by transformers' own classes."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from torch import Tensor

from .errors import GenerationError
from .sampling import Processors, Sampler

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


def said_of_config(inner: Any, sampler: Sampler) -> str:
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
