"""What each process of a job whose steps are timed does."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.instruments.timeline import step_clock
from megalens.runs import open_run
from megalens.tracer import Place

__all__ = ["STEPS", "timed"]

STEPS, MICRO_BATCHES, WIDTH = 3, 4, 16
MORE_STEPS = 40
Step = Callable[[], Any]


class Stage(nn.Module):
    """A pipeline stage of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        return x


def _gpt(hidden: int = WIDTH, sequence: int = 8) -> GPT:
    return GPT(GPTConfig(vocabulary=32, layers=2, hidden=hidden, heads=2, sequence=sequence))


def _step(model: nn.Module, ids: Tensor) -> Step:
    def step() -> float:
        loss = model(ids).logsumexp(-1).mean()
        loss.backward()
        return loss.item()

    return step


def _replicas(rank: int) -> tuple[nn.Module, Step, Place | None]:
    model = _gpt()
    replica = DistributedDataParallel(model)
    ids = torch.randint(0, 32, (2, 8))
    second = _step(replica, ids)

    def step() -> float:
        with replica.no_sync():
            replica(ids).logsumexp(-1).mean().backward()
        return second()

    return model, step, None


def _shards(rank: int) -> tuple[nn.Module, Step, Place | None]:
    model = _gpt()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model, _step(model, torch.randint(0, 32, (2, 8))), None


def _tensors(rank: int) -> tuple[nn.Module, Step, Place | None]:
    world = distributed.get_world_size()
    model = nn.Module()
    model.layers = nn.ModuleList(
        nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(2)
    )
    model.forward = lambda x: model.layers[1](model.layers[0](x))  # type: ignore[method-assign]
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    for layer in model.layers:
        parallelize_module(layer, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    x = torch.randn(4, WIDTH)

    def step() -> float:
        loss = model(x).square().mean()
        loss.backward()
        return loss.item()

    ranks = tuple(range(world))
    return model, step, Place(rank, tp=rank, tp_ranks=ranks, world_size=world, tp_size=world)


def _pipeline(rank: int) -> tuple[nn.Module, Step, Place | None]:
    world = distributed.get_world_size()
    model = Stage()
    x = torch.randn(2 * MICRO_BATCHES, WIDTH)
    # With these no pass finds out the shapes.
    like = torch.empty(2, WIDTH, requires_grad=True)
    stage = PipelineStage(model, rank, world, torch.device("cpu"), input_args=(like,), output_args=(like,))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=lambda y, t: (y - t).square().mean())

    def step() -> float:
        losses: list[Tensor] = []
        if rank == 0:
            schedule.step(x)
        elif rank == world - 1:
            schedule.step(target=x, losses=losses)
        else:
            schedule.step()
        return sum(loss.item() for loss in losses)

    return model, step, Place(rank, pp=rank, tp_ranks=(rank,), world_size=world, pp_size=world)


def _by_hand(rank: int) -> tuple[nn.Module, Step, Place | None]:
    """Calls of every kind, with times that are known: the last rank is late."""
    model = Stage()
    world = distributed.get_world_size()
    pair = distributed.new_group([0, world - 1])
    value = torch.ones(1000)
    store = distributed.distributed_c10d._get_default_store()
    steps = itertools.count()

    def step() -> float:
        model(torch.randn(2, WIDTH)).sum().backward()
        mine = f"step {next(steps)} rank "
        if rank < world - 1:
            store.set(f"{mine}{rank}", "here")
        else:
            # However busy the machine is, it comes after the others, and so much later.
            store.wait([f"{mine}{other}" for other in range(rank)])
            time.sleep(0.1)
        distributed.all_reduce(value)
        work = distributed.all_gather_into_tensor(torch.empty(1000 * world), value, async_op=True)
        time.sleep(0.05)
        work.wait()
        if rank in (0, world - 1):
            distributed.all_reduce(value[:10], group=pair)
        if rank == 0:
            distributed.send(value, 1)
        elif rank == 1:
            distributed.recv(value, 0)
        with distributed.distributed_c10d._coalescing_manager(async_ops=True) as manager:
            distributed.all_reduce(value[:500])
            distributed.all_reduce(value[500:])
        manager.wait()
        value.fill_(1)
        return 0.0

    return model, step, None


class _OwnTime:
    """In the place of the module ``time``: it is as late as this process has worked."""

    def __init__(self) -> None:
        self._more = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def work(self, ns: int) -> None:
        """Be so much later."""
        self._more += ns

    def perf_counter_ns(self) -> int:
        return time.process_time_ns() + self._more


def _even(rank: int, slow: int = -1) -> tuple[nn.Module, Step, Place | None]:
    """Replicas that do the same, or one of which does more in its passes."""
    model = _gpt(64, 32)
    replica = DistributedDataParallel(model)
    ids = torch.randint(0, 32, (4, 32))
    if slow >= 0:
        # What other processes of the machine take from this one is no time of it.
        step_clock.time = clock = _OwnTime()  # type: ignore[assignment]
        if rank == slow:
            model.blocks[0].register_forward_hook(lambda *_: clock.work(20_000_000))
    return model, _step(replica, ids), None


_KINDS = {
    "ddp": _replicas,
    "fsdp": _shards,
    "tp": _tensors,
    "pp": _pipeline,
    "calls": _by_hand,
    "even": _even,
    "slow": lambda rank: _even(rank, 2),
}


def timed(rank: int, kind: str, folder: str, timeline: Any) -> tuple[list[float], Any, Any]:
    """Train and return the losses and, on rank 0, spans and alarms of the recording."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "rt")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, step, place = _KINDS[kind](rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    adapter = (
        None if kind in ("ddp", "fsdp", "even", "slow") else megalens.adapters.Adapter(layer="layers.{i}")
    )
    losses = []
    tracer = megalens.trace(model, record=folder, linger=0.1, timeline=timeline, place=place, adapter=adapter)
    with tracer:
        # The others hear of the hub from rank 0.
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        for _ in range(MORE_STEPS if kind in ("even", "slow") else STEPS):
            with tracer.step():
                losses.append(step())
                optimizer.step()
                optimizer.zero_grad()
    if rank > 0 or timeline is None:
        return losses, None, None
    with open_run(tracer.folder) as run:
        return losses, run.table("spans").to_pandas().to_dict("list"), run.alarms().to_dict("records")
