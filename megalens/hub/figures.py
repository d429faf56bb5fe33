"""The figures of ``status``: the processes' own reports, and what has come of each stream."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..protocol import CheckedBody
from ..protocol.messages_generated import Probes, SilentProbes, Status, StreamStatus, StreamStatusNonfinite
from .live_frame import LiveFrame

_ALIKE: tuple[Literal["perturbed_steps", "armed_steps", "left_out_passes", "micro_batches"], ...] = (
    "perturbed_steps",
    "armed_steps",
    "left_out_passes",
    "micro_batches",
)
"""What processes of a job count alike."""

_MEAN_STEPS = 32
_MOST_COUNT = 2**53
_MOST_TEXT = 500


class Reports:
    """The newest ``status`` of each producer, by rank."""

    def __init__(self) -> None:
        self._reports: dict[int, Status] = {}
        self._drops: dict[int, tuple[int, int]] = {}

    def clear(self) -> None:
        """Forget everything but the rows that were given up: another job begins."""
        self._reports.clear()

    def take(self, rank: int, status: Status) -> None:
        self._reports[rank] = status
        dropped = status.get("dropped", {}).get("producer", 0)
        before, last = self._drops.get(rank, (0, 0))
        # A count that falls is another process's, which began at 0: what the one before it gave up stays
        # given up.
        self._drops[rank] = (before + last if dropped < last else before, dropped)

    def drops(self) -> int:
        """Return the rows that producers gave up, those that went included."""
        return sum(before + last for before, last in self._drops.values())

    def instruments(self) -> dict[str, Any]:
        """Return the last report of each instrument, by name."""
        return _instruments(self._reports.values())

    def fill(self, merged: Status, attached: Collection[int]) -> None:
        """Fill the members of ``status`` that come from attached producers, or from all when none is."""
        ranks = sorted(rank for rank in self._reports if rank in attached) or sorted(self._reports)
        reports = [self._reports[rank] for rank in ranks]
        probes = [report["probes"] for report in reports if "probes" in report]
        if probes:
            merged["probes"] = {
                "fired": sum(p["fired"] for p in probes),
                "expected": sum(p["expected"] for p in probes),
                "missing": [name for p in probes for name in p["missing"]][:50],
            }
            if reasons := _reasons(probes):
                merged["probes"]["reasons"] = reasons
        compiled = [report["compiled"] for report in reports if "compiled" in report]
        if compiled:
            # Processes compile alike.
            merged["compiled"] = max(compiled, key=lambda each: (each["again"], each["times"]))
        overheads = [report["overhead"] for report in reports if "overhead" in report]
        if overheads:
            merged["overhead"] = max(overheads, key=lambda overhead: float(overhead["percent"]))
        # The leader keeps the budget of the whole job.
        budget = next((report["budget"] for report in reports if "budget" in report), None)
        if budget is not None:
            merged["budget"] = budget
        if instruments := _instruments(reports):
            merged["instruments"] = instruments
        for name in _ALIKE:
            counts = [report[name] for report in reports if name in report]
            if counts:
                merged[name] = max(counts)
        warnings = list(dict.fromkeys(text for report in reports for text in report.get("warnings", ())))
        if warnings:
            merged["warnings"] = warnings


def _reasons(probes: Iterable[Probes]) -> list[SilentProbes]:
    found: dict[str, list[str]] = {}
    for each in probes:
        for silent in each.get("reasons", ()):
            found.setdefault(silent["reason"], []).extend(silent["missing"])
    return [{"reason": reason, "missing": names[:50]} for reason, names in list(found.items())[:50]]


def _instruments(reports: Iterable[Status]) -> dict[str, Any]:
    return {name: state for report in reports for name, state in report.get("instruments", {}).items()}


@dataclass
class StreamFigures:
    """One stream's member of ``status.streams``, counted as its policy says.

    ``nonfinite`` is how many values there were, and the policy's columns of the first row with some.
    """

    rows: int = 0
    bytes: int = 0
    first_step: int | None = None
    last_step: int | None = None
    nonfinite: StreamStatusNonfinite | None = None

    def __post_init__(self) -> None:
        self._step_bytes: dict[int, float] = {}

    def add(self, frame: LiveFrame, body: CheckedBody) -> None:
        self.rows += frame.rows
        self.bytes += frame.size
        if frame.step >= 0:
            first = max(frame.first_step, 0)
            self.first_step = first if self.first_step is None else min(self.first_step, first)
            self.last_step = frame.step if self.last_step is None else max(self.last_step, frame.step)
        steps = [frame.step]
        if frame.first_step < frame.step:
            steps = np.unique(body.numbers("step")).tolist()
        for step in steps:
            self._step_bytes[step] = self._step_bytes.get(step, 0) + frame.size / len(steps)
        while len(self._step_bytes) > _MEAN_STEPS:
            del self._step_bytes[min(self._step_bytes)]
        self._count_nonfinite(body)

    def begin(self) -> None:
        """Forget the sizes of steps: the training begins, or goes on from an earlier step."""
        self._step_bytes.clear()

    def bytes_per_step(self) -> float | None:
        """Return the mean size of all frames of one of the last steps; None before the first."""
        # The newest step may lack processes that are still at work on it.
        sizes = [size for step, size in self._step_bytes.items() if step != max(self._step_bytes)]
        sizes = sizes or list(self._step_bytes.values())
        return sum(sizes) / len(sizes) if sizes else None

    def status(self, dropped: int = 0) -> StreamStatus:
        """Return the entry for a viewer that was not sent ``dropped`` rows."""
        entry: StreamStatus = {
            "rows": self.rows,
            "bytes": self.bytes,
            "first_step": self.first_step,
            "last_step": self.last_step,
        }
        if self.nonfinite is not None:
            entry["nonfinite"] = self.nonfinite
        if dropped:
            entry["dropped"] = dropped
        return entry

    def _count_nonfinite(self, body: CheckedBody) -> None:
        policy = body.declared.policy
        # Nearly every frame has none, and its numbers need not even be read.
        found = [body.numbers(name) for name in policy.counts if not body.all_zero(name)]
        found += [~np.isfinite(body.numbers(name)) for name in policy.values]
        if not found:
            return
        counts = np.sum(found, axis=0, dtype=float)
        # Of sums that another program made it is not always known how many there are, only that there are
        # some.
        counts[np.isnan(counts)] = 1.0
        if not (counts > 0).any():
            return
        if self.nonfinite is None:
            row = int((counts > 0).argmax())
            values = {name: body.table().column(name)[row].as_py() for name in policy.first}
            first = {n: v[:_MOST_TEXT] if isinstance(v, str) else v for n, v in values.items()}
            self.nonfinite = {"count": 0, "first": first}
        self.nonfinite["count"] = min(
            self.nonfinite["count"] + int(min(counts[counts > 0].sum(), _MOST_COUNT)), _MOST_COUNT
        )
