"""What each process of a job does whose gradients are reduced while it works, in time that is told to it."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.instruments.timeline import communication, step_clock
from megalens.runs import open_run

__all__ = ["ADDED_MS", "STEPS", "trained"]

STEPS = 24
ADDED_MS = 12
_DATA_MS, _FORWARD_MS, _BACKWARD_MS, _REDUCTION_MS = 0.5, 30, 60, 3
_SLOW = {"none": (), "two": (1, 2)}


class _ToldTime:
    """In the place of the module ``time``: it goes on by what is worked, and by waiting for other ranks.

    How fast the machine is, and what else it does, changes nothing.
    """

    def __init__(self, rank: int) -> None:
        self._now = 1_000_000_000
        self._random = random.Random(rank)

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def perf_counter_ns(self) -> int:
        return self._now

    def work(self, ms: float) -> None:
        self._now += int(ms * 1e6 * self._random.gauss(1, 0.005))

    def meet(self) -> None:
        """Wait for the last rank, and until the gradients are there."""
        latest = torch.tensor([self._now])
        options = distributed.AllreduceOptions()
        options.reduceOp = distributed.ReduceOp.MAX
        # Of the group itself: a call of torch.distributed would be a collective of the training.
        distributed.distributed_c10d._get_default_group().allreduce([latest], options).wait()
        self._now = int(latest) + int((_REDUCTION_MS + self._random.uniform(0.01, 0.03)) * 1e6)


def trained(rank: int, way: str, folder: str) -> Any:
    """Train with ranks that are slow in a ``way``; return the spans on rank 0."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "rt")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    step_clock.time = clock = _ToldTime(rank)  # type: ignore[assignment]
    own = communication.CommunicationHooks._reduced

    def reduced(*args: Any) -> None:
        clock.meet()
        own(*args)

    communication.CommunicationHooks._reduced = reduced  # type: ignore[method-assign]
    more = ADDED_MS if rank in _SLOW.get(way, (2,)) else 0

    class Batches(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return STEPS

        def __getitem__(self, at: int) -> torch.Tensor:
            clock.work(_DATA_MS + more * (way == "data"))
            return torch.full((2, 8), at % 32)

    model = GPT(GPTConfig(vocabulary=32, layers=2, hidden=16, heads=2, sequence=8))
    block = model.blocks[0]
    block.register_forward_hook(lambda *_: clock.work(_FORWARD_MS + more * (way == "forward")))
    block.register_full_backward_hook(
        lambda *_: clock.work(_BACKWARD_MS + more * (way in ("backward", "two")))
    )
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracer = megalens.trace(model, record=folder, linger=0.1, timeline="phases")
    with tracer:
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
            with tracer.step():
                replica(batch).logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    if rank > 0:
        return None
    with open_run(tracer.folder) as run:
        return run.table("spans").to_pandas().to_dict("list")
