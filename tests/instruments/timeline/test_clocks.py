"""Clocks of simulated jobs, whose offsets and drifts are known."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from megalens.instruments.timeline.clocks import clocks
from megalens.instruments.timeline.dependencies import dependencies
from megalens.instruments.timeline.spans import Spans
from tests.kit.simulated_jobs import Fault, Job, simulate


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


@pytest.mark.slow
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


def on_machines(table, machines, late_ns=0.0, seed=0):
    """The same spans, the ranks of a machine all by the clock of its first rank; ends are up to ``late_ns`` late."""
    columns = table.to_pydict()
    random = np.random.default_rng(seed)
    columns["clock"] = [machines[rank] for rank in columns["rank"]]
    columns["end"] = [end + int(random.exponential(late_ns)) for end in columns["end"]]
    columns["blocked"] = [end - start for start, end in zip(columns["start"], columns["end"], strict=True)]
    return pa.table(columns)


def test_ranks_that_read_one_clock_are_exact_against_each_other_however_late_their_ends_are():
    table, truth = simulate(Job(1, 1, 8, seed=7, drift_ppm=0, offset_s=0))
    busy = on_machines(table, [7] * 4 + [9] * 4, late_ns=4e6)
    found = found_of(busy)
    assert found.clock.tolist() == [0, 0, 0, 0, 4, 4, 4, 4]
    assert len(np.unique(found.offset_ns[:4])) == len(np.unique(found.drift[4:])) == 1
    assert found.between([0, 1, 2, 3]) == found.between([5, 7]) == 0
    assert 0 < found.between([3, 4]) == found.half_width_ns[4]
    # What four ranks saw is nearer than what one did.
    apart = found_of(on_machines(table, [0] * 8, late_ns=4e6))
    assert errors(found, truth).max() < errors(apart, truth).max()
    assert found.half_width_ns.max() < apart.half_width_ns.max()


def test_ranks_that_read_one_clock_need_nothing_to_connect_them():
    one, _ = simulate(Job(1, 1, 2, seed=1))
    alone = pa.concat_tables([one.filter(pc.equal(one["rank"], rank)) for rank in (0, 1)])
    alone = alone.filter(pc.not_equal(alone["kind"], "collective"))
    assert found_of(alone).component.tolist() == [0, 1]
    found = found_of(on_machines(alone, [3, 3]))
    assert (found.component.tolist(), found.problems) == ([0, 0], ())
    assert found.half_width_ns.tolist() == [0, 0]


def test_a_rank_that_says_several_clocks_or_none_has_its_own():
    table, _ = simulate(Job(1, 1, 4, seed=3))
    columns = on_machines(table, [5, 5, 5, 0]).to_pydict()
    columns["clock"] = [
        6 if rank == 1 and step > 9 else clock
        for clock, rank, step in zip(columns["clock"], columns["rank"], columns["step"], strict=True)
    ]
    assert found_of(pa.table(columns)).clock.tolist() == [0, 1, 0, 3]


def test_spans_of_before_say_no_clock():
    table, _ = simulate(Job(1, 1, 2, seed=1))
    assert found_of(table.drop_columns("clock")).clock.tolist() == [0, 1]
