"""Alarms as a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...runs.query import StepChoice
from .alarm import first_serious, reached

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...runs.run import Run

__all__ = ["alarm_frame", "alarms", "first_anomaly", "first_of"]

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
    first = first_serious(rows)
    return None if first is None else {**first._asdict(), "path": reached(rows)}


def alarms(
    run: Run, steps: StepChoice = None, rule: str | None = None, severity: str | None = None
) -> DataFrame:
    """Return what the rules of the monitor found, in the order in which it happened.

    Parameters
    ----------
    steps : optional
        As in :meth:`tensors`.
    rule : str, optional
        One rule, such as ``"jump"``.
    severity : str, optional
        ``"critical"``, ``"warning"`` or ``"note"``.

    Returns
    -------
    pandas.DataFrame
        ``step``, ``micro_step`` (the micro-batch; -1: of the whole step), ``rank``, ``rule``, ``severity``, ``name``, ``value``, ``expected``, ``sentence``, then the other columns of the stream
        ``alarms``. Empty while the training is healthy.
    """
    return alarm_frame(run.table("alarms", steps), rule, severity)


def first_anomaly(run: Run) -> dict[str, Any] | None:
    """Return the alarm of severity critical or warning that came first, by the columns of :meth:`alarms`, with ``path``: what it reached next as (direction, module, rank). None where there is none."""
    return first_of(alarms(run))
