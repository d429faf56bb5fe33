"""The ticks by which MegatronApp's older tracer says when an iteration begins and ends, and when its pipeline has run empty."""

from __future__ import annotations

from typing import Any

from .megascan_files import TimelineError
from .trace_events import Event

__all__ = ["BEGIN", "END", "IterationTicks"]

BEGIN, REDUCE, END = "iteration begin", "reduce", "iteration end"

Stretch = tuple[Any, int, str, int, int]


class IterationTicks:
    """Collects instants, and makes stretches of time of them."""

    def __init__(self) -> None:
        self._at: dict[tuple[Any, int], dict[str, int]] = {}
        self._threads: dict[tuple[Any, int], set[Any]] = {}

    def take(self, event: Event, ns: int | None) -> None:
        """Look at an instant; any other than these ticks is passed over."""
        iteration = event.args.iteration if event.args is not None else None
        if event.name not in (BEGIN, REDUCE, END) or ns is None or type(iteration) is not int:
            return
        pid, tid = (value if isinstance(value, int | str) else None for value in (event.pid, event.tid))
        if not 0 <= iteration < 1 << 60:
            return
        # What was written twice counts once.
        self._at.setdefault((pid, iteration), {}).setdefault(event.name, ns)
        self._threads.setdefault((pid, iteration), set()).add(tid)

    def stretches(self) -> list[Stretch]:
        """Return process, iteration, what it is (``step`` or ``reduce``), begin and end in ns.

        Raises
        ------
        TimelineError
            Where several recordings were put into one file, as by MegatronApp's ``merge_trace.py``: each process has an iteration on several threads.
        """
        merged = next((threads for threads in self._threads.values() if len(threads) > 1), None)
        if merged:
            threads = " and ".join(sorted(map(str, merged))[:5])
            raise TimelineError(
                f"The trace holds several recordings of the same iterations, on threads {threads} of each process. Open the files that it was merged from one by one, and compare their runs."
            )
        found: list[Stretch] = []
        for (pid, iteration), at in self._at.items():
            for tick, what in ((BEGIN, "step"), (REDUCE, "reduce")):
                if tick in at and END in at and at[tick] <= at[END]:
                    found.append((pid, iteration, what, at[tick], at[END]))
        return found
