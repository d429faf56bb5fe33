"""Why a module cannot be perturbed, found before the training is touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import nn

from ..graph_probes import changes_of, compiled_in
from ..own_hooks import hooks_of
from ..points import ModelPoints
from .arithmetic import FLOATS
from .sharded import is_sharded

__all__ = ["refused_layers"]


def refused_layers(points: ModelPoints, site: str) -> dict[int, str]:
    """Return the layers of a site that cannot be perturbed, each with the reason, which names the module.

    Parameters
    ----------
    points : ModelPoints
        The model.
    site : str
        ``weight``, ``calculation`` or ``system``.
    """
    names = {module: name for root in points.roots for name, module in root.named_modules()}
    compiled = {inner for module in compiled_in(points.roots) for inner in module.modules()}
    # A function that calls the model is compiled, or so it may be.
    probed = any(hooks_of.get(root) is not None for root in points.roots)
    flat = set(_below(points, _is_flat)) if site == "weight" else set()
    refused: dict[int, str] = {}
    for layer, modules in points.sites[site].layers.items():
        for module in modules:
            reason = None
            if site == "weight" and (probed or module in compiled):
                reason = "is compiled, and compiled code reads weights past any hook. Perturb the model as it is before torch.compile, or what its modules give"
            elif isinstance(module, torch.jit.ScriptModule) or (
                module in compiled and changes_of(module) is None
            ):
                reason = "is compiled, and compiled code passes by the hooks. Perturb the model as it is before torch.compile"
            elif module in flat:
                reason = "is inside of FullyShardedDataParallel, which keeps weights in flat parameters. Use fully_shard"
            elif site == "weight":
                reason = _weight_refusal(module)
            if reason is not None:
                name = names.get(module) or type(module).__name__
                refused[layer] = f"Layer {layer}: {name} {reason}."
                break
    return refused


def _weight_refusal(module: nn.Module) -> str | None:
    weight = module._parameters.get("weight")
    home = type(module).__module__
    if home.startswith("transformer_engine"):
        return "is a layer of Transformer Engine, which reads its weight past any hook"
    if getattr(module, "gradient_accumulation_fusion", False):
        return "accumulates its weight's gradient inside of its kernel (gradient_accumulation_fusion), past autograd"
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return "is never called: nn.MultiheadAttention reads its weight"
    if weight is None:
        return "has no parameter 'weight' of its own, such as one that is quantised, parametrised or inside of an adapter"
    if weight.dtype not in FLOATS:
        return f"has a weight of {weight.dtype}, which is quantised"
    if type(weight) not in (nn.Parameter, torch.Tensor) and not is_sharded(weight):
        return f"has a weight that is a {type(weight).__name__}, which is not understood here"
    if weight.device.type == "meta":
        return "has a weight that is not loaded"
    return None


def _below(points: ModelPoints, test: Callable[[nn.Module], bool]) -> Iterator[nn.Module]:
    for root in points.roots:
        for module in root.modules():
            if test(module):
                yield from module.modules()


def _is_flat(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "FullyShardedDataParallel" and kind.__module__.startswith("torch.distributed")
