"""Clocks of simulated jobs, whose offsets and drifts are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bench.timeline.jobs import Fault, Job, simulate
from megalens.timeline.clocks import clocks
from megalens.timeline.dependencies import dependencies
from megalens.timeline.spans import Spans


def errors(found, truth):
    """µs by which each rank's clock is wrong at the beginning and at the end of the recording."""
    result = []
    for time in (found.middle - 10**9, found.middle + 10**9):
        true = truth.true(found.ranks, time)
        wanted = true * (1 + truth.drift[found.component]) + truth.offset_ns[found.component]
        result.append(np.abs(found.aligned(found.ranks, time) - wanted) / 1e3)
    return np.maximum(*result)


def found_of(table):
    return clocks(dependencies(Spans.of(table)))


@pytest.mark.parametrize(
    ("job", "most"),
    [
        (Job(2, 2, 2, seed=1), 3),
        (Job(1, 1, 8, seed=2), 5),
        (Job(1, 4, 1, seed=3), 5),
        # Only messages connect the stages.
        (Job(1, 4, 1, seed=4, norm=False), 15),
        (Job(2, 4, 2, seed=5, norm=False), 15),
        # Rank 3 always comes last: its end is late, never early.
        (Job(1, 1, 4, seed=6, faults=(Fault("device", (3,), 1.5, 1, 30),)), 5),
    ],
)
def test_offsets_of_seconds_and_drifts_of_50_ppm_are_found_within_their_interval(job, most):
    table, truth = simulate(job)
    found = found_of(table)
    assert (found.component == 0).all()
    error = errors(found, truth)
    assert error.max() <= most
    assert (error <= found.half_width_ns / 1e3 + 0.1).mean() >= 0.9
    assert np.abs(found.drift + truth.drift - truth.drift[0]).max() < 5e-6
    assert found.problems == ()


def test_two_jobs_stay_apart_and_that_is_said():
    one, _ = simulate(Job(1, 1, 2, seed=1))
    two, _ = simulate(Job(1, 1, 2, seed=2))
    names = two.column_names
    shifted = two.to_pydict()
    shifted["rank"] = [rank + 2 for rank in shifted["rank"]]
    shifted["group"] = ["2-3" if group else "" for group in shifted["group"]]
    both = pa.concat_tables([one.select(names), pa.table(shifted, schema=two.schema)])
    found = found_of(both)
    assert found.component.tolist() == [0, 0, 2, 2]
    assert found.between([0, 1]) < 10_000
    assert found.between([1, 2]) == float("inf")
    assert "ranks 2, 3" in found.problems[0]
    assert "not calibrated" in found.problems[0]


def test_a_clock_that_jumps_is_named_and_what_was_before_is_kept():
    table, truth = simulate(Job(1, 1, 4, seed=3))
    columns = table.to_pydict()
    for name in ("start", "end"):
        columns[name] = [
            time + 2_000_000_000 * (rank == 2 and step >= 20)
            for time, rank, step in zip(columns[name], columns["rank"], columns["step"], strict=True)
        ]
    found = found_of(pa.table(columns, schema=table.schema))
    assert found.problems == (
        "The clock of rank 2 jumps at step 20; from there on its times are not compared.",
    )
    assert errors(found, truth)[[1, 3]].max() < 10
