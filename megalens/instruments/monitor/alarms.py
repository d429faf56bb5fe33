"""Alarms as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...protocol.anomaly import first_anomaly, reached

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["alarm_frame", "first_of"]

_FIRST = ("step", "micro_step", "rank", "rule", "severity", "name", "value", "expected", "sentence")


def alarm_frame(table: pa.Table, rule: str | None = None, severity: str | None = None) -> DataFrame:
    """Return the rows of the stream ``alarms`` as ``run.alarms()`` gives them."""
    frame = table.to_pandas().rename(columns={"micro_batch": "micro_step"})
    for column, wanted in (("rule", rule), ("severity", severity)):
        if wanted is not None:
            frame = frame[frame[column] == wanted]
    rest = [name for name in frame.columns if name not in _FIRST]
    return frame[[*_FIRST, *rest]].sort_values(["step", "place"], kind="stable", ignore_index=True)


def first_of(frame: DataFrame) -> dict[str, Any] | None:
    """Return the first anomaly among the rows of :func:`alarm_frame`, as ``run.first_anomaly()`` gives it."""
    rows = list(frame.itertuples(index=False, name="Alarm"))
    first = first_anomaly(rows)
    return None if first is None else {**first._asdict(), "path": reached(rows)}
