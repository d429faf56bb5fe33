"""The steps of a run's pipeline as they were measured."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ...protocol import must_be
from ...runs.answers.moment_request import only_members
from ...runs.answers.selection import StreamRows, check_cancelled
from ...runs.errors import ClientError
from ...runs.query import Query
from .analysis import Analysis
from .files.megascan_files import TimelineError
from .pipeline_passes import pipeline_passes
from .pipeline_steps import MOST_STEPS, pipeline_steps, whole_steps
from .spans import Spans
from .timeline_answer import MOST_ROWS, STREAM, number_of, step_counts

__all__ = ["read_pipeline"]

_MEMBERS = ("first", "last", "replica")
_STEPS = 10
_SPARE = 4
"""Steps that are read beside those that are answered: the newest may not be whole yet."""


def read_pipeline(
    rows: StreamRows, request: Mapping[str, Any], key: object, cancelled: threading.Event
) -> dict[str, Any]:
    """Return operations of the newest whole steps, as plain JSON: see :func:`pipeline_steps`. Before them stand ``steps_there`` and ``problems``; ``{steps_there: None}`` where there are no spans.

    Parameters
    ----------
    rows : StreamRows
    request : mapping
        All optional: ``first`` and ``last`` step, of which the newest 20 are answered; the newest 10 without them. ``replica``: which pipeline, from 0.
    key : object
        Whose rows these are; nothing of them is kept.
    cancelled : threading.Event

    Raises
    ------
    ProtocolError
        Naming the member that is wrong.
    ClientError
        ``not-found`` where the spans hold no whole step with passes.
    """
    only_members(request, _MEMBERS)
    first, last, replica = (number_of(request, name) for name in _MEMBERS)
    if first is not None and last is not None and last < first:
        raise must_be("last", f"a step from {first}, the first one", last, "last", "bad-parameter")
    counts = step_counts(rows, cancelled)
    if not counts:
        return {"steps_there": None}
    there = np.array(sorted(counts))
    wanted = there[(there >= (first or 0)) & ((last is None) | (there <= (last or 0)))]
    most = _STEPS if first is None and last is None else MOST_STEPS
    size = np.cumsum([counts[step] for step in wanted[::-1].tolist()])
    # The newest one is read whatever its size.
    read = max(min(most + _SPARE, int((size <= MOST_ROWS).sum())), 1)
    looked = wanted[-read:]
    if not len(looked):
        raise ClientError(
            f"No step from {first or 0} to {'the last' if last is None else last} has spans; there are steps {there[0]} to {there[-1]}.",
            code="not-found",
        )
    batches = []
    for batch in rows.batches(STREAM, Query(first=int(looked[0]), last=int(looked[-1]))):
        check_cancelled(cancelled)
        batches.append(batch)
    try:
        passes = pipeline_passes(Analysis(Spans.of(pa.Table.from_batches(batches))))
        check_cancelled(cancelled)
        chosen = replica or 0
        if chosen >= len(passes.ranks):
            expected = f"less than {len(passes.ranks)}, the number of pipelines"
            raise must_be("replica", expected, chosen, "replica", "bad-parameter")
        whole = whole_steps(passes, chosen)
        if not len(whole):
            raise TimelineError(
                f"None of the steps {looked[0]} to {looked[-1]} is whole on every stage. Record timeline='phases' on every rank, and wait for a step to end."
            )
        found = pipeline_steps(passes, whole[-most:], chosen)
    except TimelineError as error:
        raise ClientError(str(error), code="not-found") from error
    if first is not None or last is not None:
        # All that were asked for, less those that are here or are not whole.
        found["left"] = len(wanted) - len(looked) + len(whole) - len(found["steps"])
    problems = [*passes.spans.problems, *passes.problems]
    return {"steps_there": [int(there[0]), int(there[-1])], **found, "problems": problems}
