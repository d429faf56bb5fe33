"""Runs one training, for the processes that share the work."""

from __future__ import annotations

import sys
from typing import Any

import torch

from . import models, one_process, unseen
from .healthy import HEALTHY
from .judging import false_by_step
from .training import Fault, Training

__all__ = ["KINDS", "LOCAL", "false_alarms", "fault_alarms", "kind_alarms"]

LOCAL = (*one_process.FAULTS, *models.FAULTS)
"""Faults in trainings by one process."""
_LATER = 1000
KINDS = (*unseen.CHOSEN, *unseen.JUDGED)
"""Kinds of faults on other models: first those on which thresholds may be chosen."""


def fault_alarms(number: int) -> tuple[list[Any], list[int]]:
    """Return the alarms of a fault's training, and the steps in which the peer's rules reported anything."""
    return _alarms(LOCAL[number])


def kind_alarms(number: int) -> tuple[list[Any], list[int]]:
    """Return the same of one of :data:`KINDS`."""
    return _alarms(KINDS[number])


def _alarms(fault: Fault) -> tuple[list[Any], list[int]]:
    torch.set_num_threads(1)
    training = fault.training()
    alarms: list[Any] = []
    for alarms in training.run(fault):
        if training.step > fault.first + 2 and any(alarm.severity != "note" for alarm in alarms):
            break
    return alarms, sorted(training.peer.steps)


def false_alarms(number: int, steps: int, later: int = _LATER) -> tuple[int, int, list[str]]:
    """Return its steps, those in which the peer's rules reported anything, and our alarms, one a step.

    ``later`` is how far its seed is from that with which thresholds were chosen.
    """
    torch.set_num_threads(1)
    made = HEALTHY[number]
    training: Training = made(steps=steps, seed=made.keywords["seed"] + later)
    by_step: dict[int, str] = {}
    for alarms in training.run():
        by_step = false_by_step(f"healthy training {number + 1}", alarms) | by_step
    print(f"healthy training {number + 1} of {len(HEALTHY)}: {len(by_step)} false alarms", file=sys.stderr)
    return training.steps, len(training.peer.steps), list(by_step.values())
