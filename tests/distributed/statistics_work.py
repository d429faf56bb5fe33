"""What each process of a test of statistics with Megatron-Core does."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hub_found import hub_found
from megatron_job import MegatronJob
from shape import STEPS, Optimizer, Shape

import megalens
from megalens.tracer import TracerError

__all__ = ["logged", "refused"]


def logged(
    rank: int,
    jobs: Mapping[str, tuple[Shape, Optimizer]],
    stats: Mapping[str, int],
    folder: Path,
    unlogged: Collection[str],
) -> dict[str, dict[str, Any]]:
    """Train one job after the other and log their statistics, each recorded into the folder of its name, and those of ``unlogged`` once more without; what the optimizer said of each, and what the logger did."""
    os.environ["MEGALENS_RUNTIME_DIR"] = str(folder / "runtime")
    said = {}
    for name, (shape, optimizer) in jobs.items():
        job = MegatronJob(shape, optimizer)
        logger = megalens.log_statistics(
            job.chunks if shape.vpp else job.chunks[0],
            job.optimizer,
            **stats,
            name=name,
            record=folder / name,
            linger=0.1,
        )
        if rank == 0:
            # The others send theirs to it.
            hub_found(logger.tracer)
        norms, updated, losses = [], [], []
        for step in range(1, STEPS + 1):
            with logger.step():
                losses.append(job.train(step))
            norms.append(job.norm)
            updated.append(job.updated)
        logger.close()
        said[name] = {
            "losses": losses,
            "norms": norms,
            "updated": updated,
            "warnings": logger.tracer.status()["warnings"],
            "left behind": "prepare_grads" in vars(job.optimizer),
            "masters": _masters(job),
        }
        job.close()
        if name not in unlogged:
            continue
        job = MegatronJob(shape, optimizer)
        said[name]["losses unlogged"] = [job.train(step) for step in range(1, STEPS + 1)]
        job.close()
    return said


def _masters(job: MegatronJob) -> dict[str, np.ndarray]:
    """Return the float32 master weights of a model in one piece, as its optimizer holds them."""
    found = {}
    for name, parameter in job.chunks[0].named_parameters():
        main = getattr(parameter, "main_param", None)
        if main is not None and main.shape == parameter.shape:
            found[name.removeprefix("module.module.")] = main.detach().double().numpy()
    return found


def refused(rank: int) -> dict[str, str]:
    """What is said to pipeline stages that ask for what they cannot have, by what is in the way."""
    job = MegatronJob(Shape(pp=2), Optimizer())
    (chunk,) = job.chunks
    layer = chunk.module.decoder.layers[0]
    sgd = torch.optim.SGD(chunk.parameters(), 0.1)
    attempts: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
        "no optimizer": (chunk.config, "calculate_per_token_loss", False, {"optimizer": None, "grad": 1}),
        "CUDA graphs": (chunk.config, "cuda_graph_impl", "local", {"activation": 1}),
        "experts overlapped": (chunk.config, "overlap_moe_expert_parallel_comm", True, {"residual": 5}),
        "pieces of gradients": (
            chunk.ddp_config,
            "use_distributed_optimizer",
            True,
            {"optimizer": sgd, "grad": 1},
        ),
        "one number twice": (layer, "layer_number", 1, {"param": 1}),
    }
    said = {}
    for name, (where, attribute, value, asked) in attempts.items():
        before = getattr(where, attribute)
        setattr(where, attribute, value)
        try:
            megalens.log_statistics(chunk, **{"optimizer": job.optimizer, "hub": None, **asked})
        except TracerError as error:
            said[name] = str(error)
        setattr(where, attribute, before)
    job.close()
    return said
