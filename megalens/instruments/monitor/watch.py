"""Judges step after step with all rules.

One cause, one alarm: which alarms follow from an earlier one, and so become notes of it.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np

from ...protocol import MEMORY, RANK_SCALAR, StepReadings
from .levels import MODULE_END, direction_of
from .rule import Alarm, Finding, OwnRule, Rule
from .settings import WatchSettings
from .step_tables import StepTables
from .table import QUANTITIES, StepTable

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
        # How much memory is in use says nothing of values.
        return [
            alarm if alarm.severity == "note" or alarm.stat == MEMORY else self._of(alarm) for alarm in alarms
        ]

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


MOST_ALARMS = 1000
"""Most rows of the stream in one step; one more row counts the rest."""

# A lasting finding is reported once, until it was absent for so many judged steps.
_QUIET = 16
_HISTORY = 8
# What is so far off does not enter a level.
_STRAY_BITS, _STRAY_SIGMAS = 2.0, 8.0


class Watch:
    """Judges the steps of one run, in their order.

    ``own`` are somebody's own rules by name; ``warn`` takes a sentence about a rule that failed; ``clock``
    gives the column ``time``.
    """

    def __init__(
        self,
        settings: WatchSettings | None = None,
        own: dict[str, OwnRule] | None = None,
        warn: Callable[[str], None] = lambda text: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings or WatchSettings()
        self._own = dict(own or {})
        self._warn = warn
        self._clock = clock
        self._tables = StepTables()
        self._history: deque[StepReadings] = deque(maxlen=_HISTORY)
        self._last: dict[tuple[str, str], np.ndarray] = {}
        self._causes = Causes()
        self._judged = 0
        self._failed: set[str] = set()

    def judge(self, step: StepReadings) -> list[Alarm]:
        """Return the alarms of a step, in the order of its computation."""
        self._judged += 1
        # Rules compute with NaN and infinity. Set once, because each rule's own context costs more than its
        # numbers.
        with np.errstate(all="ignore"):
            now = self._tables.of(step)
            alarms = self._alarms(now, step, self._find(now))
            self._learn(now)
        # What nobody is told of explains nothing.
        alarms = self._causes.take(self._reported(alarms))
        for name, own in self._own.items():
            if self.settings.on(name):
                try:
                    given = islice(own(step, tuple(self._history)), MOST_ALARMS)
                    alarms += self._reported([self._located(alarm, now) for alarm in given])
                except Exception as error:
                    self._failure(name, error)
        self._history.append(step)
        alarms.sort(key=lambda alarm: alarm.place)
        return alarms

    def _reported(self, alarms: list[Alarm]) -> list[Alarm]:
        return [alarm for alarm in alarms if not self.settings.muted(alarm)]

    @property
    def series(self) -> range:
        """Number of known series."""
        return range(len(self._tables.levels))

    def configure(self, settings: Any) -> None:
        """Follow another settings object from the next step on; levels stay.

        Raises ``ProtocolError`` with the field at fault; then nothing has changed.
        """
        self.settings = WatchSettings.of(settings, tuple(self._own))
        self._causes.mute(self.settings.muted)

    def check(self, settings: Any) -> dict[str, Any]:
        """Return other settings with every parameter of every rule; raises as :meth:`configure`."""
        own = tuple(self._own)
        return WatchSettings.of(settings, own).to_message(own)

    def to_message(self) -> dict[str, Any]:
        return self.settings.to_message(tuple(self._own))

    def schema(self) -> dict[str, Any]:
        return WatchSettings.schema(tuple(self._own))

    def _find(self, now: StepTable) -> list[tuple[Rule, Finding, np.ndarray]]:
        """Return what the rules find, each with the rows that are new."""
        found = []
        for rule in self.settings.rules:
            try:
                for finding in rule.find(now):
                    new = self._new(rule.name, finding, now)
                    if len(new):
                        found.append((rule, finding, new))
            except Exception as error:
                self._failure(rule.name, error)
        return found

    def _new(self, rule: str, finding: Finding, now: StepTable) -> np.ndarray:
        """Return which of a finding's rows were not found in the last steps."""
        key = (rule, finding.statistic)
        last = self._last.get(key)
        size = len(self.series)
        if last is None or len(last) < size:
            grown = np.full(size, -_QUIET - 1, np.int64)
            grown[: 0 if last is None else len(last)] = () if last is None else last
            last = self._last[key] = grown
        series = now.layout.series[finding.rows]
        new = self._judged - last[series] > _QUIET
        last[series] = self._judged
        return np.flatnonzero(new)

    def _alarms(
        self, now: StepTable, step: StepReadings, found: list[tuple[Rule, Finding, np.ndarray]]
    ) -> list[Alarm]:
        layout, clock = now.layout, self._clock()
        several = [
            (layout.place[f.rows[at]], number, at) for number, (_, f, new) in enumerate(found) for at in new
        ]
        several.sort()
        alarms = []
        for order, number, at in several[:MOST_ALARMS]:
            rule, finding, _ = found[number]
            row = finding.rows[at]
            value, expected = (
                float(each[at] if isinstance(each, np.ndarray) else each)
                for each in (finding.value, finding.expected)
            )
            stat, name = layout.stats[row], layout.names[row]
            stat = "scalar" if stat == RANK_SCALAR else stat
            alarms.append(
                Alarm(
                    step=now.step,
                    rule=rule.name,
                    severity=finding.severity or rule.severity,
                    sentence=finding.sentence(value, expected),
                    stat=stat,
                    name=name,
                    statistic=finding.statistic,
                    value=value,
                    expected=expected,
                    direction=direction_of(stat, name),
                    rank=int(layout.ranks[row]),
                    stage=int(layout.stages[row]),
                    micro_batch=int(layout.micro_batches[row]),
                    place=int(order),
                    time=clock,
                    samples=step.sample_ids,
                )
            )
        if len(several) > MOST_ALARMS:
            last = alarms.pop()
            left = len(several) - len(alarms)
            alarms.append(
                replace(
                    last,
                    rule="more",
                    severity="note",
                    name="*",
                    statistic="alarms",
                    value=float(left),
                    expected=0.0,
                    sentence=f"{left:,} more alarms of this step are left out.",
                )
            )
        return alarms

    def _located(self, alarm: Alarm, now: StepTable) -> Alarm:
        """Return an own rule's alarm with defaults for what it left out."""
        layout = now.layout
        same = [
            at
            for at in range(len(layout.names))
            if layout.names[at] == alarm.name
            and layout.stats[at] == alarm.stat
            and alarm.rank in (-1, layout.ranks[at])
        ]
        direction = alarm.direction or direction_of(alarm.stat, alarm.name)
        place = alarm.place or (int(layout.place[same].min()) if same else (1 << 53) - 1)
        return replace(alarm, direction=direction, place=place, time=alarm.time or self._clock())

    def _learn(self, now: StepTable) -> None:
        values = np.stack([getattr(now, quantity) for quantity in QUANTITIES])
        off, sigma = (
            np.stack([getattr(now.past(quantity), which) for quantity in QUANTITIES])
            for which in ("settled", "sigma")
        )
        far = np.abs(off) > np.maximum(_STRAY_BITS, _STRAY_SIGMAS * sigma)
        self._tables.levels.take(now.layout.series, values, now.nonfinite | far)
        self._tables.keep(now)

    def _failure(self, name: str, error: Exception) -> None:
        if name not in self._failed:
            self._failed.add(name)
            text = re.sub(r"\s+", " ", str(error))[:200]
            self._warn(f"The rule {name} failed and was left out: {type(error).__name__}: {text}")
