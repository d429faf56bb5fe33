"""What each process of a Megatron-Core test does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hub_found import hub_found
from megatron_job import MegatronJob
from shape import STEPS, Optimizer, Shape
from torch import distributed

import megalens
from megalens.adapters import find_adapter
from megalens.runs import open_run

__all__ = ["reasons", "timed", "traced"]


def traced(
    rank: int, shape: Shape, folder: Path, settings: dict[str, dict[str, Any]]
) -> tuple[list[list[float | None]], list[dict[str, Any]]]:
    """Train under each of the named settings from the first step on, each recorded into the folder of its name; losses and what the tracer said."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    losses, said = [], []
    for name, flags in settings.items():
        job = MegatronJob(shape)
        model = job.chunks if shape.vpp else job.chunks[0]
        tracer = megalens.trace(
            model, name=name, flags=flags, record=folder / name, linger=0.1, vectors_folders=[folder]
        )
        hub_found(tracer)
        losses.append([])
        for step in range(1, STEPS + 1):
            with tracer.step():
                losses[-1].append(job.train(step))
        tracer.close()
        said.append(tracer.status())
        job.close()
    return losses, said


def reasons(rank: int, shape: Shape) -> dict[str, str]:
    """Why flags cannot be traced."""
    model = MegatronJob(shape).chunks[0]
    flags = find_adapter(model).points(model).flags
    return {name: here.reason for name, here in flags.items() if here.reason}


def timed(rank: int, shape: Shape, folder: Path) -> Any:
    """Train with Megatron-Core's own optimizer while steps are timed by layers; rows of the recording on rank 0."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    job = MegatronJob(shape, Optimizer())
    model = job.chunks if shape.vpp else job.chunks[0]
    tracer = megalens.trace(model, record=folder, linger=0.1, timeline="layers")
    # The others hear of the hub from rank 0.
    assert rank > 0 or tracer.connected(30)
    distributed.barrier()
    for step in range(1, STEPS + 1):
        with tracer.step():
            job.train(step)
    tracer.close()
    job.close()
    if rank > 0:
        return None
    with open_run(tracer.folder) as run:
        return run.table("spans").to_pandas().to_dict("list")
