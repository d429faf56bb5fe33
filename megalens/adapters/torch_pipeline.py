"""Pipelines of torch: which stage a process has, and the numbers that its layers have in the whole model."""

from __future__ import annotations

import gc
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from torch import distributed, nn

from ..protocol.messages_generated import Model
from ..tracer import FlagPoints, ModelPoints, RankCoordinates
from ..tracer.sending.peers import Rendezvous

_SECONDS = 30.0
"""How long the processes of other stages are waited for; each calls megalens.trace at about the same time."""
_EVERY = 0.02
_T = TypeVar("_T")


def stage_place(roots: Sequence[nn.Module], place: RankCoordinates) -> RankCoordinates:
    """Return the coordinates of a process whose model is a stage of ``torch.distributed.pipelining``.

    A stage leaves no mark on its model, so that the stages that there are in this process are looked at; a
    model that is none keeps its coordinates.
    """
    stages = stages_here(roots)
    if not stages or stages[0].group_size < 2:
        return place
    ranks = distributed.get_process_group_ranks(stages[0].group)
    # Axes lie in one another: what is left without the tensor-parallel one and the stages are replicas.
    stride = ranks[1] - ranks[0]
    rank = place.rank
    if place.tp_size > 1:
        inner = place.tp_ranks[1] - place.tp_ranks[0]
        rank = rank // (inner * place.tp_size) * inner + rank % inner
        stride = stride // place.tp_size if stride >= inner * place.tp_size else stride
    size = stages[0].group_size
    own = place.dp_size < place.world_size // place.tp_size
    return replace(
        place,
        pp=stages[0].group_rank,
        pp_size=size,
        vpp_size=stages[0].num_stages // size,
        # What the model itself says of its replicas stands.
        dp=place.dp if own else rank // (stride * size) * stride + rank % stride,
        dp_size=place.dp_size if own else max(place.world_size // place.tp_size // size, 1),
    )


def stages_here(roots: Sequence[nn.Module]) -> list[Any]:
    """Return the stages of this process that hold the model, or are held by it, in their order."""
    module = sys.modules.get("torch.distributed.pipelining.stage")
    kind = getattr(module, "_PipelineStageBase", None)
    if kind is None:
        return []
    own = {id(each) for root in roots for each in root.modules()}
    found = [each for each in gc.get_objects() if issubclass(type(each), kind)]
    roots_of = {id(root) for root in roots}
    return sorted(
        (
            stage
            for stage in found
            if id(stage.submod) in own or any(id(each) in roots_of for each in stage.submod.modules())
        ),
        key=lambda stage: int(stage.stage_index),
    )


def in_pipeline(points: ModelPoints) -> ModelPoints:
    """Return the points of a stage with layers numbered over all stages, as the other processes say.

    Where they do not say, or a process has several stages, no layer has a number, and flags have the reason.
    """
    place = points.place
    if place.pp_size < 2 or points.numbered:
        return points
    flags = points.flags
    if place.vpp_size > 1:
        return _without_numbers(
            points, f"This process has {place.vpp_size} stages of a pipeline of plain modules."
        )
    told = _told_by_all(
        place,
        {"model": dict(points.model), "flags": [name for name, flag in flags.items() if flag.layers]},
    )
    if told is None:
        return _without_numbers(
            points,
            f"This is stage {place.pp} of {place.pp_size} of a pipeline, and how many layers the others have "
            f"was not said within {_SECONDS:.0f} s: call megalens.trace in every process at the same place.",
        )
    first = sum(int(each["model"]["layers"]) for each in told[: place.pp])
    elsewhere = {name for each in told for name in each["flags"]}
    described: dict[str, Any] = {}
    for each in reversed(told):
        described |= {name: value for name, value in each["model"].items() if value}
    for name in {"layers", "parameters"} & described.keys():
        described[name] = sum(int(each["model"].get(name) or 0) for each in told)
    return replace(
        points,
        model=cast(Model, described),
        flags={
            name: replace(
                flag,
                layers=_moved(flag.layers, first),
                reasons=_moved(flag.reasons, first),
                evidence=_moved(flag.evidence, first),
                reason=None if name in elsewhere else flag.reason,
            )
            for name, flag in flags.items()
        },
        sites={name: replace(site, layers=_moved(site.layers, first)) for name, site in points.sites.items()},
        numbered=True,
    )


def _moved(layers: Mapping[int, _T], first: int) -> dict[int, _T]:
    """Return what is by layer with the numbers of the whole model; the embedding's −1 stays."""
    return {number + first if number >= 0 else number: each for number, each in layers.items()}


def _without_numbers(points: ModelPoints, why: str) -> ModelPoints:
    reason = f"{why} Which layers of the whole model these are is not known."
    flags = {
        name: FlagPoints(reason=reason) if any(number >= 0 for number in flag.layers) else flag
        for name, flag in points.flags.items()
    }
    return replace(points, flags=flags, sites={}, watch=None, numbered=True)


def _told_by_all(place: RankCoordinates, own: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Return what each stage of this replica says of itself; None where one says nothing in time."""
    store = Rendezvous.of_job()
    if store is None:
        return None
    prefix = f"stage/{place.dp}/{place.tp}"
    store.tell(f"{prefix}/{place.pp}", json.dumps(own))
    end = time.monotonic() + _SECONDS
    told: list[dict[str, Any]] = []
    while len(told) < place.pp_size:
        said = store.ask(f"{prefix}/{len(told)}")
        if said is not None:
            told.append(json.loads(said))
        elif time.monotonic() > end:
            return None
        else:
            time.sleep(_EVERY)
    return told
