"""What waits in the producer thread until several processes have sent their part of it."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Gatherers", "IGatherer"]


class IGatherer(Protocol):
    """Something in which what several processes sent waits until it is complete."""

    @property
    def waiting(self) -> bool:
        """Whether anything waits."""

    @property
    def done(self) -> bool:
        """Whether nothing will come any more."""

    def send_ready(self, *, everything: bool = False) -> None:
        """Send what is complete; with ``everything`` wait no more."""


class Gatherers:
    """All that there are; each is looked after until it is done."""

    def __init__(self) -> None:
        self._all: list[IGatherer] = []

    def add(self, gatherer: IGatherer) -> None:
        """Look after one more."""
        self._all.append(gatherer)

    @property
    def waiting(self) -> bool:
        """Whether anything waits in one of them."""
        return any(gatherer.waiting for gatherer in self._all)

    def send_ready(self, *, everything: bool = False) -> None:
        """Have all of them send what is complete."""
        for gatherer in self._all:
            gatherer.send_ready(everything=everything)
        if any(gatherer.done for gatherer in self._all):
            self._all = [gatherer for gatherer in self._all if not gatherer.done]
