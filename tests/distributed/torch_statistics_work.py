"""What each process of a test of statistics does: it trains models that torch's own tools cut, one after another."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch_work
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer.sending import producer

__all__ = ["STEPS", "parted", "trained"]

# However busy the machine is, the last steps of all processes are waited for.
producer._LAST_SECONDS = 60.0
STEPS = 2
_ALL = dict.fromkeys(("param", "grad", "activation", "dgrad", "residual", "residual_dgrad"), 1)


def trained(
    rank: int, ways: Sequence[tuple[str, str, int]], folder: Path, asked: dict[str, Any] = _ALL
) -> list[list[str]]:
    """Train each (kind, way, replicas) into a folder of its own; the warnings of each."""
    return [
        _train(kind, way, replicas, folder / f"{kind} {way} {replicas}", asked)
        for kind, way, replicas in ways
    ]


def _train(kind: str, way: str, replicas: int, folder: Path, asked: dict[str, Any]) -> list[str]:
    model = _spread(_build(kind), way)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with megalens.log_statistics(model, optimizer, **asked, hub=None, jsonl=folder, samples=4) as statistics:
        # In one process the replicas' samples are micro-batches, and their gradients add up where others are averaged.
        alone = way == "none"
        place = statistics.tracer.points.place
        for step in range(1, STEPS + 1):
            chunks = torch_work.batch(step).chunk(replicas)
            with statistics.step():
                for ids in chunks if alone else (chunks[place.dp],):
                    _loss(model, ids).backward()
                # Clipping is no collective here: every process makes the gradients small alike.
                for parameter in model.parameters():
                    parameter.grad *= 0.37 / (replicas if alone else 1)
                optimizer.step()
                optimizer.zero_grad()
    return list(statistics.tracer.status()["warnings"])


def _build(kind: str) -> nn.Module:
    if kind != "gpt":
        return torch_work.build(kind)
    torch.manual_seed(0)
    # Rows that do not divide: shards of them are of unequal size.
    return GPT(GPTConfig(vocabulary=51, layers=2, hidden=12, heads=2, sequence=16))


def _spread(model: nn.Module, way: str) -> nn.Module:
    if way != "hsdp":
        return torch_work.spread(model, way)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def _loss(model: nn.Module, ids: Tensor) -> Any:
    out = model(ids)
    logits = out if isinstance(out, Tensor) else out.logits
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def parted(rank: int, folder: Path) -> list[str]:
    """Log two steps; the second process is gone after the first."""
    model = _build("gpt")
    settings: dict[str, Any] = {"hub": None, "jsonl": folder, "param": 1, "activation": 1}
    with megalens.log_statistics(model, None, **settings) as statistics:
        for step in (1, 2) if rank == 0 else (1,):
            with statistics.step():
                _loss(model, torch_work.batch(step))
        # What is sent before rank 0 is found is kept for two seconds, which a busy machine may need for that.
        while not statistics.tracer._coordinator.peers.others() and rank:
            time.sleep(0.01)
    return list(statistics.tracer.status()["warnings"])
