"""Statistics of a job's recordings as one source of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..protocol import LAST_STEP
from .dask_engine import Each
from .moments.rows.hidden import without
from .moments.rows.pieces import Chunk, Piece, PieceReading, Progress, Wanted
from .moments.rows.recorded_rows import RecordedRows
from .moments.source import MomentRows


class JobMoments(MomentRows):
    """Rows of several run folders, each with the step from which on its rows do not count, and what a rank in
    it is more in the job.
    """

    def __init__(self, parts: Sequence[tuple[Path, int, int]], each: Each = map) -> None:
        super().__init__()
        made = each(RecordedRows if each is map else _listed, [folder for folder, _, _ in parts])
        self._parts = [(rows, until, shift) for rows, (_, until, shift) in zip(made, parts, strict=True)]
        self._changed()

    def refresh(self, progress: Progress | None = None) -> bool:
        found = [rows.refresh(progress) for rows, _, _ in self._parts]
        self.warnings = list(dict.fromkeys(text for rows, _, _ in self._parts for text in rows.warnings))
        if any(found):
            self._changed()
        return any(found)

    def pieces(self) -> list[Piece]:
        found: list[Piece] = []
        for rows, until, shift in self._parts:
            for piece in rows.pieces():
                left = without(piece, dict.fromkeys(piece.listed, until)) if until <= LAST_STEP else piece
                if left.listed:
                    found.append(_Ranked(left, shift) if shift else left)
        return found

    def close(self) -> None:
        for rows, _, _ in self._parts:
            rows.close()


def _listed(folder: Path) -> RecordedRows:
    rows = RecordedRows(folder)
    rows.refresh()
    return rows


class _Ranked(Piece):
    """A piece whose ranks are those of the job."""

    def __init__(self, piece: Piece, shift: int) -> None:
        self._piece, self._shift = piece, shift
        self.low, self.high, self.samples, self.listed = piece.low, piece.high, piece.samples, piece.listed

    def parts(self, wanted: Wanted) -> Sequence[Piece]:
        parts = self._piece.parts(wanted)
        return [self] if parts == [self._piece] else [_Ranked(part, self._shift) for part in parts]

    def read(self, reading: PieceReading) -> Chunk:
        wanted = reading.wanted
        if "rank" in wanted.ranges:
            own = tuple((low - self._shift, high - self._shift) for low, high in wanted.ranges["rank"])
            reading = PieceReading(replace(wanted, ranges={**wanted.ranges, "rank": own}))
        try:
            chunk = self._piece.read(reading)
        finally:
            if reading.wanted is not wanted:
                reading.close()
        if "rank" not in chunk:
            return chunk
        return {**chunk, "rank": chunk["rank"] + np.asarray(self._shift, chunk["rank"].dtype)}
