"""How often each statistic is logged.

What the first forward pass shows of where statistics are measured: what its step has wrong, and lacks.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ...protocol import CAST_STATS, is_whole, must_be, no_such
from ..errors import TracerError
from .hooks.backward_end import UNREDUCED
from .part import MeasuredRows, NameList
from .points import MomentPoints

SEEN = ("attention_entropy", "attention_max", "router_entropy")
"""What is made of what modules give."""

STATE = ("exp_avg", "exp_avg_sq")
"""What Adam and its like keep of each parameter."""

JUDGED = frozenset(("param_origin", "gradient_direction", "communication", "inputs", *STATE, *UNREDUCED))
"""What is measured to be judged, and not sent."""

_EVERY = "instruments.moments.every"


def _titled(title: str) -> int:
    """Return a field that is 0, off, by default."""
    made: int = field(default=0, metadata={"title": title})
    return made


@dataclass(frozen=True)
class Intervals:
    """Every how many steps each statistic is logged: at every step whose number it divides; 0 is off.

    Attributes
    ----------
    exp_avg, exp_avg_sq : int
        The optimizer's state, which is judged and not sent.
    param_origin, gradient_direction : int
        Parameters before the step, and how far gradients point where the optimizer goes.
    communication : int
        What collectives are given and give.
    inputs : int
        A number of what the model is given, by which data that come again are known.
    precision : int
        What casts to fewer bits lose: the statistics :data:`~megalens.protocol.CAST_STATS`.
    grad_unreduced, grad_accumulated : int
        Each process's own gradients: those of the last micro-batch, and after each.
    """

    param: int = _titled("Parameters")
    grad: int = _titled("Gradients")
    activation: int = _titled("Activations")
    dgrad: int = _titled("Activation gradients")
    residual: int = _titled("Residual stream")
    residual_dgrad: int = _titled("Residual stream gradients")
    attention_entropy: int = _titled("Attention entropy")
    attention_max: int = _titled("Largest attention")
    router_entropy: int = _titled("Router entropy")
    router_similarity: int = _titled("Router similarity")
    stable_rank: int = _titled("Stable ranks")
    kernel_norm: int = _titled("Kernel norms")
    precision: int = _titled("Casts to fewer bits")
    exp_avg: int = _titled("Optimizer, mean")
    exp_avg_sq: int = _titled("Optimizer, square")
    grad_unreduced: int = _titled("Gradients before reduction")
    grad_accumulated: int = _titled("Gradients after each micro-batch")
    param_origin: int = _titled("Parameters before the step")
    gradient_direction: int = _titled("Gradients along the optimizer's mean")
    communication: int = _titled("Communication")
    inputs: int = _titled("Numbers of what the model is given")

    @classmethod
    def of(cls, **steps: int | None) -> Intervals:
        """Return checked intervals; None and numbers below 1 are off. Raises ``TracerError``."""
        known = {field.name for field in fields(cls)}
        for stat, every in steps.items():
            if stat not in known:
                raise TracerError(f"A statistic must be one of {', '.join(sorted(known))}, got {stat!r:.50}.")
            if every is not None and not is_whole(every, -sys.maxsize):
                raise TracerError(f"{stat}=… must be a number of steps, 0 for off, got {every!r:.50}.")
        return cls(**{stat: max(0, int(every or 0)) for stat, every in steps.items()})

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any], stats: Collection[str]) -> Intervals:
        """Return what a settings object says, ``{"every": {"grad": 1}}``, of the statistics known here.

        Raises ``ProtocolError`` (``bad-parameter``) with the field at fault.
        """
        for key in settings:
            if key != "every":
                raise no_such("setting", key, ("every",), f"instruments.moments.{key}", "bad-parameter")
        every = settings.get("every", {})
        if not isinstance(every, Mapping):
            raise must_be("every", "an object", every, _EVERY)
        for stat, steps in every.items():
            if stat not in stats:
                raise no_such("statistic", stat, stats, f"{_EVERY}.{stat}", "bad-parameter")
            if not is_whole(steps):
                raise must_be(stat, "a whole number of steps, 0 for off", steps, f"{_EVERY}.{stat}")
        return cls(**every)

    @classmethod
    def sent(cls, **steps: int) -> Intervals:
        """Return which of what is measured is sent, by statistic; what is not named at every step."""
        always = {each.name: 1 for each in fields(cls) if each.name not in JUDGED}
        return cls.of(**{**always, **steps})

    @staticmethod
    def schema(stats: Collection[str]) -> dict[str, Any]:
        every = {
            each.name: {"type": "integer", "minimum": 0, "default": 0, **each.metadata}
            for each in fields(Intervals)
            if each.name in stats
        }
        return {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "every": {
                    "type": "object",
                    "title": "Every how many steps",
                    "description": "At every step whose number it divides; 0 is off.",
                    "additionalProperties": False,
                    "properties": every,
                }
            },
        }

    def due(self, step: int) -> frozenset[str]:
        """Return the statistics that are logged at ``step``."""
        due = frozenset(stat for stat, every in self.on().items() if step % every == 0)
        return due | frozenset(CAST_STATS) if "precision" in due else due

    def to_message(self) -> dict[str, int]:
        """Return the ``Statistics`` object of messages: what is on."""
        return {stat: every for stat, every in self.on().items() if stat not in JUDGED}

    def on(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self) if getattr(self, field.name)}

    def __bool__(self) -> bool:
        return bool(self.on())


_RESIDUALS = ("residual", "residual_dgrad")
_FEATURES = (*SEEN, "router_similarity")
OF_POINTS = (*_RESIDUALS, *_FEATURES)
"""What is measured where the trace points of the model say, which its first forward pass may correct."""
_OF_FEATURES = ("QKV_mat_mul", "RawAttentionScore_mat_mul", "AttentionOutput_mat_mul", "RouterProbabilities")


@dataclass(frozen=True)
class Moved:
    """By statistic, names of what a step measured elsewhere than it is; None for all of it."""

    wrong: Mapping[str, Collection[str] | None] = field(default_factory=dict)

    def leave_out(self, parts: dict[str, MeasuredRows], names: NameList) -> None:
        """Take out of what a step has measured whatever is wrong."""
        for stat, wrong in self.wrong.items():
            if wrong is None:
                parts.pop(stat, None)
            elif wrong and stat in parts:
                parts[stat].leave_out({names.index(name) for name in wrong})


def moved(
    before: MomentPoints, now: MomentPoints, places: Collection[tuple[str, int]], due: Collection[str]
) -> tuple[Moved, str]:
    """Return what has moved, and which of the statistics ``due`` begin later for it, in words or empty.

    ``places`` are flags and layers that the pass showed elsewhere than was supposed.
    """
    wrong = {each.name for each in before.residuals if each not in now.residuals}
    late = [each.name for each in now.residuals if each not in before.residuals]
    of: dict[str, Collection[str] | None] = dict.fromkeys(_RESIDUALS, wrong)
    stats = [stat for stat in _RESIDUALS if late]
    if any(name in _OF_FEATURES for name, _ in places):
        of |= dict.fromkeys(_FEATURES)
        there = {each.stat for each in now.features}
        stats += [stat for stat in _FEATURES if stat in there]
    more = f" and {len(late) - 3} more" if len(late) > 3 else ""
    where = f" ({', '.join(late[:3])}{more})" if late else ""
    named = ", ".join(stat + where * (stat in _RESIDUALS) for stat in stats if stat in due)
    return Moved(of), named
