"""Processes of a split training that die, stand still, wait, are saved and go on."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
from split_models import Case
from split_work import made, stepped
from strikes import strike_in, told_and_ended
from torch import Tensor

from megalens.instruments.pipeline.split import SplitError, SplitTraining


def stricken(rank: int, which: int, strike: str, timeout: float, folder: str) -> None:
    """One process dies, or stops, in its second step; the others write what they are told, and end."""
    case = Case(pipeline=2)
    training = made(rank, case, timeout=timeout)
    stepped(training, case, 0)
    if rank == which:
        strike_in(training.module, strike, folder)

    def on() -> None:
        # Who does not need the one that is gone ends its step, and hears of it in the next.
        for call in range(1, 9):
            stepped(training, case, call)

    frees = rank == (which + 1) % 4 and strike == "stop"
    told_and_ended(rank, folder, on, lambda: stepped(training, case, 1), 3 if frees else 0)


def broken_model(rank: int) -> list[Any]:
    """The second stage cannot take what the first gives, in its second micro-batch."""
    case = Case(pipeline=2)
    training = made(rank, case, timeout=8.0)
    if training.place.last:
        passes = iter(range(100))

        def break_now(*_: Any) -> None:
            if next(passes) == 1:
                raise ValueError("out of paper")

        training.module.register_forward_pre_hook(break_now)
    try:
        stepped(training, case, 0)
    except SplitError as error:
        return [error.code, error.operation, error.micro_batch, str(error)]
    return []


def misused(rank: int) -> list[list[Any]]:
    """Steps that are not right, after which the training goes on."""
    case = Case(pipeline=2)
    found = []
    with made(rank, case) as training:
        x = torch.zeros(8, 6)
        here = training.place
        wrong: list[tuple[tuple[Any, ...], Any]] = [((x,) if not here.first else (), torch.zeros(8))]
        if here.first:
            wrong.append(((torch.zeros(7, 6),), None))
        if here.last and here.role == "backward":
            wrong.append(((), None))
        for args, target in wrong:
            try:
                training.step(*args, target=target)
            except SplitError as error:
                found.append([error.code, error.field, str(error)])
        stepped(training, case, 0)
        stepped(training, case, 1, update=False)
        try:
            training.save("nowhere")
        except SplitError as error:
            found.append([error.code, error.field, str(error)])
        stepped(training, case, 2)
        assert (training.steps, training.updates) == (3, 2)
    training.close()
    try:
        stepped(training, case, 0)
    except SplitError as error:
        found.append([error.code, error.field, str(error)])
    return found


def waiting(rank: int) -> tuple[float, float]:
    """Seconds of a step in which the second backward process takes its time, and those in which this process computed."""
    case = Case(pipeline=2)
    with made(rank, case) as training:
        stepped(training, case, 0)
        if rank == 3:
            training.module.register_forward_hook(lambda *_: time.sleep(0.5))
        wall, own = time.monotonic(), time.process_time()
        stepped(training, case, 1)
        return time.monotonic() - wall, time.process_time() - own


def _held(training: SplitTraining) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in training.module.state_dict().items()}


def resumed(rank: int, case: Case, folder: str) -> bool:
    """Whether losses, weights and the optimizer's state are bit for bit those of a training that nobody stopped."""
    with made(rank, case) as training:
        through = [stepped(training, case, call) for call in range(6)]
        wanted = _held(training)
        state = None if training.optimizer is None else training.optimizer.state_dict()["state"]
    with made(rank, case) as training:
        parts = [stepped(training, case, call) for call in range(3)]
        training.save(folder)
    with made(rank, case) as training:
        with torch.no_grad():
            for each in training.module.parameters():
                each.add_(1)
        training.load(folder)
        assert (training.steps, training.updates) == (3, 3)
        parts += [stepped(training, case, call) for call in range(3, 6)]
        training.check()
        found = _held(training)
        same = parts == through
        # A forward process counts its own passes, which a checkpoint of backward processes does not hold back.
        same &= all(torch.equal(found[name], wanted[name]) for name in wanted)
        if training.optimizer is not None:
            own = training.optimizer.state_dict()["state"]
            same &= all(torch.equal(own[n][name], state[n][name]) for n in state for name in state[n])
            same &= len(state) > 0
    return same


def other_checkpoints(rank: int, folder: str) -> list[list[Any]]:
    """Checkpoints that are none, of another layout, or could not be written; the training goes on, and an older checkpoint stays whole."""
    found = []

    def told(work: Any) -> None:
        try:
            work()
        except SplitError as error:
            found.append([error.code, error.field, str(error)])

    case, wide = Case(pipeline=2), Case(tensor=2)
    with made(rank, case) as training:
        stepped(training, case, 0)
        told(lambda: training.load(folder))
        training.save(folder)
        kept = {path.name: path.read_bytes() for path in Path(folder).iterdir()}
        stepped(training, case, 1)
        save = torch.save
        if rank == 3:
            torch.save = _failing
        told(lambda: training.save(folder))
        torch.save = save
        assert {name: (Path(folder) / name).read_bytes() for name in kept} == kept
        stepped(training, case, 2)
        # A file that one process cannot read, which it alone sees.
        here = _held(training)
        load = torch.load
        if rank == 3:
            torch.load = _cut_short
        told(lambda: training.load(folder))
        torch.load = load
        assert all(torch.equal(each, here[name]) for name, each in _held(training).items())
        training.load(folder)
        assert training.steps == 1
        stepped(training, case, 1)
        training.save(folder)
        training.step(*_step_args(training, case), target=torch.zeros(8), update=True)
    with made(rank, wide) as training:
        told(lambda: training.load(folder))
        stepped(training, wide, 0)
    return found


def _step_args(training: SplitTraining, case: Case) -> tuple[Tensor, ...]:
    return (torch.zeros(8, 6),) if training.place.first else ()


def _cut_short(*_: Any, **__: Any) -> None:
    raise EOFError("Ran out of input")


def _failing(*_: Any) -> None:
    raise OSError("No space left on device")
