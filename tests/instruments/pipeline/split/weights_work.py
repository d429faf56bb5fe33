"""What becomes of weights: only what changed is sent, and what differs is found."""

from __future__ import annotations

from typing import Any

import torch
from split_models import HIDDEN, WIDTH, Case, Stage, data, loss_fn, made_optimizer
from split_work import made, stepped
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from megalens.instruments.pipeline.split import SplitError, SplitLayout, SplitPlace, SplitTraining
from megalens.instruments.pipeline.stages.link import Link

TRAINED = 4 * (2 * HIDDEN * WIDTH + HIDDEN + WIDTH + 1)
"""Bytes of a stage's weights in float32, of those that the optimizer changes."""


def counted(rank: int) -> list[list[int]]:
    """Of each update of a pipeline the bytes that are said to have moved, and those that were sent."""
    case = Case(pipeline=2)
    sent = [0]
    send = Link.send

    def counting(link: Link, key: Any, tensors: Any, headers: bool) -> Any:
        if key[0] == "S" and key[1] > 0:
            sent[0] += sum(each.numel() * each.element_size() for each in tensors)
        return send(link, key, tensors, headers)

    Link.send = counting  # type: ignore[method-assign]
    found = []
    try:
        with made(rank, case, check_every=0) as training:
            found.append([training.moved_bytes, sent[0]])
            for call in range(4):
                sent[0] = 0
                if call == 2:
                    # A weight that is no longer trained, and one that somebody writes to.
                    training.module.up.requires_grad_(False)
                    training.module.up.grad = None
                if call == 3 and training.place.role == "backward":
                    with torch.no_grad():
                        training.module.still += 1
                stepped(training, case, call)
                found.append([training.moved_bytes, sent[0]])
            training.check()
    finally:
        Link.send = send  # type: ignore[method-assign]
    return found


def tampered(rank: int, which: int) -> list[Any]:
    """A weight is changed behind the training's back in one process; what each is told."""
    case = Case(pipeline=2)
    training = made(rank, case, check_every=3)
    said: list[Any] = []
    try:
        for call in range(9):
            if call == 6 and rank < 2:
                # The other stage has gone on no more since the end of the call before.
                training._mail._timeout = 1.0
            if call == 6 and rank == 1:
                # Gloo closes the connections of who waited too long, so that each does by itself.
                distributed.barrier()
            if call == 4 and rank == which:
                training.module.still.data[1] += 1e-6
            stepped(training, case, call)
    except SplitError as error:
        said = [error.code, error.field, error.stage, error.role, training.updates, str(error)]
        try:
            stepped(training, case, 9)
        except SplitError as again:
            said.append(str(again))
    if rank != 1:
        distributed.barrier()
    # Whose links are closed is lost, and not waited for: nobody goes before all were told.
    distributed.barrier()
    training.close()
    return said


class _Other(nn.Module):
    def __init__(self, rows: int, name: str = "weight") -> None:
        super().__init__()
        setattr(self, name, nn.Parameter(torch.zeros(rows, 2)))


def unlike(rank: int) -> list[list[Any]]:
    """Stages of which forward and backward process have other weights."""
    role = SplitLayout.of().place(rank).role
    found = []
    for forward, backward in (
        (_Other(3), _Other(4)),
        (_Other(3), _Other(3, "bias")),
        (_Other(3).double(), _Other(3)),
    ):
        stage = forward if role == "forward" else backward
        try:
            SplitTraining(
                stage, loss_fn=loss_fn, optimizer=made_optimizer(Case()), micro_batches=1, timeout=20
            )
        except SplitError as error:
            found.append([error.code, error.field, str(error)])
    return found


def indivisible(rank: int) -> list[Any]:
    """Tensor-parallel weights of which a forward process does not have all parts, or that are cut in stripes."""
    layout = SplitLayout.of(2, forward_tensor=1)

    def stage_of(place: SplitPlace, stride: int = 1) -> nn.Module:
        made = _Other(3 if place.role == "backward" else 5)
        if place.role == "backward":
            made.weight.tensor_model_parallel = True
            made.weight.partition_dim = 0
            made.weight.partition_stride = stride
        return made

    try:
        SplitTraining(
            stage_of,
            layout=layout,
            loss_fn=loss_fn,
            optimizer=made_optimizer(Case()),
            micro_batches=1,
            timeout=20,
        )
    except SplitError as error:
        return [error.code, error.field, str(error)]
    return []


class Plain(nn.Module):
    """As the stage of other tests, of layers that torch can cut."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        like = Stage(stage, torch.float64)
        self.first = nn.Linear(WIDTH, HIDDEN, dtype=torch.float64)
        self.second = nn.Linear(HIDDEN, WIDTH, dtype=torch.float64)
        with torch.no_grad():
            for into, value in (
                (self.first.weight, like.up),
                (self.first.bias, like.bias),
                (self.second.weight, like.down),
                (self.second.bias, like.rest),
            ):
                into.copy_(value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + self.second(torch.tanh(self.first(x))))


def dtensors(rank: int, folder: str) -> list[float]:
    """A stage that torch cuts by DTensors in its backward processes, and whole in its forward process; worst weights before a checkpoint and after it was read."""
    case = Case(tensor=2, forward_tensor=1, dtype=torch.float64, clip=0.5, steps=10)
    layout = SplitLayout.of(**case.degrees)

    def stage_of(place: SplitPlace) -> nn.Module:
        stage = Plain(place.stage)
        if place.group is not None:
            mesh = DeviceMesh.from_group(place.group, "cpu")
            parallelize_module(stage, mesh, {"first": ColwiseParallel(), "second": RowwiseParallel()})
        return stage

    def begun() -> SplitTraining:
        return SplitTraining(
            stage_of,
            layout=layout,
            loss_fn=loss_fn,
            optimizer=made_optimizer(case),
            micro_batches=case.micro_batches,
            clip=case.clip,
            check_every=1,
            timeout=20,
        )

    whole = Plain(0)
    optimizer = made_optimizer(case)(list(whole.parameters()))
    wanted, found = [], []
    for call in range(10):
        x, target = data(case, call, 0)
        loss_fn(whole(x), target).backward()
        nn.utils.clip_grad_norm_(whole.parameters(), case.clip)
        optimizer.step()
        optimizer.zero_grad()
        wanted.append({name: each.detach().clone() for name, each in whole.named_parameters()})

    def off(training: SplitTraining, call: int) -> float:
        differences = []
        for name, each in training.module.named_parameters():
            held = each.full_tensor() if hasattr(each, "full_tensor") else each
            differences.append((held - wanted[call][name]).abs().max().item())
        return max(differences)

    training = begun()
    for call in range(5):
        stepped(training, case, call)
    found.append(off(training, 4))
    training.save(folder)
    training.close()
    training = begun()
    training.load(folder)
    for call in range(5, 10):
        stepped(training, case, call)
    found.append(off(training, 9))
    training.close()
    return found
