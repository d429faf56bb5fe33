"""One process of a training that is measured, split or a pipeline; the first one writes how long steps took."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.utils.checkpoint import checkpoint

import megalens
from bench.pipeline_rank import TimedStage
from megalens.demo.model import Block, GPTConfig
from megalens.instruments.pipeline import DynamicSchedule
from megalens.instruments.pipeline.split import SplitLayout, SplitTraining
from megalens.tracer import Place

WIDTH = 8
_SIZES = GPTConfig(hidden=256, sequence=128)


class _Recomputed(nn.Module):
    """Computes its activations anew for the backward pass."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.inner, x, use_reentrant=False)
        return result


def main() -> None:
    """Run the case of the file that is the first argument; ``argv[2]`` is where rank 0 writes."""
    torch.set_num_threads(1)
    case = json.loads(Path(sys.argv[1]).read_text())
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if case.get("cpus"):
        os.sched_setaffinity(0, case["cpus"][rank])
    distributed.init_process_group("gloo")
    run = _split if case["kind"] == "split" else _pipeline
    step, tracer, close = run(case, rank, world)
    taken = []
    for at in range(case["steps"] + 1):
        distributed.barrier()
        began = time.perf_counter()
        if tracer is None:
            step()
        else:
            with tracer.step():
                step()
        # All processes are on one machine and read one clock.
        both: list[Any] = [None] * world
        distributed.all_gather_object(both, (began, time.perf_counter()))
        if at > 0:
            taken.append(1e3 * (max(each[1] for each in both) - min(each[0] for each in both)))
    distributed.barrier()
    folder = None
    if tracer is not None:
        folder = str(tracer.folder)
        tracer.close()
    close()
    distributed.destroy_process_group()
    if rank == 0:
        Path(sys.argv[2]).write_text(json.dumps({"steps_ms": taken, "folder": folder}))


def _module(case: dict[str, Any], stage: int, role: str) -> nn.Module:
    facts = case["stages"][stage]
    if "layers" in facts:
        return nn.Sequential(*(Block(_SIZES) for _ in range(facts["layers"])))
    if role == "forward":
        return TimedStage(facts["forward"], 0.0, 0.0, 0)
    return TimedStage(facts["recompute"], facts["backward"], 0.0, 0)


def _batch(case: dict[str, Any]) -> tuple[Tensor, Tensor]:
    rows = case["micro_batches"]
    if "layers" in case["stages"][0]:
        return torch.randn(rows, _SIZES.sequence, _SIZES.hidden), torch.randn(rows, 1, 1)
    return torch.randn(rows, max(1, case["message"] // (4 * WIDTH)), WIDTH), torch.randn(rows, 1, 1)


def _loss(output: Tensor, target: Tensor) -> Tensor:
    return (output * target).mean()


def _sgd(weights: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(weights, lr=1e-6)


def _trace(case: dict[str, Any], module: nn.Module, place: Place) -> Any:
    if not case.get("record"):
        return None
    adapter = megalens.adapters.Adapter(layer="{i}")
    return megalens.trace(
        nn.ModuleList([module]), timeline="phases", record=case["record"], adapter=adapter, place=place
    )


def _split(case: dict[str, Any], rank: int, world: int) -> Any:
    stages = len(case["stages"])
    layout = SplitLayout.of(pipeline=stages, last_forward=case["last_forward"], world=world)
    place = layout.place(rank)
    module = _module(case, place.stage, place.role)
    tracer = _trace(case, module, layout.tracer_place(rank))
    training = SplitTraining(
        module,
        layout=layout,
        loss_fn=_loss,
        optimizer=_sgd,
        micro_batches=case["micro_batches"],
        ahead=case["ahead"],
        timeout=60,
        tracer=tracer,
    )
    x, target = _batch(case)
    inputs = (x,) if place.stage == 0 else ()
    given = target if place.stage == stages - 1 else None
    return lambda: training.step(*inputs, target=given), tracer, training.close


def _pipeline(case: dict[str, Any], rank: int, world: int) -> Any:
    module = _module(case, rank, "backward")
    stage = _Recomputed(module) if case["recompute"] else module
    place = Place(rank, pp=rank, tp_ranks=(rank,), world_size=world, pp_size=world)
    tracer = _trace(case, stage, place)
    schedule = DynamicSchedule(stage, case["micro_batches"], "1f1b", _loss, tracer=tracer, timeout=60)
    optimizer = _sgd(stage.parameters())
    x, target = _batch(case)
    inputs = (x,) if rank == 0 else ()
    given = target if rank == world - 1 else None

    def step() -> None:
        schedule.step(*inputs, target=given, return_outputs=False)
        optimizer.step()
        optimizer.zero_grad()

    return step, tracer, schedule.close


if __name__ == "__main__":
    main()
