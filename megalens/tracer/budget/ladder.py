"""What an instrument can give up to cost less, as the budget sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["ICostReduction", "Ladder"]

Settings = Mapping[str, Mapping[str, Any]]


class ICostReduction(Protocol):
    """What is given up: a frozen dataclass, so that two are equal which give up the same."""

    @property
    def every_factor(self) -> int:
        """By which each setting's ``every`` is multiplied."""

    def sentences(self) -> list[str]:
        """Return what was given up, in words."""


@dataclass(frozen=True)
class Ladder:
    """Stages, the first of which gives up nothing.

    Attributes
    ----------
    stages : sequence of ICostReduction
        Each costs less than the one before; all with ``every_factor`` 1, which the budget sets.
    apply : callable
        Gives the settings in force of what was asked for under a reduction.
    """

    stages: Sequence[Any]
    apply: Callable[[Settings, Any], dict[str, dict[str, Any]]]
