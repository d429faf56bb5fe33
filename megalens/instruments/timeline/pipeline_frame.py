"""What is measured of a run's pipeline, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from ...runs.errors import ClientError
from .files.megascan_files import TimelineError
from .pipeline_metrics import pipeline_metrics
from .spans import Spans

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["pipeline_frame"]


def pipeline_frame(table: pa.Table) -> DataFrame:
    """Return what :func:`megalens.instruments.timeline.pipeline_metrics.pipeline_metrics` says of rows of the stream ``spans``.

    Raises
    ------
    ClientError
        ``not-found`` where they are of no pipeline.
    """
    from pandas import DataFrame

    try:
        return DataFrame(pipeline_metrics(Spans.of(table)))
    except TimelineError as error:
        raise ClientError(str(error), code="not-found") from error
