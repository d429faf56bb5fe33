"""Judges step after step with all rules."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np

from ...protocol import RANK_SCALAR, StepReadings
from .causes import Causes
from .levels import direction_of
from .rule import Alarm, Finding, OwnRule, Rule, alarm_columns
from .settings import WatchSettings
from .step_tables import StepTables
from .table import QUANTITIES, StepTable

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
        alarms = self._causes.take(self._told(alarms))
        for name, own in self._own.items():
            if self.settings.on(name):
                try:
                    given = islice(own(step, tuple(self._history)), MOST_ALARMS)
                    alarms += self._told([self._placed(alarm, now) for alarm in given])
                except Exception as error:
                    self._failure(name, error)
        self._history.append(step)
        alarms.sort(key=lambda alarm: alarm.place)
        return alarms

    def _told(self, alarms: list[Alarm]) -> list[Alarm]:
        return [alarm for alarm in alarms if not self.settings.muted(alarm)]

    @property
    def series(self) -> range:
        """Number of known series."""
        return range(len(self._tables.levels))

    def columns(self, alarms: Sequence[Alarm]) -> dict[str, list[Any]]:
        return alarm_columns(alarms)

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

    def _placed(self, alarm: Alarm, now: StepTable) -> Alarm:
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
