"""What each process of a test of ``megalens.TrainerMon`` does."""

from __future__ import annotations

import copy
import os
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import megalens

__all__ = ["replicas"]


def replicas(rank: int, folder: str) -> dict[str, Any]:
    """Train a step as a replica; the norms of its own gradients and of all replicas', as plain torch has them."""
    os.environ["MONITOR_OUTPUT_DIR"] = folder
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    data = torch.randn(2, 5, 4)
    norms = []
    for batches in (data[rank : rank + 1], data):
        alone = copy.deepcopy(model)
        for batch in batches:
            (alone(batch).square().mean() / len(batches)).backward()
        norms.append({name: p.grad.double().norm().item() for name, p in alone.named_parameters()})
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(replica.parameters(), 0.1)
    monitor = megalens.TrainerMon({"targets": {}, "wg_distribution": True, "module_ranks": [1]})
    monitor.set_monitor(model=model, optimizer=optimizer, dp_group=None)
    replica(data[rank]).square().mean().backward()
    optimizer.step()
    monitor.close()
    return {"own": norms[0], "all": norms[1]}
