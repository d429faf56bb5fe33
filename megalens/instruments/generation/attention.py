"""Attention probabilities of models that compute attention without giving them: switched to an implementation that does, for one generation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...adapters.find import find_adapter
from ...adapters.sizes import text_config, unwrapped
from ...protocol import Peaks
from ...tracer.points import NO_EXPERTS, IAdapter, ModelPoints
from ...tracer.tensors.config import TracingPlan, change_plan
from .errors import GenerationError

__all__ = ["ATTENTION", "AttentionAdapter", "attention_probabilities", "no_attention", "with_attention"]

ATTENTION = "RawAttentionScore_mat_mul"
"""The flag that shows them."""
_EAGER = "eager"


class AttentionAdapter:
    """Finds the trace points of a model as they are while its attention gives probabilities: whoever traces them switches it with :func:`attention_probabilities`.

    Parameters
    ----------
    adapter : IAdapter, optional
        Finds the points; found by itself when absent.
    """

    def __init__(self, adapter: IAdapter | None = None) -> None:
        self._adapter = adapter

    def points(self, model: Any) -> ModelPoints:
        """Return the trace points of ``model``."""
        adapter = find_adapter(model) if self._adapter is None else self._adapter
        if not isinstance(model, nn.Module):
            return adapter.points(model)
        with _eager(model):
            return adapter.points(model)


def no_attention(points: ModelPoints) -> str | None:
    """Return why attention probabilities cannot be traced, or None where they can."""
    flag = points.flags.get(ATTENTION, NO_EXPERTS)
    return None if flag.layers else flag.reason or "This model's attention gives no probabilities."


def with_attention(plan: TracingPlan, points: ModelPoints, folders: Sequence[Path]) -> TracingPlan:
    """Return a plan in which attention probabilities are traced while text is written, as their flag is set; in all layers and of all sequences where it is off."""
    asked = plan.asked.get(ATTENTION)
    setting: dict[str, Any] = {"compressor": Peaks().to_setting(), "samples": None, "phases": []}
    if asked is not None:
        setting = {**asked.setting}
    if "generate" in setting["phases"]:
        return plan
    setting["phases"] = [*setting["phases"], "generate"]
    return change_plan(plan, {"flags": {ATTENTION: setting}}, points, folders)


@contextlib.contextmanager
def attention_probabilities(model: nn.Module) -> Iterator[str]:
    """Have the attention of a model give its probabilities inside; afterwards it is computed as before.

    Models of Hugging Face make one mask for all layers, by the implementation: it is switched in all of them.

    Yields
    ------
    str
        What is to be told of it, a sentence; empty where nothing had to be switched.

    Raises
    ------
    GenerationError
        When the model cannot be switched.
    """
    before = _implementation(model)
    if before in (None, _EAGER):
        yield ""
        return
    with _eager(model):
        if _implementation(model) != _EAGER:
            raise GenerationError(
                f"The attention of {type(unwrapped(model)).__name__} is computed with {before}, which gives no probabilities, and cannot be switched. "
                "Load the model with attn_implementation='eager'."
            )
        yield f"Attention was computed with eager instead of {before}, in every layer, so that its probabilities can be seen; logits differ by rounding."


def _implementation(model: nn.Module) -> str | None:
    return getattr(text_config(unwrapped(model)), "_attn_implementation", None)


@contextlib.contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Switch a model of Hugging Face, where it can be; whatever became of it, each of its configs is afterwards as it was."""
    body: Any = unwrapped(model)
    switch = getattr(body, "set_attn_implementation", None)
    if not callable(switch) or _implementation(model) in (None, _EAGER):
        yield
        return
    before = [(config, config._attn_implementation_internal) for config in _configs(body)]
    try:
        # What a model or a part of it refuses leaves it as it is.
        with contextlib.suppress(ValueError, ImportError):
            switch(_EAGER)
        yield
    finally:
        for config, implementation in before:
            config._attn_implementation_internal = implementation


def _configs(body: nn.Module) -> list[Any]:
    """Return every config that says how attention is computed: those of the parts of a model that sees and reads, too."""
    found: dict[int, Any] = {}
    waiting = [getattr(module, "config", None) for module in body.modules()]
    while waiting:
        config = waiting.pop()
        if id(config) not in found and hasattr(config, "_attn_implementation_internal"):
            found[id(config)] = config
            waiting += [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    return list(found.values())
