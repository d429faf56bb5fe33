"""What a rule found, and its row of the stream ``alarms``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

__all__ = ["Alarm", "Severity", "alarm_columns"]

Severity = Literal["critical", "warning", "note"]


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
