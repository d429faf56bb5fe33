"""Every tensor of which statistics are logged, as one process has it, seen by plain hooks that know nothing of Megalens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from megatron.core.tensor_parallel.layers import (
    ColumnParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from megatron.core.transformer.moe.router import Router
from megatron_job import MegatronJob
from shape import STEPS, Optimizer, Shape
from torch import Tensor, nn

__all__ = ["Key", "Whole", "references"]

Key = tuple[int, str, str]
"""Step, statistic, name."""
Whole = dict[Key, np.ndarray]
"""All values of it in that step, in float64."""

_SITES = (ColumnParallelLinear, RowParallelLinear, VocabParallelEmbedding, Router, nn.Embedding)


def references(rank: int, shapes: Sequence[Shape]) -> dict[Shape, tuple[Whole, list[float]]]:
    """Train each model in one process; return all values, and the norms of the gradients as Megatron's optimizer gives them."""
    return {shape: _reference(shape, Optimizer()) for shape in shapes}


def _reference(shape: Shape, optimizer: Optimizer) -> tuple[Whole, list[float]]:
    job = MegatronJob(shape.alone(), optimizer)
    model = job.chunks[0].module
    seen: dict[Key, list[np.ndarray]] = {}
    now = {"step": 0}

    def keep(stat: str, name: str, tensor: Any) -> None:
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            values = tensor.detach().double().numpy().ravel().copy()
            seen.setdefault((now["step"], stat, name), []).append(values)

    for name, module in model.named_modules():
        if isinstance(module, _SITES):
            _watch(name, module, keep, logits=name == "output_layer")
    for number, layer in enumerate(model.decoder.layers):
        _watch_residual(number, layer, keep)
    unscaled = job.optimizer.prepare_grads

    def prepared() -> bool:
        skipped = unscaled()
        for name, parameter in model.named_parameters():
            keep("grad", name, parameter.grad)
        return skipped

    job.optimizer.prepare_grads = prepared
    norms = []
    for step in range(1, STEPS + 1):
        now["step"] = step
        job.train(step)
        norms.append(job.norm)
        for name, parameter in model.named_parameters():
            keep("param", name, parameter)
    job.close()
    return {key: np.concatenate(values) for key, values in seen.items()}, norms


def _watch(name: str, module: nn.Module, keep: Callable[[str, str, Any], None], logits: bool) -> None:
    def forward(module: nn.Module, args: Any, output: Any) -> None:
        keep("activation", f"{name}/input0", args[0])
        if logits:
            # The loss changes logits in place, which a hook on the module's backward pass forbids; nothing else takes the input.
            args[0].register_hook(lambda data: keep("dgrad", f"{name}/input0", data))
        else:
            keep("activation", f"{name}/output0", output[0] if isinstance(output, tuple) else output)

    def backward(module: nn.Module, into: Any, out: Any) -> None:
        keep("dgrad", f"{name}/input0", into[0])
        keep("dgrad", f"{name}/output0", out[0])

    module.register_forward_hook(forward)
    if not logits:
        module.register_full_backward_hook(backward)


def _watch_residual(number: int, layer: nn.Module, keep: Callable[[str, str, Any], None]) -> None:
    name = f"decoder.layers.{number}/output0"

    def called(module: nn.Module, args: Any, kwargs: Any) -> None:
        keep("residual", "decoder/input0", kwargs["hidden_states"])
        kwargs["hidden_states"].register_hook(lambda data: keep("residual_dgrad", "decoder/input0", data))

    def returned(module: nn.Module, args: Any, output: Any) -> None:
        keep("residual", name, output[0])
        output[0].register_hook(lambda data: keep("residual_dgrad", name, data))

    if number == 0:
        layer.register_forward_pre_hook(called, with_kwargs=True)
    layer.register_forward_hook(returned)
