"""The figures that the processes of a job say of themselves, added up."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

from ..protocol.messages_generated import Probes, SilentProbes, Status

__all__ = ["Reports"]

_ALIKE: tuple[Literal["perturbed_steps", "armed_steps", "left_out_passes"], ...] = (
    "perturbed_steps",
    "armed_steps",
    "left_out_passes",
)
"""What processes of a job count alike."""


class Reports:
    """The newest ``status`` of each producer, by rank."""

    def __init__(self) -> None:
        self._reports: dict[int, Status] = {}
        self._drops: dict[int, tuple[int, int]] = {}

    def clear(self) -> None:
        """Forget everything but the rows that were given up: another job begins."""
        self._reports.clear()

    def take(self, rank: int, status: Status) -> None:
        """Take a producer's ``status``."""
        self._reports[rank] = status
        dropped = status.get("dropped", {}).get("producer", 0)
        before, last = self._drops.get(rank, (0, 0))
        # A count that falls is another process's, which began at 0: what the one before it gave up stays given up.
        self._drops[rank] = (before + last if dropped < last else before, dropped)

    def drops(self) -> int:
        """Return the rows that producers gave up, those that went included."""
        return sum(before + last for before, last in self._drops.values())

    def instruments(self) -> dict[str, Any]:
        """Return what instruments said last of themselves, by name."""
        return _instruments(self._reports.values())

    def fill(self, merged: Status, attached: Collection[int]) -> None:
        """Fill the members of ``status`` that come from producers: of those that are attached, or of all when none is."""
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
