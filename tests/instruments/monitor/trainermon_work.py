"""What each process of a test of ``megalens.TrainerMon`` does."""

from __future__ import annotations

import copy
import io
import os
from contextlib import redirect_stdout
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import megalens

__all__ = ["communication", "megatron", "replicas", "sharded", "shown"]


def _with_gradients(rank: int) -> tuple[nn.Module, torch.Tensor, list[dict[str, torch.Tensor]]]:
    """Return a model, a batch for each of two ranks and, by plain torch, the gradients of this rank's and of both."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    data = torch.randn(2, 5, 4)
    found = []
    for batches in (data[rank : rank + 1], data):
        alone = copy.deepcopy(model)
        for batch in batches:
            (alone(batch).square().mean() / len(batches)).backward()
        found.append({name: p.grad.double() for name, p in alone.named_parameters()})
    return model, data, found


def replicas(rank: int, folder: str) -> dict[str, Any]:
    """Train a step as a replica; the norms of its own gradients and of all replicas', as plain torch has them."""
    os.environ["MONITOR_OUTPUT_DIR"] = folder
    model, data, gradients = _with_gradients(rank)
    norms = [{name: g.norm().item() for name, g in each.items()} for each in gradients]
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), 0.1)
    monitor = megalens.TrainerMon({"targets": {}, "wg_distribution": True, "module_ranks": [1]})
    monitor.set_monitor(model=model, optimizer=optimizer, dp_group=None)
    replica(data[rank]).square().mean().backward()
    optimizer.step()
    monitor.close()
    return {"own": norms[0], "all": norms[1]}


def _elsewhere(values: torch.Tensor) -> None:
    distributed.all_reduce(values)


def communication(rank: int, folder: str, settings: dict[str, Any]) -> None:
    """Train two steps; in each two reductions of one place in the script, one of another, and a broadcast that is waited for later."""
    os.environ["MONITOR_OUTPUT_DIR"] = folder
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    monitor = megalens.TrainerMon(
        {
            "ops": ["norm", "min", "max", "zeros", "nans", "mean"],
            "cc_distribution": {"enable": True, **settings},
        }
    )
    monitor.set_monitor(model=model, optimizer=optimizer)
    own = distributed.all_reduce.__wrapped__
    for step in range(2):
        for scale in (1.0, 2.0):
            distributed.all_reduce(torch.tensor([0.0, 3.0, 4.0]) * scale * (1 + rank) * (1 + step))
        _elsewhere(torch.ones(1))
        values = torch.full((2,), 5.0 * (1 - rank))
        distributed.broadcast(values, 0, async_op=True).wait()
        optimizer.step()
    monitor.close()
    assert distributed.all_reduce is own


def shown(rank: int, folder: str) -> tuple[str, str]:
    """Train until ``cc_log_only`` ends it; what is shown, and what is raised."""
    said = io.StringIO()
    try:
        with redirect_stdout(said):
            communication(rank, folder, {"cc_log_only": True})
    except megalens.MegalensError as error:
        return said.getvalue(), str(error)
    return said.getvalue(), ""


_ALL = {
    "targets": {}, "wg_distribution": True, "mv_distribution": True, "param_distribution": True, "mg_direction": True,
    "ops": ["norm", "mean"], "ndigits": 12,
}  # fmt: skip


def sharded(rank: int, folder: str) -> dict[str, Any]:
    """Train two steps of a model that ``fully_shard`` cuts; what plain torch has of the first step's gradients, own and of all, and of this rank's shards."""
    os.environ["MONITOR_OUTPUT_DIR"] = folder
    model, data, (own, everybodys) = _with_gradients(rank)
    for layer in (*model, model):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    monitor = megalens.TrainerMon(_ALL)
    monitor.set_monitor(model=model, optimizer=optimizer)
    for _ in range(2):
        model(data[rank]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    monitor.close()
    return {
        "own": {name: g.norm().item() for name, g in own.items()},
        "shard": {name: g.chunk(2)[rank].norm().item() for name, g in everybodys.items()},
        "moment": {name: 0.1 * g.chunk(2)[rank].norm().item() for name, g in everybodys.items()},
    }


def megatron(rank: int, folder: str, replicas: int, is_distributed: bool, each: bool) -> list[float | None]:
    """Train a job of Megatron-Core's own, with a monitor; its losses."""
    from megatron_job import MegatronJob
    from shape import Optimizer, Shape

    os.environ["MONITOR_OUTPUT_DIR"] = folder
    job = MegatronJob(
        Shape(dp=replicas), Optimizer("adam", dtype="bfloat16", distributed=is_distributed, clip=0.0)
    )
    monitor = megalens.TrainerMon({**_ALL, "monitor_mbs_grad": each})
    monitor.set_monitor(model=job.chunks, optimizer=job.optimizer, grad_acc_steps=2 // replicas)
    losses = [job.train(step) for step in (1, 2)]
    monitor.close()
    job.close()
    return losses
