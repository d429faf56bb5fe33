"""A pipeline that is traced, by our schedule or one of torch's."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
from own_plans import plan_named
from pipeline_work import Part, apart, loss_fn, reference
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble

import megalens
from megalens.instruments.pipeline import DynamicSchedule
from megalens.instruments.pipeline.order_control import PipelineInstrument
from megalens.runs import open_run
from megalens.tracer import Place

STEPS, MICRO_BATCHES, STAGES = 3, 4, 2


def _place(rank: int) -> Place:
    return Place(rank, pp=rank, tp_ranks=(rank,), world_size=STAGES, pp_size=STAGES)


def _trace(rank: int, model: Any, folder: str, **options: Any) -> Any:
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "rt")
    return megalens.trace(
        model,
        record=folder,
        linger=0.1,
        place=_place(rank),
        adapter=megalens.adapters.Adapter(layer="{i}"),
        **options,
    )


def _data(rank: int) -> tuple[tuple[Tensor, ...], Tensor | None]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * MICRO_BATCHES, 6, generator=generator)
    return (x,) if rank == 0 else (), torch.randn(
        2 * MICRO_BATCHES, generator=generator
    ) if rank == 1 else None


def spans(rank: int, name: str, folder: str) -> tuple[list[list[str]], Any]:
    """What each step of a plan did, and on rank 0 the spans of all."""
    torch.manual_seed(0)
    parts = nn.ModuleList(Part(v, 4) for v in (rank, STAGES + rank))
    tracer = _trace(rank, parts, folder, timeline="phases")
    order = "greedy" if name == "greedy" else plan_named(name, STAGES, MICRO_BATCHES)
    schedule = DynamicSchedule(list(parts), MICRO_BATCHES, order, loss_fn, tracer=tracer, timeout=60)
    did = []
    args, target = _data(rank)
    with tracer:
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        for _ in range(STEPS):
            with tracer.step():
                schedule.step(*args, target=target)
            did.append([str(each.operation) for each in schedule.done])
    return did, _recorded(rank, tracer)


def torch_spans(rank: int, folder: str) -> tuple[list[str], Any]:
    """What torch's schedule with split backward passes says that it does, and the spans."""
    parts = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))
    tracer = _trace(rank, parts, folder, timeline="phases")
    like = torch.empty(2, 6, requires_grad=True)
    stages = [
        PipelineStage(part, v, 4, torch.device("cpu"), input_args=(like,), output_args=(like,))
        for part, v in zip(parts, (rank, STAGES + rank), strict=True)
    ]
    schedule = ScheduleInterleavedZeroBubble(
        stages, MICRO_BATCHES, loss_fn=lambda y, t: (y.sum(-1) - t).square().mean()
    )
    args, target = _data(rank)
    with tracer:
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        for _ in range(STEPS):
            with tracer.step():
                schedule.step(*args, **({} if target is None else {"target": target}))
    order = [str(each) for each in schedule.pipeline_order[rank] if each is not None]
    return order, _recorded(rank, tracer)


def _recorded(rank: int, tracer: Any) -> Any:
    if rank > 0:
        return None
    with open_run(tracer.folder) as run:
        return run.table("spans").to_pandas().to_dict("list")


def configured(rank: int, folder: str, deaf: bool = False) -> tuple[list[str], list[Any], float]:
    """Settings change the order; what each step ran by, what was refused, and the worst gradient. Where it is deaf the second rank hears of none."""
    if deaf and rank == 1:
        PipelineInstrument.apply = lambda *_: None  # type: ignore[method-assign]
    parts = nn.ModuleList(Part(v, 4) for v in (rank, STAGES + rank))
    tracer = _trace(rank, parts, folder)
    first, other = (plan_named(name, STAGES, MICRO_BATCHES) for name in ("interleaved_1f1b", "breadth_first"))

    def planner(name: str, layout: Any) -> dict[str, Any]:
        # Only the first rank plans.
        assert rank == 0
        return plan_named(name, layout.stages, layout.micro_batches)

    schedule = DynamicSchedule(
        list(parts), MICRO_BATCHES, first, loss_fn, tracer=tracer, timeout=60, planner=planner
    )
    wanted, _ = reference(4, MICRO_BATCHES)
    args, target = _data(rank)
    ran, refused, worst = [], [], 0.0
    asked = {5: other, 12: "greedy", 20: "depth_first", 40: "script"}
    with tracer:
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        for step in range(60):
            if rank == 0 and step in asked:
                tracer.configure(pipeline=asked[step])
            if rank == 0 and step == 2:
                big = {**other, "schedule": "big", "order": ["0F0 " * 20000, ""]}
                for wrong in (
                    big,
                    {**other, "order": ["0F0", "1F0"]},
                    "2f2b",
                    plan_named("1f1b", 3, 4),
                    "plan.json",
                ):
                    try:
                        tracer.configure(pipeline=wrong)
                    except megalens.ProtocolError as error:
                        refused.append((error.code, error.field, error.message))
            with tracer.step():
                schedule.step(*args, target=target)
            ran.append(schedule.running)
            for part, gradients in zip(parts, (wanted[rank], wanted[STAGES + rank]), strict=True):
                worst = max(worst, apart(part, gradients))
            time.sleep(0.02)
        status = tracer.status()
        said = status["instruments"]["pipeline"]
    return ran, [refused, said], worst


def from_a_notebook(rank: int, folder: str) -> tuple[list[str], list[tuple[str, int]], Any]:
    """A viewer changes the order; what each step ran by, the steps that it was answered, and the status that it saw."""
    parts = nn.ModuleList(Part(v, 4) for v in (rank, STAGES + rank))
    tracer = _trace(rank, parts, folder)
    first, other = (plan_named(name, STAGES, MICRO_BATCHES) for name in ("interleaved_1f1b", "breadth_first"))
    schedule = DynamicSchedule(list(parts), MICRO_BATCHES, first, loss_fn, tracer=tracer, timeout=60)
    args, target = _data(rank)
    answered: list[tuple[str, int]] = []
    said: list[Any] = []
    faults: list[BaseException] = []

    def view() -> None:
        try:
            with megalens.connect(tracer.run_id) as run:
                run.wait(step=3, timeout=30)
                for order, name in (
                    ("greedy", "greedy (breadth first)"),
                    (other, "breadth_first"),
                    ("script", "interleaved_1f1b"),
                ):
                    answered.append((name, run.pipeline(order)))
                    # On a busy machine the step that was answered is more than a few ahead of what the hub has heard.
                    run.wait(step=max(run.step, answered[-1][1]) + 3, timeout=30)
                said.append(run.instruments["pipeline"])
        except BaseException as error:
            faults.append(error)

    ran = []
    with tracer:
        assert rank > 0 or tracer.connected(30)
        distributed.barrier()
        viewer = threading.Thread(target=view)
        if rank == 0:
            viewer.start()
        going = torch.ones(1)
        while going.item():
            with tracer.step():
                schedule.step(*args, target=target)
            ran.append(schedule.running)
            time.sleep(0.01)
            going.fill_(float(rank == 0 and viewer.is_alive()))
            distributed.broadcast(going, 0)
    if faults:
        raise faults[0]
    return ran, answered, said
