"""Lets Megatron-Core 0.16 train on the CPU with gloo: for tests and for trying the example out, never for real training.

Megatron-Core asks for CUDA in places that need none of it. :func:`let_megatron_train_on_cpu` answers them before it is imported:

- the current device is the CPU, and what is allocated or moved to ``"cuda"`` stays there;
- its random number tracker keeps states of the CPU's generator;
- a tensor's type says that it is a CUDA tensor, which optimizers look at;
- streams and events do nothing, which is right where nothing runs beside the caller;
- with sequence parallelism its wrapper of torch's norms refuses; a plain norm whose parameters say that they belong to a part of the
  sequence is what it would be with Apex.

The config needs what :data:`CPU_CONFIG` holds: every fused kernel off.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["CPU_CONFIG", "let_megatron_train_on_cpu"]

CPU_CONFIG: dict[str, Any] = {
    "use_cpu_initialization": True,
    "masked_softmax_fusion": False,
    "bias_dropout_fusion": False,
    "bias_activation_fusion": False,
    "gradient_accumulation_fusion": False,
    "apply_rope_fusion": False,
    "persist_layer_norm": False,
}
"""Members of ``TransformerConfig`` without which Megatron-Core calls CUDA kernels."""

_CPU = torch.device("cpu")


class _NoStream:
    """A stream or an event on which everything has happened already."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def record_event(self, event: Any = None) -> _NoStream:
        return event or _NoStream()

    def _nothing(self, *args: Any, **kwargs: Any) -> None:
        pass

    record = synchronize = wait_stream = wait_event = wait = _nothing


def let_megatron_train_on_cpu() -> None:
    """Change torch and Megatron-Core in this process, as the module's description says. Safe twice."""
    if getattr(torch.cuda, "_answers_for_the_cpu", False):
        return
    torch.cuda._answers_for_the_cpu = True  # type: ignore[attr-defined]
    only = _NoStream()
    answers: dict[str, Any] = {
        "current_device": lambda: _CPU,
        "synchronize": lambda *_: None,
        "empty_cache": lambda: None,
        "Stream": _NoStream,
        "Event": _NoStream,
        "current_stream": lambda *_: only,
        "default_stream": lambda *_: only,
        "stream": lambda *_: contextlib.nullcontext(),
        "get_rng_state": lambda *_: torch.get_rng_state(),
        "set_rng_state": lambda state, *_: torch.set_rng_state(state),
        "manual_seed": torch.manual_seed,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    for name in ("zeros", "ones", "empty", "full", "tensor", "arange", "rand", "randn"):
        setattr(torch, name, _on_cpu(getattr(torch, name)))
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign, assignment]
    torch.Tensor.type = _as_cuda(torch.Tensor.type)  # type: ignore[method-assign, assignment]
    torch.Tensor.to = _on_cpu(torch.Tensor.to)  # type: ignore[method-assign]
    torch.distributed.all_to_all_single = _with_lists(torch.distributed.all_to_all_single)
    _change_megatron()


def _on_cpu(make: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``make`` take CUDA for the CPU."""

    @functools.wraps(make)
    def made(*args: Any, **kwargs: Any) -> Any:
        if _is_cuda(kwargs.get("device")):
            kwargs["device"] = _CPU
        return make(*(_CPU if _is_cuda(arg) else arg for arg in args), **kwargs)

    return made


def _as_cuda(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Let the name of a tensor's type be that of its CUDA counterpart."""

    @functools.wraps(kind)
    def named(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        found = kind(self, *args, **kwargs)
        return found.replace("torch.", "torch.cuda.", 1) if isinstance(found, str) else found

    return named


def _is_cuda(value: Any) -> bool:
    if isinstance(value, str):
        return value.startswith("cuda")
    return isinstance(value, torch.device) and value.type == "cuda"


def _with_lists(exchange: Callable[..., Any]) -> Callable[..., Any]:
    """Gloo takes the sizes of the pieces as lists only; Megatron-Core gives arrays."""

    @functools.wraps(exchange)
    def exchanged(*args: Any, **kwargs: Any) -> Any:
        for name in ("output_split_sizes", "input_split_sizes"):
            if kwargs.get(name) is not None:
                kwargs[name] = [int(size) for size in kwargs[name]]
        return exchange(*args, **kwargs)

    return exchanged


def _change_megatron() -> None:
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer import torch_norm
    from megatron.core.transformer.moe import moe_utils

    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)

    # Without Transformer Engine this release asks for a name that it never defines.
    vars(moe_utils).setdefault("te_general_gemm", None)

    def norm(cls: type, config: Any, hidden_size: int, eps: float = 1e-5, **_: Any) -> torch.nn.Module:
        kind = torch.nn.LayerNorm if config.normalization == "LayerNorm" else torch.nn.RMSNorm
        made = kind(hidden_size, eps=eps)
        for parameter in made.parameters():
            parameter.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]
        return made

    torch_norm.WrappedTorchNorm.__new__ = norm  # type: ignore[method-assign, assignment]
