"""What became of a fault: whether it was found, when, and whether the first anomaly says where it was put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .training import Fault

__all__ = ["Verdict", "false_by_step", "verdict_of"]


@dataclass(frozen=True)
class Verdict:
    """What became of a fault.

    Attributes
    ----------
    fault : Fault
        Which.
    found : bool
        Whether the first alarm came at its step or later, and none before.
    late : int
        Steps until then.
    first : str
        The first anomaly, in words.
    right : int
        Which of the alarms in their order, counted from 1, is the first to say where it was put; 0 where none does.
    peer : bool
        Whether the peer's rules reported anything in its step or later.
    peer_before : bool
        Whether they had reported anything before.
    """

    fault: Fault
    found: bool
    late: int
    first: str
    right: int
    peer: bool
    peer_before: bool

    @property
    def soon(self) -> bool:
        """Whether it was found in its step or the next."""
        return self.found and self.late <= 1


def false_by_step(who: str, alarms: Sequence[Any]) -> dict[int, str]:
    """Return the first serious alarm of each step of a healthy training, in words."""
    found: dict[int, str] = {}
    for each in alarms:
        if each.severity != "note":
            found.setdefault(
                each.step,
                f"{who}: {each.rule} of {each.stat} {each.name} on rank {each.rank} at step {each.step}: {each.sentence}",
            )
    return found


def verdict_of(fault: Fault, alarms: Sequence[Any], peer: Sequence[int]) -> Verdict:
    """Return what became of a fault by the alarms of its training, and the steps in which the peer's rules reported anything."""
    serious = sorted(
        (alarm for alarm in alarms if alarm.severity != "note"), key=lambda alarm: (alarm.step, alarm.place)
    )
    first = serious[0] if serious else None
    right = next((at for at, alarm in enumerate(serious, 1) if fault.is_at(alarm)), 0)
    told = f"rank {first.rank}, {first.rule}, {first.direction}, {first.name}" if first else "nothing"
    return Verdict(
        fault,
        first is not None and first.step >= fault.first,
        first.step - fault.first if first else 0,
        told,
        right,
        any(step >= fault.first for step in peer),
        any(step < fault.first for step in peer),
    )
