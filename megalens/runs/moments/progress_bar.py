"""Progress of long work as one line of text, in a terminal and below a cell alike."""

from __future__ import annotations

import sys
import time

from ...protocol import shown_text

_AFTER_SECONDS = 0.7
_EVERY_SECONDS = 0.2
_UNITS = {"MB": 1e6, "rows": 1}
_LEAST = 8
_WIDTH = 24


class ProgressBar:
    """A line on stderr that is redrawn; work of less than a moment draws none. Interrupt the cell to cancel.

    ``unit`` is ``MB``, of which it is given bytes, or ``rows``.
    """

    def __init__(self, unit: str = "MB") -> None:
        self._unit, self._one = unit, _UNITS[unit]
        self._began = self._drawn = time.monotonic()
        self._shown = False

    def __call__(self, done: int, total: int, what: str) -> None:
        now = time.monotonic()
        last = done >= total
        if (
            total < _LEAST * self._one
            or now - self._began < _AFTER_SECONDS
            or (not last and now - self._drawn < _EVERY_SECONDS)
        ):
            return
        self._drawn, self._shown = now, True
        share = done / total if total else 1.0
        bar = "█" * round(share * _WIDTH)
        left = (now - self._began) * (1 - share) / share if share else 0.0
        sys.stderr.write(
            f"\r{bar:·<{_WIDTH}} {share:4.0%} of {total / self._one:,.0f} {self._unit} · "
            f"{shown_text(what)[:40]:<40} · {left:.0f} s left "
        )
        sys.stderr.flush()

    def close(self) -> None:
        if self._shown:
            sys.stderr.write("\n")
            sys.stderr.flush()
