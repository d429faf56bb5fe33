"""Which steps were sent a moment ago: what a hub that dies may not have written yet."""

from __future__ import annotations

import time
from collections import deque

__all__ = ["RecentSteps"]

_SECONDS = 2.0
"""The hub writes each frame as it comes; what is older than this is on its disk unless that stands still, of which the hub's status tells."""


class RecentSteps:
    """Steps with the time at which they were sent, for a short while; and what is to be said of them once the hub is back."""

    def __init__(self) -> None:
        self._sent: deque[tuple[float, int]] = deque()
        self._unwritten: int | None = None

    def note(self, step: int) -> None:
        """Remember that rows of ``step`` were sent now."""
        now = time.monotonic()
        if not self._sent or self._sent[-1][1] != step:
            self._sent.append((now, step))
        # The newest of the older ones stays: nothing that came after it is known to be written.
        while len(self._sent) > 1 and self._sent[1][0] < now - _SECONDS:
            self._sent.popleft()

    def hub_gone(self, step: int) -> None:
        """Note that the hub cannot be reached at ``step``, with what it had not written. Noted already, it stays."""
        if self._unwritten is None:
            self._unwritten = min((sent for _, sent in self._sent), default=step)

    def hub_is_back(self, step: int, *, anew: bool) -> str | None:
        """Return what to tell the user once a hub is there again at ``step``; None when none had gone.

        Parameters
        ----------
        step : int
            The newest step.
        anew : bool
            Whether it is another one, with a recording of its own.
        """
        if self._unwritten is None:
            return None
        first, self._unwritten = self._unwritten, None
        last = max(first, step)
        if anew:
            return (
                f"The hub ended and was restarted at step {last}. What follows is in a new recording; "
                f"rows of steps {first} to {last} may be in neither."
            )
        return (
            f"The connection to the hub broke and was back at step {last}. "
            f"Rows of steps {first} to {last} may be missing in the recording."
        )
