"""Whether anybody is there who could let a training go on that waits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..protocol import ProtocolError
from .sending.peers import Schedule
from .tensors.plan import TracingPlan

__all__ = ["ViewerWatch"]

_HUB_GONE_SECONDS = 5.0


class ViewerWatch:
    """Follows the hub and its viewers, and asks for a pause or its end where the settings say that this depends on them.

    Parameters
    ----------
    schedule : callable
        Gives what is agreed on.
    ask : callable
        Takes a patch; raises ``ProtocolError`` where it cannot be.
    """

    def __init__(
        self, schedule: Callable[[], Schedule[TracingPlan]], ask: Callable[[Mapping[str, Any]], int]
    ) -> None:
        self._schedule = schedule
        self._ask = ask
        self._hub_gone: float | None = None
        self._paused_unwatched = False

    @property
    def abandoned(self) -> bool:
        """Whether nobody is left who could let a paused training go on."""
        return self._hub_gone is not None and time.monotonic() - self._hub_gone > _HUB_GONE_SECONDS

    def hub_is(self, there: bool) -> None:
        """Take whether a hub is connected."""
        self._hub_gone = None if there else (self._hub_gone or time.monotonic())

    def viewers(self, count: int) -> None:
        """Take how many viewers there are: a training that waits for one goes on with the first and waits again after the last."""
        mode = self._schedule().accepted.mode
        if not mode.while_watched:
            self._paused_unwatched = False
        elif count == 0 and not mode.paused:
            self._paused_unwatched = True
            self._set_mode(paused=True, while_watched=True)
        elif count and mode.paused and self._paused_unwatched:
            self._paused_unwatched = False
            self._set_mode(paused=False, while_watched=True)

    def free(self) -> bool:
        """Let the training go on where it waits and nobody is left, and return whether that was so."""
        mode = self._schedule().accepted.mode
        if not (self.abandoned and (mode.paused or mode.while_watched)):
            return False
        self._set_mode(paused=False, while_watched=False)
        return True

    def _set_mode(self, *, paused: bool, while_watched: bool) -> None:
        with contextlib.suppress(ProtocolError):
            self._ask({"flags": {}, "mode": {"paused": paused, "while_watched": while_watched}})
