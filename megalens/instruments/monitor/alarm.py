"""What a rule found, and its row of the stream ``alarms``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeVar

__all__ = ["Alarm", "Severity", "alarm_columns", "MODULE_END", "first_serious", "reached"]

Severity = Literal["critical", "warning", "note"]

MODULE_END = re.compile(r"/(input|output)\d*$")
"""What stands behind the name of a module in the name of a tensor at one of its ends."""


class IAlarm(Protocol):
    """What is asked of an alarm here: columns of its stream."""

    @property
    def step(self) -> int: ...

    @property
    def place(self) -> int: ...

    @property
    def severity(self) -> str: ...

    @property
    def direction(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...


_Alarm = TypeVar("_Alarm", bound=IAlarm)


def first_serious(alarms: Iterable[_Alarm]) -> _Alarm | None:
    """Return the alarm of severity critical or warning that came first, by (step, place); None where there is none."""
    serious = (alarm for alarm in alarms if alarm.severity != "note")
    return min(serious, key=_when, default=None)


def reached(alarms: Iterable[_Alarm], steps: int = 1) -> list[tuple[str, str, int]]:
    """Return what the first anomaly reached next: (direction, module, rank), each once, in the order of the computation.

    Parameters
    ----------
    alarms : iterable
        Those of the run.
    steps : int
        Up to how many steps after it.
    """
    alarms = list(alarms)
    first = first_serious(alarms)
    if first is None:
        return []
    after = [alarm for alarm in alarms if _when(first) <= _when(alarm) and alarm.step <= first.step + steps]
    path = dict.fromkeys(map(_where, sorted(after, key=_when)))
    path.pop(_where(first), None)
    return list(path)


def _when(alarm: IAlarm) -> tuple[int, int]:
    return alarm.step, alarm.place


def _where(alarm: IAlarm) -> tuple[str, str, int]:
    return alarm.direction, MODULE_END.sub("", alarm.name), alarm.rank


@dataclass(frozen=True)
class Alarm:
    """One finding of a rule. The attributes are the columns of the stream ``alarms`` and are described there."""

    step: int
    rule: str
    severity: Severity
    sentence: str
    stat: str
    name: str
    statistic: str
    value: float
    expected: float = math.nan
    direction: str = ""
    rank: int = -1
    stage: int = -1
    micro_batch: int = -1
    place: int = 0
    time: float = 0.0
    samples: str = ""


def alarm_columns(alarms: Sequence[Alarm]) -> dict[str, list[Any]]:
    """Return the columns of the stream ``alarms``."""
    return {each.name: [getattr(alarm, each.name) for alarm in alarms] for each in fields(Alarm)}
