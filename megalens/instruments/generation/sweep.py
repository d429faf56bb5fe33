"""One perturbation with several settings: the points of a request, and the text under each."""

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


# A perturbation that is on for some passes outside of every step: armed and disarmed here, carried out as
# every other.
@dataclass
class PassClock:
    """The pass number that seeds a perturbation, so that the same request draws the same random numbers."""

    step: int = 0
    phase: str = "generate"
    micro_batch: int = 0

    def count(self, reading: object = None) -> None:
        """Count a pass that is about to begin."""
        self.micro_batch += 1


def generation_perturb(setting: Perturb, points: ModelPoints, folders: Sequence[Path]) -> PerturbPlan:
    """Return the plan of a generation's perturbation, which lasts as long as that, whatever its phases.

    Raises ``ProtocolError`` as :func:`megalens.tracer.perturb.perturb_plan`, with a field below ``perturb``.
    """
    asked = copy.deepcopy(setting)
    for site in asked["sites"].values():
        site["phases"] = ["generate"]
    return perturb_plan(asked, points, folders)


@contextlib.contextmanager
def perturbed(points: ModelPoints, plan: PerturbPlan, warn: Callable[[str], None]) -> Iterator[PassClock]:
    """Perturb the passes inside; afterwards the model is as before, bit by bit.

    ``warn`` takes a sentence about what could not be perturbed. Yields the clock on which passes are to be
    counted.
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
    """Return the points of a request's sweep in order, not checked against the model."""
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
    write: Callable[..., Decoding],
    prompts: Sequence[Sequence[int]],
    clean: Sequence[Sequence[int]],
    ends: Callable[[], bool] = lambda: False,
) -> list[int]:
    """Write until every text differs from the clean one; return each first different position, or -1.

    ``write`` starts with the seed of the clean text and takes ``ends``, whether to write nothing more;
    ``ends`` is whether to stop before.
    """
    found = [-1] * len(clean)
    at = [len(prompt) for prompt in prompts]

    def over() -> bool:
        return ends() or -1 not in found

    try:
        for done in write(ends=over):
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
    # Where the clean text continues, it differs there.
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
