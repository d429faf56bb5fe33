"""One cause, one alarm: which alarms follow from an earlier one, and so become notes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from .levels import MODULE_END
from .rule import Alarm

__all__ = ["Causes"]

_Kind = Literal["sudden", "gradual", "own"]

# What a rule finds in values may come of anything before it: at once, or by and by. All other findings are
# evidence of their own: an equation that does not hold, data that come again, a rate that left its course.
_SUDDEN = {
    *("jump rms", "jump max_abs", "jump update", "collapse rms", "dead rms", "overflow max_exponent"),
    *("nonfinite nan_count", "nonfinite inf_count", "loss value", "update_ratio ratio"),
    *("attention mean", "router mean", "router share"),
}
_GRADUAL = {"drift level", "loss level"}
# Evidence of its own that is of one tensor; any other is of everything, whatever tensor it names.
_OF_A_TENSOR = {"drift growth", "dead gradient", "dead update", "update_ratio update", "optimizer state"}
# Parts of a step in which each rank computes by itself.
_APART = {"parameters", "forward", "backward"}

_UP_TO_LAYER = re.compile(r".*?\.\d+(?![^.])")

# Steps after its last alarm in which a cause may have another, and steps after its first.
_OPEN, _LONGEST = 16, 32
# Steps in which what is sudden shows everywhere, and in which one finding spreads.
_SOON = 2
# Steps after the first level that moved in which others are found that moved with it.
_TOGETHER = 4
# How many steps before a level is found to have moved it did: a median of eight, beside the eight before.
_DATED = range(4, 13)


@dataclass
class _Cause:
    """What is known of a cause that may still have alarms."""

    number: int
    first: Alarm
    of_everything: bool
    last: int
    not_finite: bool = False
    dates: set[int] = field(default_factory=set)
    """Steps of those of its alarms that tell when something happened."""
    modules: set[str] = field(default_factory=set)
    layers: set[str] = field(default_factory=set)
    rules: set[tuple[str, int]] = field(default_factory=set)
    """Rules, and ranks, of its evidence that is of everything."""
    found: dict[tuple[str, int], int] = field(default_factory=dict)
    """When each finding last was, by rule and statistic, and rank."""
    now: set[int] = field(default_factory=set)
    """Ranks that it has reached in the step of :attr:`last`."""
    stages: set[int] = field(default_factory=set)


class Causes:
    """Tells which alarms are the first of their cause, and which follow.

    An alarm follows from an earlier one where the computation leads from that one to it: later in the same
    step, in a module that was reached, or, of a level that moved, at the time from which it dates. A finding
    that is evidence of its own follows only where it is of the same tensor, or the same finding. What is
    critical does not follow from what is not.
    """

    def __init__(self) -> None:
        self._open: list[_Cause] = []
        self._number = 0

    def take(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        """Return the alarms of a step, given in their order, each with the number of its cause; those that
        follow are notes.
        """
        return [alarm if alarm.severity == "note" else self._of(alarm) for alarm in alarms]

    def mute(self, muted: Callable[[Alarm], bool]) -> None:
        """Close the causes whose first alarm nobody is told of any more: what follows is told by itself."""
        self._open = [each for each in self._open if not muted(each.first)]

    def _of(self, alarm: Alarm) -> Alarm:
        key = f"{alarm.rule} {alarm.statistic}"
        kind: _Kind = "sudden" if key in _SUDDEN else "gradual" if key in _GRADUAL else "own"
        module = MODULE_END.sub("", alarm.name)
        if module == alarm.name:
            module = module.rpartition(".")[0] or module
        self._open = [
            each
            for each in self._open
            if alarm.step - each.last <= _OPEN and alarm.step - each.first.step <= _LONGEST
        ]
        # The newest that explains it.
        cause = next(
            (each for each in reversed(self._open) if _explains(each, alarm, key, kind, module)), None
        )
        follows = cause is not None
        if cause is None:
            # At least its step: numbers of a training that goes on from a checkpoint are others.
            self._number = max(self._number + 1, alarm.step)
            of_everything = alarm.name == "*" or alarm.stat in ("scalar", "inputs")
            of_everything |= kind == "own" and key not in _OF_A_TENSOR
            cause = _Cause(self._number, alarm, of_everything, alarm.step)
            self._open.append(cause)
        if cause.last != alarm.step:
            cause.last = alarm.step
            cause.now.clear()
            cause.stages.clear()
        cause.now.add(alarm.rank)
        cause.stages.add(alarm.stage)
        cause.modules.add(module)
        cause.layers.add(_layer(module))
        if kind == "own" and key not in _OF_A_TENSOR:
            cause.rules.add((alarm.rule, alarm.rank))
        cause.found[key, alarm.rank] = alarm.step
        if kind != "gradual":
            cause.dates.add(alarm.step)
        # What is not finite spreads to all that is computed, and a loss that stays elsewhere tells of all.
        cause.not_finite |= alarm.rule == "nonfinite"
        cause.of_everything |= cause.not_finite or (kind == "gradual" and alarm.stat == "scalar")
        return replace(alarm, cause=cause.number, severity="note" if follows else alarm.severity)


def _explains(cause: _Cause, alarm: Alarm, key: str, kind: _Kind, module: str) -> bool:
    if alarm.severity == "critical" and cause.first.severity != "critical":
        return False
    step = alarm.step
    same = step - cause.found.get((key, alarm.rank), -_OPEN) <= _SOON
    if kind == "own":
        # In a step with values that are not finite no equation holds.
        spoilt = cause.not_finite and cause.last == step
        again = (
            module in cause.modules
            if key in _OF_A_TENSOR
            else any(
                rule == alarm.rule and (rank == alarm.rank or -1 in (rank, alarm.rank))
                for rule, rank in cause.rules
            )
        )
        return same or spoilt or again
    if module in cause.modules:
        return True
    if cause.last == step and (
        alarm.rank in cause.now
        or -1 in cause.now
        or alarm.rank == -1
        or alarm.direction not in _APART
        or alarm.stat == "scalar"
        or (alarm.stage >= 0 and alarm.stage not in cause.stages)
    ):
        return True
    if kind == "gradual":
        return (
            cause.of_everything
            or any(step - date in _DATED for date in cause.dates)
            or (not cause.dates and step - cause.first.step <= _TOGETHER)
        )
    soon = any(step - date <= _SOON for date in cause.dates)
    return soon and (cause.of_everything or _layer(module) in cause.layers)


def _layer(module: str) -> str:
    """Return a module's name up to the first number; whole where it has none."""
    found = _UP_TO_LAYER.match(module)
    return found[0] if found else module
