"""A model in two stages of ``torch.distributed.pipelining``, traced as anybody would; and the same in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, schedules

import megalens
from megalens.demo.model import GPT, GPTConfig

STEPS, MICRO_BATCHES, LAYERS = 2, 4, 3


class Stage(nn.Module):
    """Some layers, with the embedding before the first and the head behind the last; they count from 0."""

    def __init__(self, whole: GPT, first: int, end: int) -> None:
        super().__init__()
        self.embedding = whole.embedding if first == 0 else None
        self.blocks = nn.ModuleList(whole.blocks[first:end])
        self.head = nn.Linear(16, 16) if end == LAYERS else None

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.embedding is None else self.embedding(x)
        for block in self.blocks:
            x = block(x)
        return x if self.head is None else self.head(x)


def parts() -> tuple[Stage, Stage]:
    torch.manual_seed(0)
    whole = GPT(GPTConfig(vocabulary=16, layers=LAYERS, hidden=16, heads=2, sequence=8))
    return Stage(whole, 0, 2), Stage(whole, 2, LAYERS)


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        ids = torch.randint(0, 16, (2 * MICRO_BATCHES, 9), generator=generator)
        yield ids[:, :-1], ids[:, 1:]


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def in_stages(
    rank: int, folder: str, schedule: str, late: bool = False, sharded: bool = False
) -> tuple[Any, list[str]]:
    """Train a stage in each of two processes, or ``sharded`` over two more; ``late``: it is made a stage after
    tracing began.
    """
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "rt")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp")) if sharded else None
    at = mesh["pp"].get_local_rank() if mesh is not None else rank
    model = parts()[at]
    if mesh is not None:
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh["dp"], reshard_after_forward=False)

    def staged() -> PipelineStage:
        group = None if mesh is None else mesh.get_group("pp")
        return PipelineStage(model, at, 2, torch.device("cpu"), group=group)

    stage = None if late else staged()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    flags = {
        "HiddenStates": {"compressor": megalens.NoOp(), "samples": "all", "passes": ["forward", "backward"]}
    }
    tracer = megalens.trace(model, flags=flags, record=folder, linger=0.1)
    with megalens.log_statistics(model, optimizer, tracer=tracer, grad=1, param=1), tracer:
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        run = getattr(schedules, f"Schedule{schedule}")(stage or staged(), MICRO_BATCHES, loss_fn=loss_of)
        for ids, targets in batches():
            with tracer.step():
                optimizer.zero_grad()
                run.step(*(() if at else (ids,)), **({"target": targets} if at else {}))
                optimizer.step()
    return tracer.points.place, list(tracer.status()["warnings"])


def alone() -> tuple[dict[tuple[int, int, int, str], Tensor], dict[tuple[int, str], float]]:
    """By step, micro-batch, layer and pass each layer's output, and its gradient; by step and name norms of gradients."""
    first, second = parts()
    both = nn.Sequential(first, second)
    optimizer = torch.optim.SGD(both.parameters(), 0.1)
    tensors: dict[tuple[int, int, int, str], Tensor] = {}
    norms: dict[tuple[int, str], float] = {}
    at = [0, 0]
    for layer, block in enumerate((*first.blocks, *second.blocks)):

        def keep(module: nn.Module, args: Any, output: Tensor, layer: int = layer) -> None:
            step, number = at
            tensors[step, number, layer, "forward"] = output.detach()
            output.register_hook(
                lambda gradient: tensors.__setitem__((step, number, layer, "backward"), gradient)
            )

        block.register_forward_hook(keep)
    for step, (ids, targets) in enumerate(batches(), 1):
        optimizer.zero_grad()
        for number, (x, y) in enumerate(
            zip(ids.chunk(MICRO_BATCHES), targets.chunk(MICRO_BATCHES), strict=True)
        ):
            at[:] = step, number
            loss_of(both(x), y).backward()
        for stage, offset in ((first, 0), (second, 2)):
            for name, parameter in stage.named_parameters():
                assert parameter.grad is not None
                parameter.grad /= MICRO_BATCHES
                head, _, rest = name.removeprefix("blocks.").partition(".")
                own = f"blocks.{int(head) + offset}.{rest}" if name.startswith("blocks.") else name
                norms[step, own] = float(parameter.grad.norm())
        optimizer.step()
    return tensors, norms
