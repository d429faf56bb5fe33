"""Which steps something lacks, as few ranges."""

from __future__ import annotations

__all__ = ["StepRanges"]

_MOST = 1000


class StepRanges:
    """A set of steps kept as inclusive ranges. Past 1,000 ranges the closest two become one, so it never says too little."""

    def __init__(self) -> None:
        self._ranges: list[list[int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, first: int, last: int | None = None) -> None:
        """Add one step, or all from ``first`` to ``last``."""
        self._ranges.append([first, first if last is None else last])
        self._ranges.sort()
        merged: list[list[int]] = []
        for low, high in self._ranges:
            if merged and low <= merged[-1][1] + 1:
                merged[-1][1] = max(merged[-1][1], high)
            else:
                merged.append([low, high])
        if len(merged) > _MOST:
            gap = min(range(1, len(merged)), key=lambda i: merged[i][0] - merged[i - 1][1])
            merged[gap - 1][1] = merged[gap][1]
            del merged[gap]
        self._ranges = merged

    def to_list(self) -> list[list[int]]:
        """Return the ranges in order, such as ``[[3, 5], [9, 9]]``."""
        return [list(pair) for pair in self._ranges]
