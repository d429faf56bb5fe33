"""What torch's own transformer modules give, shown by plain hooks: nothing in them is the script's, so that
it cannot call ``see``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .job import see

Undo = Callable[[], Any]


def show_torch_layers(layers: list[nn.Module], first: int = 0) -> Undo:
    """Show what encoder and decoder layers of torch give, with ``batch_first``."""
    undo: list[Undo] = []
    for number, layer in enumerate(layers, first):
        undo.append(show_multihead(number, layer.self_attn))
        for flag, module in (
            ("HiddenStates", layer),
            ("MLP1_mat_mul", layer.linear1),
            ("MLP2_mat_mul", layer.linear2),
        ):
            undo.append(module.register_forward_hook(partial(_show, flag, number)).remove)
    return lambda: [each() for each in reversed(undo)]


def show_multihead(number: int, attention: nn.MultiheadAttention) -> Undo:
    """Show what ``nn.MultiheadAttention`` computes: the function of torch that does is watched by what it
    calls.
    """
    undo: list[Undo] = []

    def enter(module: nn.Module, args: Any) -> None:
        undo.append(_inside_attention(number, args[0].shape[0]))

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        undo.pop()()
        _show("AttentionOutput_mat_mul", number, module, args, output)

    handles = attention.register_forward_pre_hook(enter), attention.register_forward_hook(leave)
    return lambda: [each.remove() for each in handles]


def _show(flag: str, number: int, module: nn.Module, args: Any, output: Any) -> None:
    see(flag, number, output[0] if isinstance(output, tuple) else output)


def _inside_attention(number: int, batch: int) -> Undo:
    """Show queries, keys and values as they leave torch's projection, and what goes into the output's: the
    second ``F.linear``.
    """
    project, linear = F._in_projection_packed, F.linear

    def projected(*args: Any, **kwargs: Any) -> Any:
        F.linear = linear
        parts = project(*args, **kwargs)
        F.linear = out
        see(
            "QKV_mat_mul",
            number,
            **dict(zip("qkv", parts, strict=True)),
            shaped=lambda each: each.transpose(0, 1),
        )
        return parts

    def out(given: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        see(
            "ContextLayer_mat_mul",
            number,
            given,
            shaped=lambda each: each.view(-1, batch, each.shape[-1]).transpose(0, 1),
        )
        return linear(given, *args, **kwargs)

    F._in_projection_packed = projected

    def undo() -> None:
        F._in_projection_packed, F.linear = project, linear

    return undo
