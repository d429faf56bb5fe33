"""A perturbation that is on for some passes outside of every step: armed and disarmed here, carried out as every other."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...protocol.messages_generated import Perturb
from ...tracer.perturb import PerturbPlan, install_perturbations, perturb_plan
from ...tracer.points import ModelPoints

__all__ = ["PassClock", "generation_perturb", "perturbed"]


@dataclass
class PassClock:
    """What the random numbers of a perturbation depend on, besides its seed: the number of the pass in its generation, so that the same request draws the same ones."""

    step: int = 0
    phase: str = "generate"
    micro_batch: int = 0

    def count(self, reading: object = None) -> None:
        """Count a pass that is about to begin."""
        self.micro_batch += 1


def generation_perturb(setting: Perturb, points: ModelPoints, folders: Sequence[Path]) -> PerturbPlan:
    """Return the plan of what is asked for a generation: it lasts as long as that, whatever its phases say.

    Raises
    ------
    ProtocolError
        As :func:`megalens.tracer.perturb.perturb_plan`, with a field below ``perturb``.
    """
    asked = copy.deepcopy(setting)
    for site in asked["sites"].values():
        site["phases"] = ["generate"]
    return perturb_plan(asked, points, folders)


@contextlib.contextmanager
def perturbed(points: ModelPoints, plan: PerturbPlan, warn: Callable[[str], None]) -> Iterator[PassClock]:
    """Perturb the passes inside; afterwards the model is as before, bit by bit.

    Parameters
    ----------
    points : ModelPoints
        The model that the plan was made for.
    plan : PerturbPlan
        What is done.
    warn : callable
        Takes a sentence about what could not be perturbed.

    Yields
    ------
    PassClock
        Whoever runs passes counts them in it.
    """
    clock = PassClock()
    installed = install_perturbations(points, plan, clock, warn)
    try:
        yield clock
    finally:
        installed()
