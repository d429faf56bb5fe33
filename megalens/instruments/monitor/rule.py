"""Rules: parameters that people can change, a pure function over a step, and alarms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...protocol import StepReadings, kinds
from .levels import MODULE_END
from .table import StepTable

Severity = Literal["critical", "warning", "note"]


class IAlarm(Protocol):
    """The columns of an alarm that are used here."""

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

    @property
    def cause(self) -> int: ...


_Alarm = TypeVar("_Alarm", bound=IAlarm)


def first_serious(alarms: Iterable[_Alarm]) -> _Alarm | None:
    """Return the first alarm of severity critical or warning, by (step, place); None without one."""
    serious = (alarm for alarm in alarms if alarm.severity != "note")
    return min(serious, key=_when, default=None)


def reached(alarms: Iterable[_Alarm], steps: int = 1) -> list[tuple[str, str, int]]:
    """Return what the first anomaly reached next: (direction, module, rank), each once, in computation order.

    ``steps`` is up to how many steps after it. What is known to have another cause is left out.
    """
    alarms = list(alarms)
    first = first_serious(alarms)
    if first is None:
        return []
    after = [
        alarm
        for alarm in alarms
        if _when(first) <= _when(alarm)
        and alarm.step <= first.step + steps
        and 0 in (first.cause - alarm.cause, first.cause, alarm.cause)
    ]
    path = dict.fromkeys(map(_where, sorted(after, key=_when)))
    path.pop(_where(first), None)
    return list(path)


def _when(alarm: IAlarm) -> tuple[int, int]:
    return alarm.step, alarm.place


def _where(alarm: IAlarm) -> tuple[str, str, int]:
    return alarm.direction, MODULE_END.sub("", alarm.name), alarm.rank


@dataclass(frozen=True)
class Alarm:
    """One finding of a rule. The attributes are the columns of the stream ``alarms``.

    ``cause`` is the number of its cause, 0 where nothing judged what follows from what. Of one number the
    first alarm has the severity of its rule, and those that follow are notes.
    """

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
    cause: int = 0

    @property
    def follows(self) -> bool:
        """Whether it follows from an earlier alarm."""
        return self.cause > 0 and self.severity == "note"


def alarm_columns(alarms: Sequence[Alarm]) -> dict[str, list[Any]]:
    return {each.name: [getattr(alarm, each.name) for alarm in alarms] for each in fields(Alarm)}


OwnRule: TypeAlias = Callable[[StepReadings, Sequence[StepReadings]], Iterable[Alarm]]
"""A user's rule: takes a step and the earlier ones, oldest first, and returns alarms."""


@dataclass(frozen=True)
class Finding:
    """Rows that are not as they should be.

    ``statistic`` is what of them is wrong, with its ``value`` and ``expected`` for each row. ``sentence``
    takes both of one row and returns its meaning for people. ``severity`` is the rule's own where absent.
    """

    rows: NDArray[np.intp]
    statistic: str
    value: NDArray[np.float64] | float
    expected: NDArray[np.float64] | float
    sentence: Callable[[float, float], str]
    severity: Severity | None = None


def says(words: str, *_: float) -> str:
    """Return the words, whatever value and expectation are: with ``partial``, the sentence of a finding."""
    return words


def percent(share: float, digits: int = 0) -> str:
    return f"{100 * share:.{digits}f} %"


def about_all(rows: NDArray[np.intp], statistic: str, value: float, expected: float, words: str) -> Finding:
    """Return a finding that is of all rows together, in the place of the first."""
    return Finding(rows[:1], statistic, value, expected, partial(says, words))


def number(title: str, description: str, low: float, high: float, default: float) -> Any:
    """Return the field of a rule's parameter, a number with bounds."""
    return field(default=float(default), metadata=kinds.number(title, description, low, high, default))


class Rule(kinds.Kind):
    """A rule, with its parameters as fields (:func:`number`) and the severity of its alarms.

    The first paragraph of a subclass's docstring explains its alarms to people.
    """

    severity: ClassVar[Severity] = "warning"

    def __init_subclass__(cls) -> None:
        cls.properties = {
            name: dict(each.metadata) for name, each in vars(cls).items() if isinstance(each, Field)
        }

    def find(self, now: StepTable) -> Iterable[Finding]:
        """Return what is wrong in a step."""
        raise NotImplementedError
