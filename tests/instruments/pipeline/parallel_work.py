"""Stages that several ranks hold: DDP, FSDP2, tensor parallel; and stages of odd kinds."""

from __future__ import annotations

import copy
import time
from typing import Any

import torch
from own_plans import SHAPES, plan_named, random_plan
from pipeline_work import Part, apart, data, loss_fn, reference
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from megalens.instruments.pipeline import DynamicSchedule, PipelineError
from megalens.instruments.pipeline.plan_type import Placement

STAGES, MICRO_BATCHES, REPLICAS = 2, 4, 2


class Wide(nn.Module):
    """Two layers of one width, which can be cut over ranks."""

    def __init__(self, virtual: int) -> None:
        super().__init__()
        torch.manual_seed(100 + virtual)
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(x)))


def _reference(parts: list[nn.Module], seeds: list[int]) -> list[list[Tensor]]:
    for seed in seeds:
        x, target = data(MICRO_BATCHES, seed)
        for each, wanted in zip(x.chunk(MICRO_BATCHES), target.chunk(MICRO_BATCHES), strict=True):
            for part in parts:
                each = part(each)
            (loss_fn(each, wanted) / MICRO_BATCHES / len(seeds)).backward()
    return [[p.grad for p in part.parameters()] for part in parts]


def shared(rank: int, kind: str) -> tuple[dict[str, float], list[str]]:
    """Two pipelines of two stages side by side; the largest difference of a gradient by order, and by which order steps ran while it was changed."""
    replica, stage = divmod(rank, STAGES)
    group = None
    for each in range(REPLICAS):
        ranks = list(range(each * STAGES, (each + 1) * STAGES))
        made = distributed.new_group(ranks)
        group = made if each == replica else group
    beside = [stage + each * STAGES for each in range(REPLICAS)]
    mesh = init_device_mesh("cpu", (REPLICAS, STAGES), mesh_dim_names=("beside", "pp"))["beside"]
    seeds = [0, 0] if kind == "tp" else [0, 1]
    off: dict[str, float] = {}
    ran = []
    plans: list[tuple[str, Any, str, int]] = [
        (name, plan_named(name, STAGES, MICRO_BATCHES), *SHAPES[name]) for name in ("zb_h1", "dualpipev")
    ]
    plans += [(f"random {n}", random_plan(n, STAGES, MICRO_BATCHES, "loop", 2), "loop", 2) for n in range(2)]
    plans += [("greedy", "greedy", "loop", 2), ("greedy v", "greedy", "v", 2)]
    for name, order, placement, chunks in plans:
        layout = Placement(placement, STAGES, chunks, MICRO_BATCHES)
        held = layout.held_by(stage)
        whole = [Wide(v) for v in range(layout.virtual_stages)]
        wanted = _reference(copy.deepcopy(whole), seeds)
        modules: list[Any] = []
        for v in held:
            module = whole[v]
            if kind == "ddp":
                module = DistributedDataParallel(module, process_group=mesh.get_group())
            elif kind == "fsdp":
                fully_shard(module.up, mesh=mesh)
                fully_shard(module, mesh=mesh)
            else:
                parallelize_module(module, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
            modules.append(module)
        schedule = DynamicSchedule(
            modules, MICRO_BATCHES, order, loss_fn, placement=placement, group=group, peers=beside, timeout=60
        )
        for again in range(2):
            x, target = data(MICRO_BATCHES, seeds[replica])
            first, last = (any(test(v) for v in held) for test in (layout.is_first, layout.is_last))
            schedule.step(*((x,) if first else ()), target=target if last else None)
            off[f"{name} {again}"] = max(
                apart(module, wanted[v]) for v, module in zip(held, modules, strict=True)
            )
        if name == "random 0":
            for step in range(8):
                if rank == 0 and step in (1, 4):
                    schedule.use("greedy" if step == 1 else plans[3][1])
                # Another pipeline may be ahead, or behind.
                time.sleep(0.01 * ((rank + step) % 3))
                schedule.step(*((x,) if first else ()), target=target if last else None)
                ran.append(schedule.running)
        schedule.close()
    if kind != "tp":
        said = ""
        try:
            DynamicSchedule(modules, MICRO_BATCHES, "greedy", loss_fn, placement="v", group=group)
        except PipelineError as error:
            said = str(error)
        assert "peers=" in said
    return off, ran


class Plain(nn.Module):
    """A stage without parameters, which also hands on a mask and how many it has seen."""

    def forward(self, x: Tensor, mask: Tensor, *, factor: float = 1.0) -> tuple[Tensor, Tensor]:
        return (x * factor).double().view(x.shape), mask


class First(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embedding = nn.Embedding(10, 6)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.embedding(ids).to(torch.bfloat16), mask


class Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(6)
        self.head = nn.Linear(6, 10).double()
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.head(x) * mask.unsqueeze(-1)


def odd(rank: int) -> float:
    """Tokens, a mask, two dtypes, a stage without parameters, keyword arguments, gradients that add up over steps."""
    ids = torch.arange(8 * 3).view(8, 3) % 10
    mask = (ids % 3 > 0).to(torch.int32)
    target = torch.randn(8, 3, 10, generator=torch.Generator().manual_seed(1)).double()

    def loss(output: Tensor, wanted: Tensor) -> Tensor:
        return (output - wanted).square().mean()

    model = [First(), Plain(), Last()]
    for _ in range(2):
        for i, m, t in zip(ids.chunk(4), mask.chunk(4), target.chunk(4), strict=True):
            x = model[1](*model[0](i, m), factor=2.0)
            (loss(model[2](*x), t) / 4).backward()
    wanted = [p.grad for p in model[rank].parameters()]
    worst = 0.0
    for order in (plan_named("1f1b", 3, 4), plan_named("zb_h1", 3, 4), "greedy"):
        module = [First(), Plain(), Last()][rank]
        schedule = DynamicSchedule(module, 4, order, loss, timeout=60)
        for _ in range(2):
            args = (ids, mask) if rank == 0 else ()
            extra = {"factor": 2.0} if rank == 1 else {}
            schedule.step(*args, target=target if rank == 2 else None, **extra)
        for parameter, gradient in zip(module.parameters(), wanted, strict=True):
            if gradient is None:
                assert parameter.grad is None
            else:
                worst = max(worst, (parameter.grad - gradient).abs().max().item())
        schedule.close()
    return worst


def refused(rank: int) -> dict[str, tuple[str, Any, Any, Any]]:
    """What is refused before anything runs, and in words: code, operation, stage, micro-batch, message."""
    found = {}

    def expect(name: str, work: Any) -> None:
        try:
            work()
        except PipelineError as error:
            found[name] = (error.code, error.operation, error.stage, error.micro_batch, str(error))
        else:
            raise AssertionError(f"{name} was taken")

    part, plan = Part(rank, 2), plan_named("1f1b", 2, 4)
    wrong = {**plan, "order": ["0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3", "1F1 1B1 1F0 1B0 1F2 1B2 1F3 1B3"]}
    expect("cycle", lambda: DynamicSchedule(part, 4, wrong, loss_fn))
    expect("layout", lambda: DynamicSchedule(part, 4, plan_named("1f1b", 3, 4), loss_fn))
    expect("micro-batches", lambda: DynamicSchedule(part, 2, plan, loss_fn))
    expect("name", lambda: DynamicSchedule(part, 4, "2f2b", loss_fn))
    expect("two ways", lambda: DynamicSchedule([part, part], 3, "greedy", loss_fn, placement="two_way"))
    schedule = DynamicSchedule(part, 4, plan, loss_fn, timeout=8)
    x, target = torch.randn(6, 6), torch.randn(6)
    args = (x,) if rank == 0 else ()
    expect("batch", lambda: schedule.step(*args, target=target if rank else None))
    expect("used", lambda: schedule.use({**plan, "order": ["0F0", "1F0"]}))
    # Refused before anything ran, so it still runs.
    x, target = data(4)
    schedule.step(*((x,) if rank == 0 else ()), target=target if rank else None)
    assert (part.first.weight.grad - reference(2, 4)[0][rank][1]).abs().max() < 1e-6
    schedule.close()
    like = torch.empty(2, 6 + rank, requires_grad=True)
    told = torch.empty(2, 9, requires_grad=True)
    stage = PipelineStage(
        part, rank, 2, torch.device("cpu"), input_args=(like if rank == 0 else told,), output_args=like
    )
    expect("told", lambda: DynamicSchedule(stage, 4, plan, loss_fn, timeout=20))
    return found


def bad_model(rank: int) -> tuple[str, Any, Any, Any, str]:
    """The second stage takes another width than the first gives."""
    module = nn.Linear(6, 7) if rank == 0 else nn.Linear(5, 1)
    schedule = DynamicSchedule(module, 4, plan_named("1f1b", 2, 4), loss_fn, timeout=8)
    x, target = data(4)
    try:
        schedule.step(*((x,) if rank == 0 else ()), target=target if rank else None)
    except PipelineError as error:
        return error.code, error.operation, error.stage, error.micro_batch, str(error)
    raise AssertionError("it was taken")
