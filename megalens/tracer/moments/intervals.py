"""How often each statistic is logged."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from ...protocol import is_whole
from ..errors import TracerError
from .hooks.own_gradients import UNREDUCED

__all__ = ["BEFORE", "JUDGED", "SEEN", "STATE", "Intervals"]

SEEN = ("attention_entropy", "attention_max", "router_entropy")
"""What is made of what modules give."""

BEFORE = ("stable_rank", "kernel_norm", "router_similarity")
"""What is made of parameters, before the step."""

STATE = ("exp_avg", "exp_avg_sq")
"""What Adam and its like keep of each parameter."""

JUDGED = frozenset((*STATE, *UNREDUCED))
"""What is measured to be judged, and not sent."""


@dataclass(frozen=True)
class Intervals:
    """Every how many steps each statistic is logged: at every step whose number it divides; 0 is off.

    Attributes
    ----------
    param, grad, activation, dgrad, residual, residual_dgrad : int
        Steps.
    exp_avg, exp_avg_sq : int
        Steps at which the optimizer's state is measured to be judged; it is not sent.
    grad_unreduced, grad_accumulated : int
        Steps at which each process's own gradients are: those of the last micro-batch, and after each.
    """

    param: int = 0
    grad: int = 0
    activation: int = 0
    dgrad: int = 0
    residual: int = 0
    residual_dgrad: int = 0
    attention_entropy: int = 0
    attention_max: int = 0
    router_entropy: int = 0
    router_similarity: int = 0
    stable_rank: int = 0
    kernel_norm: int = 0
    exp_avg: int = 0
    exp_avg_sq: int = 0
    grad_unreduced: int = 0
    grad_accumulated: int = 0

    @classmethod
    def of(cls, **steps: int | None) -> Intervals:
        """Return checked intervals; None and numbers below 1 are off.

        Raises
        ------
        TracerError
            When one is no whole number, naming it.
        """
        known = {field.name for field in fields(cls)}
        for stat, every in steps.items():
            if stat not in known:
                raise TracerError(f"A statistic must be one of {', '.join(sorted(known))}, got {stat!r:.50}.")
            if every is not None and not is_whole(every, -sys.maxsize):
                raise TracerError(f"{stat}=… must be a number of steps, 0 for off, got {every!r:.50}.")
        return cls(**{stat: max(0, int(every or 0)) for stat, every in steps.items()})

    def due(self, step: int) -> frozenset[str]:
        """Return the statistics that are logged at ``step``."""
        return frozenset(stat for stat, every in self.on().items() if step % every == 0)

    def to_message(self) -> dict[str, int]:
        """Return the ``Statistics`` object of messages: what is on."""
        return {stat: every for stat, every in self.on().items() if stat not in JUDGED}

    def on(self) -> dict[str, int]:
        """Return what is on, by statistic."""
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}

    def __bool__(self) -> bool:
        return bool(self.on())
