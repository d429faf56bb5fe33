"""Rows of ``tensors`` from what a peer sent."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import STREAMS, shown_text, stream_schema
from .peer_message import TensorRow

_MOST_REASONS = 12


class LeftOut:
    """What was left out of a translation, counted by reason, and notes for the person."""

    def __init__(self) -> None:
        self._left_out: Counter[str] = Counter()
        self._notes: dict[str, None] = {}
        self.rows = 0

    def leave_out(self, reason: str, *, lost: bool = True) -> None:
        """Count a message that was left out. One that is ``lost`` would have been rows; a repeat is not."""
        reason = shown_text(reason)
        if reason not in self._left_out and len(self._left_out) >= _MOST_REASONS:
            reason = "messages of other kinds"
        self._left_out[reason] += 1
        self.rows += lost

    def note(self, sentence: str) -> None:
        """Add a sentence, once."""
        if len(self._notes) < _MOST_REASONS:
            self._notes.setdefault(shown_text(sentence[:500]))

    def sentences(self) -> list[str]:
        counted = [f"Left out: {count} {reason}." for reason, count in self._left_out.items()]
        return [*self._notes, *(text[:500] for text in counted)]


@dataclass(frozen=True)
class NumberedRow:
    """A row with its step and micro-batch."""

    row: TensorRow
    step: int
    micro_batch: int
    phase: str
    compressor: str
    source_shape: tuple[int, ...]


def tensors_table(rows: Sequence[NumberedRow]) -> pa.Table:
    """Return the rows as the stream has them; non-finite values are counted in what came."""
    values = [placed.row.values for placed in rows]
    sizes = [value.size for value in values]
    flat = np.concatenate([value.ravel() for value in values]) if rows else np.empty(0, np.float32)
    offsets = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))).astype(np.int32)
    columns = {
        "step": [placed.step for placed in rows],
        "micro_batch": [placed.micro_batch for placed in rows],
        "phase": [placed.phase for placed in rows],
        "pass": ["forward"] * len(rows),
        "rank": [0] * len(rows),
        "layer": [placed.row.layer for placed in rows],
        "flag": [placed.row.flag for placed in rows],
        "part": [placed.row.part for placed in rows],
        "compressor": [placed.compressor for placed in rows],
        "source_shape": [list(placed.source_shape) for placed in rows],
        "shape": [list(value.shape) for value in values],
        "labels": [placed.row.labels for placed in rows],
        "nan_count": [int(np.isnan(value).sum()) for value in values],
        "inf_count": [int(np.isinf(value).sum()) for value in values],
        **{name: [value] * len(rows) for name, value in STREAMS["tensors"].absent.items()},
    }
    schema = stream_schema("tensors")
    arrays = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, pa.float32()))
        if column.name == "values"
        else pa.array(columns[column.name], column.type)
        for column in schema
    ]
    return pa.Table.from_arrays(arrays, schema=schema)


def note_table(step: int, who: str, action: str, detail: Mapping[str, Any]) -> pa.Table:
    """Return the row of ``audit`` that says what a run lacks, or how it ended."""
    text = json.dumps(detail, ensure_ascii=False)
    row = {"step": step, "time": time.time(), "who": who[:200], "action": action, "detail": text}
    return pa.Table.from_pylist([row], stream_schema("audit"))
