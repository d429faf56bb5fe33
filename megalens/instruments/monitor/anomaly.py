"""The first anomaly of a run, and what it reached next."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

__all__ = ["MODULE_END", "IAlarm", "first_anomaly", "reached"]

MODULE_END = re.compile(r"/(input|output)\d*$")
"""What stands behind the name of a module in the name of a tensor at one of its ends."""


class IAlarm(Protocol):
    """What is asked of an alarm here: columns of its stream."""

    @property
    def step(self) -> int: ...  # noqa: D102

    @property
    def place(self) -> int: ...  # noqa: D102

    @property
    def severity(self) -> str: ...  # noqa: D102

    @property
    def direction(self) -> str: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def rank(self) -> int: ...  # noqa: D102


_Alarm = TypeVar("_Alarm", bound=IAlarm)


def first_anomaly(alarms: Iterable[_Alarm]) -> _Alarm | None:
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
    first = first_anomaly(alarms)
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
