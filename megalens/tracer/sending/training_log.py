"""What a script logs: numbers (the stream ``scalars``) and checkpoints (rows of ``audit``)."""

from __future__ import annotations

import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ...protocol import shown_text, stream_schema
from ...protocol.arrow_columns import arrow_column
from ..coordinates import to_host
from ..errors import plain_text

SCALARS = "scalars"
SCALARS_SECONDS = 0.2
"""How often numbers are sent that no other rows take along."""
MOST_SCALARS = 10_000
"""Numbers that wait; of more, those of the script are left out and of those on their way the oldest."""

AUDIT = "audit"
CHECKPOINT_BYTES = 512
"""About what one row takes while it waits."""
_LONGEST_NAME = 80


class ScalarRow(NamedTuple):
    """One number, not yet read where it is a tensor."""

    step: int
    time: float
    name: str
    value: float | Tensor
    unit: str


class ScalarLog:
    """Numbers logged since they were last taken; in the training thread, which reads none of them."""

    def __init__(self) -> None:
        self._rows: list[ScalarRow] = []
        self._on_device = False

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, step: int, name: str, value: Any, unit: str) -> None:
        """Add one number; a tensor is copied as it is now and read later."""
        if isinstance(value, Tensor):
            value = value.detach()
            if value.device.type == "cuda":
                value, self._on_device = to_host(value), True
            else:
                value = value.clone()
        if len(self._rows) < MOST_SCALARS:
            self._rows.append(ScalarRow(step, time.time(), name, value, unit))

    def take(self) -> tuple[Sequence[ScalarRow], Any]:
        """Return what was logged, and a device event after which the copies are complete."""
        rows, self._rows = self._rows, []
        if not self._on_device:
            return rows, None
        self._on_device = False
        # The producer thread waits for it, not this one.
        ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
        ready.record()
        return rows, ready


class ScalarQueue:
    """Numbers to be sent: with other rows, or a few times a second, as every message wakes viewers."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._rows: deque[ScalarRow] = deque(maxlen=MOST_SCALARS)
        self._sent_at = time.monotonic()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def due(self) -> bool:
        """Whether the last ones were sent long enough ago."""
        return time.monotonic() - self._sent_at >= SCALARS_SECONDS

    def take(self, row: ScalarRow) -> float | None:
        """Take a number as it was logged, and return it; None where it is none. A tensor is read now."""
        try:
            value = float(row.value)
        except (TypeError, ValueError, RuntimeError, ArithmeticError):
            self._warn(
                f"{plain_text(row.name)} was logged with something that is not one number; it is left out."
            )
            return None
        self._rows.append(ScalarRow(row.step, row.time, plain_text(row.name), value, plain_text(row.unit)))
        return value

    def add(self, step: int, name: str, value: float, unit: str) -> None:
        """Take a number of the tracer's own."""
        self._rows.append(ScalarRow(step, time.time(), name, value, unit))

    def send(self, rank: int, send: Callable[[pa.RecordBatch, int], int]) -> None:
        """Send what waits; it stays when ``send`` returns that nothing went."""
        self._sent_at = time.monotonic()
        rows = list(self._rows)
        if rows and send(_table(rank, rows), max(row.step for row in rows)):
            self._rows.clear()


def _table(rank: int, rows: Sequence[ScalarRow]) -> pa.RecordBatch:
    steps, times, names, values, units = zip(*rows, strict=True)
    columns = [
        arrow_column(steps, pa.int64()),
        arrow_column(times, pa.float64()),
        arrow_column(np.full(len(rows), rank, np.int32)),
        arrow_column(names, pa.utf8()),
        arrow_column(np.array(values, np.float64)),
        arrow_column(units, pa.utf8()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stream_schema(SCALARS))


def checkpoint_rows(saved: Any, step: int) -> dict[str, list[Any]]:
    """Return the row that says what was saved after a step.

    Only the last part of the path ``saved`` is recorded, and nothing of an address's query: others read the
    recording.
    """
    detail = {} if saved is None else {"name": _name_of(saved)}
    return {
        "step": [step],
        "time": [time.time()],
        "who": ["tracer"],
        "action": ["checkpoint"],
        "detail": [json.dumps(detail, ensure_ascii=False)],
    }


def _name_of(saved: Any) -> str:
    text = os.fsdecode(saved) if isinstance(saved, (bytes, os.PathLike)) else str(saved)
    if "://" in text:
        # Such as the signature of a storage's address.
        text = re.split(r"[?#]", text, maxsplit=1)[0]
    return shown_text(re.split(r"[/\\]", text.rstrip("/\\"))[-1], _LONGEST_NAME)
