"""What is measured of a run's pipeline, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...runs.errors import ClientError
from ...runs.query import StepChoice
from .megascan_files import TimelineError
from .pipeline_passes import span_metrics
from .spans import Spans

if TYPE_CHECKING:
    from pandas import DataFrame

    from ...runs.run import Run

__all__ = ["pipeline_metrics"]


def pipeline_metrics(run: Run, steps: StepChoice = None) -> DataFrame:
    """Return how busy the stages of a pipeline are and how long micro-batches wait between them, from spans of ``timeline="phases"`` or finer, or of an opened trace.

    Parameters
    ----------
    steps : optional
        As in :meth:`tensors`. Where there are several, the first of them is left out of the means: it warms up.

    Returns
    -------
    pandas.DataFrame
        ``metric``, ``rank``, ``peer``, ``value``; rank or peer is -1 where the metric is of none. ``iteration_ms``, then of each rank ``compute_window_ms`` (a pass), ``compute_ratio`` (the part of its step in passes), ``reduce_window_ms`` (from its last pass to the end of its step), then of each two neighbouring stages ``forward_send_window_ms``, ``backward_send_window_ms`` (from the end of a pass on ``rank`` to the beginning of the one that takes its output on ``peer``).

    Raises
    ------
    ClientError
        ``not-found`` where the run has no spans of a pipeline.
    """
    from pandas import DataFrame

    try:
        return DataFrame(span_metrics(Spans.of(run.table("spans", steps))))
    except TimelineError as error:
        raise ClientError(str(error), code="not-found") from error
