"""What each process of a perturbed job does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from perturbing import HandClock, Perturbing, site
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from megalens.adapters import find_adapter
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer import Place

__all__ = ["all_ways"]

Found = tuple[dict[str, np.ndarray], dict[str, np.ndarray]]
"""Weights and outputs that were seen, and gradients."""

SITES = {
    "weight": site("noise2", coefficient=0.5),
    "calculation": site("noise1", coefficient=0.5),
    "system": site("bit_flip", rate=0.1, bit=22),
}


def _model() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))


def _ids(replica: int) -> Tensor:
    return torch.randint(0, 50, (2, 8), generator=torch.Generator().manual_seed(replica))


class Watch:
    """Keeps the weights that a model's linear modules compute with, and what its layers and MLPs give."""

    def __init__(self, model: nn.Module) -> None:
        self.seen: dict[str, Tensor] = {}
        for name, module in model.named_modules():
            name = name.removeprefix("module.")
            if isinstance(module, nn.Linear):
                module.register_forward_pre_hook(self._weight(name))
            if name.endswith("mlp.fc2") or name in ("blocks.0", "blocks.1"):
                module.register_forward_hook(self._output(name))

    def _weight(self, name: str):
        return lambda module, args: self.seen.__setitem__(f"{name}.weight", _plain(module.weight))

    def _output(self, name: str):
        return lambda module, args, output: self.seen.__setitem__(name, _plain(output))


def _plain(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).clone()


def _whole(tensor: Tensor) -> Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().clone()


def _grads(model: nn.Module) -> dict[str, Tensor]:
    return {
        name.removeprefix("module."): _whole(parameter.grad)
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def _run(model: nn.Module, ids: Tensor, sites: dict, place: Place | None = None) -> tuple[dict, dict]:
    points = find_adapter(model).points(model)
    points = points if place is None else replace(points, place=place)
    before = {key: _plain(value) for key, value in model.state_dict().items()}
    with Perturbing(model, sites, seed=3, points=points, clock=HandClock(step=4, micro_batch=1)) as on:
        watch = Watch(model)
        model(ids).square().mean().backward()
        assert on.installed.calls == sum(4 if name == "weight" else 1 for name in sites) * 2
        assert (on.installed.errors, on.installed.unfired()) == (0, [])
    for key, value in model.state_dict().items():
        assert torch.equal(_plain(value), before[key]), key
    return watch.seen, _grads(model)


def _sent(seen: dict[str, Tensor], grads: dict[str, Tensor]) -> Found:
    # A tensor's memory would end with its process.
    return {k: v.numpy() for k, v in seen.items()}, {k: v.numpy() for k, v in grads.items()}


def replicated(rank: int, way: str) -> Found:
    """Train one step of two replicas, kept whole (``ddp``) or cut (``fully_shard``), or each by itself with gradients averaged by hand (``alone``)."""
    model = _model()
    if way == "ddp":
        model = DistributedDataParallel(model)
    elif way == "fully_shard":
        for block in model.blocks:
            # One linear module by itself as well: its weight is gathered by hooks of its own.
            fully_shard(block.mlp.fc1)
            fully_shard(block)
        fully_shard(model)
    seen, grads = _run(model, _ids(rank), SITES)
    if way == "alone":
        for gradient in grads.values():
            distributed.all_reduce(gradient)
            gradient /= 2
    return _sent(seen, grads)


def whole(sites: dict) -> Found:
    """Train one step as one process does."""
    return _sent(*_run(_model().double(), _ids(0), sites, place=Place()))


def cut(sites: dict) -> Found:
    """Train one step with each MLP cut over two processes."""
    model = _model().double()
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    for block in model.blocks:
        parallelize_module(block, mesh, {"mlp.fc1": ColwiseParallel(), "mlp.fc2": RowwiseParallel()})
    return _sent(*_run(model, _ids(0), sites))


def all_ways(rank: int, same: dict, other: dict) -> dict[str, Found]:
    """Train in every way."""
    found = {way: replicated(rank, way) for way in ("alone", "ddp", "fully_shard")}
    return {**found, "whole": whole(same), "cut": cut(same), "cut otherwise": cut(other)}
