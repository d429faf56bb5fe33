"""What each process of a job under PyTorch's own profiler does."""

from __future__ import annotations

import time

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

__all__ = ["profiled"]


def profiled(rank: int, folder: str) -> None:
    """Train a replica, of which the second waits for its data, and write its trace."""
    torch.set_num_threads(1)
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]))
    optimizer = torch.optim.AdamW(model.parameters())
    batches = torch.utils.data.DataLoader(torch.randn(64, 64), batch_size=8)
    plan = schedule(wait=1, warmup=1, active=4)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for batch in batches:
            time.sleep(0.03 * rank)
            model(batch).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
            if profiler.step_num == 6:
                profiler.export_chrome_trace(f"{folder}/worker{rank}.pt.trace.json")
