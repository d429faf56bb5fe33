"""Checks before a split training connects or takes a step, and its start."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.pipelining import PipelineStage

from ..errors import SplitError
from ..stages.inbox import StepBatch, cut_batch
from .layout import SplitLayout, SplitPlace
from .planner import asked_map
from .worker import device_of


# For launchers.
def launch(
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    *,
    layout: str = "megalens",
    forward_tp: int | None = None,
    last_forward: bool = True,
    context: int = 1,
    expert: int = 1,
    world: int | None = None,
    hosts: str | Path | None = None,
) -> dict[str, Any]:
    """Return the processes that a launcher starts, as plain JSON.

    Parameters are those of :func:`megalens.split.rank_map`.

    Returns
    -------
    dict
        ``layout``, ``world`` and ``processes``, each with ``rank``, ``role``, ``stage``, ``replica``,
        ``tensor``, ``host`` and ``device`` (None where no host file says it), ``local_rank`` (its slot; its
        rank without hosts) and ``env``: the variables ``RANK``, ``WORLD_SIZE`` and ``LOCAL_RANK``.

    Raises
    ------
    SplitError
        With the field at fault.
    EngineError
        When the engine cannot run.
    """
    answer = asked_map(
        tp,
        pp,
        dp,
        layout=layout,
        forward_tensor=forward_tp,
        last_forward=last_forward,
        context=context,
        expert=expert,
        world=world,
        hosts=hosts,
    )
    count = len(answer["processes"])
    return {
        "layout": layout,
        "world": count,
        "processes": [_process(each, count) for each in answer["processes"]],
    }


def _process(each: dict[str, Any], count: int) -> dict[str, Any]:
    seat, rank = each["seat"], each["real"]
    local = rank if seat is None else seat["slot"]
    return {
        "rank": rank,
        "role": each["role"],
        "stage": each["pipeline"],
        "replica": each["replica"],
        "tensor": each["tensor"],
        "host": None if seat is None else seat["host"],
        "local_rank": local,
        "device": (seat["device"] or None) if seat is not None else None,
        "env": {"RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_RANK": str(local)},
    }


def checked_start(
    loss_fn: Any,
    optimizer: Any,
    micro_batches: Any,
    clip: Any,
    ahead: Any,
    check_every: Any,
    timeout: Any,
    seed: Any,
) -> None:
    """Raise ``SplitError`` for the first wrong argument."""
    for name, value in (("loss_fn", loss_fn), ("optimizer", optimizer)):
        if not callable(value):
            raise SplitError(f"{name} must be callable, got {value!r:.80}.", field=name)
    for name, value, least in (
        ("micro_batches", micro_batches, 1),
        ("ahead", ahead, 1),
        ("check_every", check_every, 0),
        ("seed", seed, None),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
            words = "a whole number" if least is None else f"a whole number from {least}"
            raise SplitError(f"{name} must be {words}, got {value!r:.80}.", field=name)
    for name, value in (("clip", clip), ("timeout", timeout)):
        if name == "clip" and value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise SplitError(f"{name} must be a number above 0, got {value!r:.80}.", field=name)


def checked_stage(stage: Any, layout: SplitLayout) -> int:
    """Return this process' rank; raises ``SplitError`` without one, or for another process' stage."""
    if distributed.is_initialized():
        rank, world = distributed.get_rank(), distributed.get_world_size()
    else:
        rank, world = (_number(name) for name in ("RANK", "WORLD_SIZE"))
    if world != layout.world:
        of = {role: sum(each.role == role for each in layout.processes) for role in ("forward", "backward")}
        raise SplitError(
            f"This layout needs {layout.world} processes ({of['forward']} forward, {of['backward']} "
            f"backward), got WORLD_SIZE {world}. Start {layout.world}, or change the degrees.",
            field="world",
        )
    place = layout.place(rank)
    if isinstance(stage, nn.Module):
        return rank
    if isinstance(stage, PipelineStage):
        if (stage.stage_index, stage.num_stages) != (place.stage, place.stages):
            raise SplitError(
                f"{place.name.capitalize()} takes the PipelineStage {place.stage} of {place.stages}, got "
                f"{stage.stage_index} of {stage.num_stages}.",
                code="shape",
                field="stage",
            )
        return rank
    if not callable(stage) or (isinstance(stage, type) and issubclass(stage, nn.Module)):
        got = f"the class {stage.__name__}" if isinstance(stage, type) else f"a {type(stage).__name__}"
        raise SplitError(
            "stage must be the nn.Module of one stage, a PipelineStage, or a function that makes a module "
            f"of a SplitPlace, got {got}.",
            field="stage",
        )
    return rank


def device_for(stage: Any, device: Any) -> torch.device:
    if device is None:
        if isinstance(stage, nn.Module):
            return device_of(stage)
        if not isinstance(stage, nn.Module) and isinstance(stage, PipelineStage):
            return stage.device
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"
    found = _device(device)
    if str(found) == "cuda":
        found = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return found


def began(backend: str | None, device: torch.device, timeout: float) -> bool:
    """Make the process group where there is none, and return whether it did."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if distributed.is_initialized():
        return False
    backend = backend or ("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        distributed.init_process_group(backend, timeout=timedelta(seconds=timeout))
    except (RuntimeError, ValueError) as error:
        raise SplitError(
            f"The processes did not all begin within {timeout:.3g} s, or could not: {str(error)[:300]}",
            code="waited",
        ) from error
    return True


def module_of(stage: Any, place: SplitPlace) -> nn.Module:
    if isinstance(stage, nn.Module):
        return stage
    module = stage.submod if isinstance(stage, PipelineStage) else stage(place)
    if not isinstance(module, nn.Module):
        raise SplitError(
            f"stage(…) must give the nn.Module of stage {place.stage}, got a {type(module).__name__}.",
            field="stage",
        )
    return module


def batch_for(
    place: SplitPlace,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Any,
    micro_batches: int,
    loss_fn: Callable[[Any, Any], Tensor],
) -> StepBatch:
    """Return a step's data by micro-batch; raises ``SplitError`` for what this process does not take."""
    if bool(args) != place.first:
        raise SplitError(
            "step(…) takes the model's input in the processes of stage 0, forward and backward, and in no "
            f"others; {place.name} got {len(args)} arguments.",
            field="args",
        )
    if place.last and place.role == "backward" and target is None:
        raise SplitError(f"step(…) needs target in {place.name}, which computes the loss.", field="target")
    wanted = target if place.last else None
    return cut_batch(args, kwargs, wanted, micro_batches, loss_fn=loss_fn, error=SplitError)


def _device(device: Any) -> torch.device:
    try:
        return torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise SplitError(f"device must be one of torch's, got {device!r:.80}.", field="device") from error


def _number(name: str) -> int:
    value = os.environ.get(name, "")
    if not value.isdecimal():
        raise SplitError(
            f"{name} must be in the environment, as torchrun sets it, or a process group be there; got "
            f"{value!r:.80}.",
            field="world",
        )
    return int(value)
