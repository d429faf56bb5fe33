"""What each process of a test of the monitor does."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.instruments.monitor.actions import TrainingStopped

__all__ = ["apart", "changed", "spoilt", "stopped"]


def _model() -> GPT:
    torch.manual_seed(0)
    return GPT(GPTConfig(vocabulary=51, layers=2, hidden=16, heads=2, sequence=16))


def _replica(model: GPT) -> tuple[DistributedDataParallel, torch.optim.Optimizer]:
    replica = DistributedDataParallel(model)
    return replica, torch.optim.AdamW(replica.parameters(), 1e-3)


def _train(replica: DistributedDataParallel, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    ids = torch.randint(0, 51, (2, 12), generator=torch.Generator().manual_seed(10 * step + rank))
    logits = replica(ids)
    nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()


def apart(rank: int, at: int, who: int) -> list[tuple[Any, ...]]:
    """Train replicas, one of which changes a weight by itself after a step; what rank 0's monitor names."""
    model = _model()
    replica, optimizer = _replica(model)
    with megalens.monitor(replica, optimizer, hub=None) as monitor:
        for step in range(1, at + 3):
            with monitor.step():
                _train(replica, optimizer, rank, step)
                if step == at and rank == who:
                    with torch.no_grad():
                        model.blocks[1].mlp.fc1.weight[0, 0] += 1e-3
    return [(a.step, a.rank, a.rule, a.severity, a.name) for a in monitor.alarms]


def spoilt(rank: int, at: int, who: int) -> list[tuple[Any, ...]]:
    """Train replicas, one of which computes an infinity in a step; what rank 0's monitor names."""
    model = _model()

    def spoil(module: nn.Module, given: Any, output: torch.Tensor) -> torch.Tensor:
        if step == at and rank == who:
            output = output.clone()
            output[0, 0, 0] = float("inf")
        return output

    step = 0
    # Before the monitor's own hook, as a module that computes wrongly.
    model.blocks[1].mlp.fc1.register_forward_hook(spoil)
    replica, optimizer = _replica(model)
    with megalens.monitor(replica, optimizer, activation=1, hub=None) as monitor:
        for step in range(1, at + 3):
            with monitor.step():
                _train(replica, optimizer, rank, step)
    return [(a.step, a.rank, a.rule, a.direction, a.name) for a in monitor.alarms]


def stopped(rank: int, at: int) -> tuple[int, str]:
    """Train replicas that a NaN on rank 1 is to end. The last step of each process, and what it says of it."""
    replica, optimizer = _replica(_model())
    step = 0
    with megalens.monitor(replica, optimizer, hub=None, actions={"stop": True}) as monitor:
        try:
            for step in range(1, 400):
                with monitor.step():
                    _train(replica, optimizer, rank, step)
                    if step == at and rank == 1:
                        with torch.no_grad():
                            replica.module.blocks[1].mlp.fc1.weight[0, 0] = float("nan")
                time.sleep(0.02)
        except TrainingStopped as error:
            return step, str(error)
    return step, ""


def changed(rank: int, at: int) -> list[int]:
    """Train replicas; rank 0 has gradients measured no more from a step on. The steps of which each process measured them, with what rank 0 says of the job."""
    replica, optimizer = _replica(_model())
    measured: list[int] = []
    with megalens.monitor(
        replica, optimizer, hub=None, rules={"rules": {"missing": {"on": True}}}
    ) as monitor:
        schedule = monitor.tracer._coordinator.schedule
        for step in range(1, 40):
            held = schedule.untraced_steps
            with monitor.step():
                # A rank that has not heard yet what was decided traces nothing that others do not.
                if "grad" in monitor.statistics.intervals.due(step) and schedule.untraced_steps == held:
                    measured.append(step)
                _train(replica, optimizer, rank, step)
            if step == at and rank == 0:
                monitor.tracer.configure({"flags": {}, "instruments": {"moments": {"every": {"grad": 0}}}})
            time.sleep(0.02)
    assert not monitor.alarms, monitor.alarms
    return measured
