"""What each process of a split training does in the tests."""

from __future__ import annotations

from typing import Any

import torch
from split_models import Case, Stage, data, loss_fn, made_optimizer, ordinary, part_of
from torch import distributed
from torch.distributed.pipelining import PipelineStage

from megalens.instruments.pipeline.split import SplitLayout, SplitPlace, SplitTraining


def made(rank: int, case: Case, **options: Any) -> SplitTraining:
    layout = SplitLayout.of(**case.degrees)
    here = layout.place(rank)

    def stage_of(place: SplitPlace) -> Stage:
        return Stage(place.stage, case.dtype, case.dropout, place.tensor, place.tensor_size, place.group)

    stage: Any = stage_of
    if case.kind != "plain" or case.tensor == 1:
        stage = stage_of(here)
    if case.kind == "stage":
        beside = [each.rank for each in layout.processes if each.role == here.role]
        group = distributed.new_group(beside, use_local_synchronization=True)
        stage = PipelineStage(stage, here.stage, here.stages, torch.device("cpu"), group=group)
    options = {"timeout": 60.0, "check_every": 10, "seed": 7, **case.options, **options}
    return SplitTraining(stage, layout=layout, loss_fn=loss_fn, optimizer=made_optimizer(case), **options)


def stepped(training: SplitTraining, case: Case, call: int, update: bool = True) -> float | None:
    here = training.place
    x, target = data(case, call, here.replica)
    loss = training.step(*((x,) if here.first else ()), target=target if here.last else None, update=update)
    assert (loss is not None) == here.last
    return None if loss is None else loss.item()


def worst(training: SplitTraining, case: Case, losses: list[Any], wanted: Any) -> float:
    """The largest difference of a weight or loss from ordinary training."""
    here = training.place
    off = 0.0
    for name, each in training.module.named_parameters():
        whole = wanted[1][here.stage][name].detach()
        mine = part_of(name, whole, here.tensor, here.tensor_size)
        off = max(off, (each.detach().double() - mine.double()).abs().max().item())
    if here.last:
        assert len(losses) == len(wanted[0])
        for mine, each in zip(losses, wanted[0], strict=True):
            off = max(off, abs(mine - each[here.replica]))
    assert training.module.seen == len(losses) * case.micro_batches
    return off


def trainings(rank: int, cases: list[Case]) -> list[float]:
    """By case the largest difference from ordinary training."""
    found = []
    for case in cases:
        with made(rank, case) as training:
            losses = [
                stepped(training, case, call, update=call % case.calls == case.calls - 1)
                for call in range(case.steps * case.calls)
            ]
            found.append(worst(training, case, losses, ordinary(case)))
    return found
