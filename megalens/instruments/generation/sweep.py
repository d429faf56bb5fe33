"""One perturbation with other settings, one after another: which points a request means, and how the text goes on under each."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...protocol import PERTURBATIONS
from ...protocol.generation import GenerationRequest
from ...protocol.messages_generated import Perturb
from ...tracer.perturb import PerturbPlan, install_perturbations, perturb_plan
from ...tracer.points import ModelPoints
from .decoding import Decoding
from .errors import GenerationError

__all__ = ["PassClock", "SweepPoint", "first_differences", "generation_perturb", "perturbed", "sweep_points"]


# A perturbation that is on for some passes outside of every step: armed and disarmed here, carried out as
# every other.
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


class SweepPoint(NamedTuple):
    """One setting of a sweep.

    Attributes
    ----------
    setting : str
        What is set, as people wrote it.
    value : float
        The same as a number; NaN where it is none.
    perturb : dict
        The ``Perturb`` object.
    """

    setting: str
    value: float
    perturb: Perturb


def sweep_points(request: GenerationRequest) -> list[SweepPoint]:
    """Return the points of a request's sweep, in its order; none where nothing is swept. Whether the model can do them is not checked."""
    sweep, perturb = request.sweep, request.perturb
    if sweep is None or perturb is None:
        return []
    (name,) = perturb["sites"]
    points = []
    for value in sweep["values"]:
        changed: Any = copy.deepcopy(perturb)
        site = changed["sites"].pop(name)
        if sweep["over"] == "coefficient":
            kind = PERTURBATIONS.get(site["kind"]["name"])
            member = "rate" if kind is not None and "coefficient" not in kind.properties else "coefficient"
            site["kind"]["params"] = {**site["kind"].get("params", {}), member: value}
        elif sweep["over"] == "layers":
            site["layers"] = value
        changed["sites"][value if sweep["over"] == "site" else name] = site
        number = _number(value)
        points.append(SweepPoint(value if isinstance(value, str) else f"{number:g}", number, changed))
    return points


def first_differences(
    write: Callable[[Callable[[], bool]], Decoding],
    prompts: Sequence[Sequence[int]],
    clean: Sequence[Sequence[int]],
    ends: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Write until every text differs from the clean one, and return the first position at which each does; -1 where it does not.

    Parameters
    ----------
    write : callable
        Begins to write with the seed of the clean text; takes whether to write nothing more.
    prompts : sequence of list of int
        Token ids of each sequence's prompt.
    clean : sequence of list of int
        Prompt and clean text of each sequence.
    ends : callable
        Whether to stop before.
    """
    found = [-1] * len(clean)
    at = [len(prompt) for prompt in prompts]

    def over() -> bool:
        return ends() or -1 not in found

    try:
        for done in write(over):
            tokens = [] if done.tokens is None else done.tokens.tolist()
            for row, token in enumerate(tokens):
                if done.wrote[row] and found[row] < 0:
                    if at[row] >= len(clean[row]) or clean[row][at[row]] != token:
                        found[row] = at[row]
                    at[row] += 1
            if over():
                return found
    except GenerationError:
        # Logits that are no numbers end the text at its next position.
        return [position if first < 0 else first for first, position in zip(found, at, strict=True)]
    # Where the clean text goes on, it differs there.
    lengths = map(len, clean)
    return [
        position if first < 0 and position < length else first
        for first, position, length in zip(found, at, lengths, strict=True)
    ]


def _number(value: float | str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf
