"""Lets the installed Megatron-Core tell of its tensors as newer ones do, by the stand-in of ``tensor_observation``.

Where the installed one has it, nothing is changed.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import tensor_observation
import torch
from megatron_on_cpu import let_megatron_train_on_cpu

let_megatron_train_on_cpu()

from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.tensor_parallel import random  # noqa: E402
from megatron.core.transformer.moe.router import TopKRouter  # noqa: E402
from megatron.core.transformer.transformer_block import TransformerBlock  # noqa: E402
from megatron.core.transformer.transformer_layer import TransformerLayer  # noqa: E402

__all__ = ["told_by_megatron"]

NAME = "megatron.core.tensor_observation"
_in_blocks: set[int] = set()


@functools.cache
def told_by_megatron() -> ModuleType:
    """Return the module by which Megatron-Core tells in this process; models are to be built after this."""
    if importlib.util.find_spec(NAME) is not None:
        return importlib.import_module(NAME)
    sys.modules[NAME] = tensor_observation
    for owner, name, change in (
        (TransformerBlock, "__init__", _noting_layers),
        (TransformerLayer, "__call__", _telling_residuals),
        (TopKRouter, "gating", _telling_router),
        (GPTModel, "__init__", _telling_logits),
        (random.CheckpointWithoutOutput, "_recompute", _muted),
    ):
        setattr(owner, name, change(getattr(owner, name)))
    random.CheckpointFunction.backward = staticmethod(_muted(random.CheckpointFunction.backward))
    return tensor_observation


def _noting_layers(made: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        _in_blocks.update(map(id, self.layers))

    return init


def _telling_residuals(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = call(self, *args, **kwargs)
        if id(self) in _in_blocks:
            given = args[0] if args else kwargs["hidden_states"]
            tensor_observation.observe_layer_residuals(self, given, output[0])
        return output

    return called


def _telling_router(gating: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(gating)
    def gated(self: Any, given: torch.Tensor) -> torch.Tensor:
        logits = gating(self, given)
        cut = 0 if self.config.sequence_parallel else None
        tensor_observation.observe_tensor(self, "router_logits", "router_logits", logits, tp_shard_dim=cut)
        if tensor_observation.is_observing_tensor("router_scores"):
            scores = torch.softmax(logits.detach(), -1, dtype=torch.float32)
            tensor_observation.observe_tensor(
                self, "router_scores", "router_scores", scores, tp_shard_dim=cut
            )
        return logits

    return gated


def _telling_logits(made: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(made)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        calls = [0]
        predictors = self.config.mtp_num_layers or 0

        def begin(*_: Any) -> None:
            calls[0] = 0

        def tell(module: Any, args: Any, kwargs: Any, output: Any) -> None:
            at, calls[0] = calls[0], calls[0] + 1
            gathers = kwargs.get("runtime_gather_output")
            gathers = module.gather_output if gathers is None else gathers
            # Of further tokens first.
            name = f"mtp_logits.{at}" if at < predictors else "output_logits"
            kind = name.partition(".")[0]
            tensor_observation.observe_tensor(
                module, name, kind, output[0], tp_shard_dim=None if gathers else -1
            )

        if getattr(self, "output_layer", None) is not None:
            self.register_forward_pre_hook(begin)
            self.output_layer.register_forward_hook(tell, with_kwargs=True)

    return init


def _muted(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def quiet(*args: Any, **kwargs: Any) -> Any:
        with tensor_observation.suspend_tensor_observations():
            return run(*args, **kwargs)

    return quiet
