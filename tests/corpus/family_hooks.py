"""What is computed inside of any model of transformers, shown without a name of its modules being believed.

Queries, keys and values are those that the attention function is given: after a rotation, a norm, a
scaling.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers.modeling_utils import AttentionInterface

from .job import see

_ACTIVATIONS = {
    F.silu,
    F.gelu,
    F.relu,
    F.relu6,
    F.elu,
    F.mish,
    F.leaky_relu,
    F.softplus,
    F.hardswish,
    torch.relu,
}
_ACTIVATIONS |= {torch._C._nn.gelu, torch.tanh, torch.sigmoid, torch.pow, torch.erf, torch.Tensor.sigmoid}
_SOFTMAX = {F.softmax, torch.softmax, torch.Tensor.softmax}


class Functions(TorchFunctionMode):
    """Shows what activations are given, what softmax gives, and what torch's own attention is given and
    gives.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.softmaxes = 0
        self.inside = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _ACTIVATIONS and isinstance(args[0], Tensor):
            see("activation", 0, _kept(args[0]))
        output = func(*args, **kwargs)
        if func in _SOFTMAX and output.ndim > 2:
            see("softmax", self.softmaxes, output)
            self.softmaxes += 1
        if func is F.scaled_dot_product_attention and not self.inside:
            three = args[:3] if len(args) > 2 else [kwargs[n] for n in ("query", "key", "value")]
            self.attended(*three, output.transpose(1, 2) if output.ndim == 4 else output, None)
        return output

    def attended(self, q: Tensor, k: Tensor, v: Tensor, context: Tensor, weights: Tensor | None) -> None:
        """Show one attention: q, k, v as ``[B, H, S, d]``, its result as ``[B, S, H, d]``."""
        shown = {"q": q, "k": k, "v": v, "context": context}
        see("attention", self.calls, **{name: _kept(each) for name, each in shown.items() if each.ndim == 4})
        if weights is not None:
            see("attention", self.calls, weights=_kept(weights))
        self.calls += 1


def _kept(tensor: Tensor) -> Tensor:
    return tensor.detach()


def show_family(model: nn.Module) -> Callable[[], None]:
    """Show the model's attentions, and what each module is given and gives."""
    functions = Functions()
    of = AttentionInterface.get_interface

    def get_interface(self: Any, *names: Any, **options: Any) -> Callable[..., Any]:
        call = of(self, *names, **options)

        def attention(
            module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
        ) -> Any:
            functions.inside += 1
            try:
                output, weights = call(module, query, key, value, *args, **kwargs)
            finally:
                functions.inside -= 1
            functions.attended(query, key, value, output, weights)
            return output, weights

        return attention

    AttentionInterface.get_interface = get_interface
    handles = [
        module.register_forward_hook(_shown(number), with_kwargs=True)
        for number, module in enumerate(model.modules())
        if module is not model
    ]
    functions.__enter__()

    def undo() -> None:
        functions.__exit__(None, None, None)
        AttentionInterface.get_interface = of
        for handle in handles:
            handle.remove()

    return undo


def _shown(number: int) -> Callable[..., None]:
    def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        output = next(
            (
                each
                for each in (output if isinstance(output, (tuple, list)) else (output,))
                if isinstance(each, Tensor)
            ),
            None,
        )
        if given is not None and output is not None:
            see("given", number, _kept(given))
            see("gives", number, _kept(output))

    return hook
