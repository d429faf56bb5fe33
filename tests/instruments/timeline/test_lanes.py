"""Critical paths and spans that are searched for."""

from __future__ import annotations

import numpy as np
import pytest
from span_rows import table

from megalens.instruments.timeline.analysis import analyse
from megalens.instruments.timeline.lanes import _pieces, found_of, path_of, sums_of
from megalens.instruments.timeline.spans import KINDS
from tests.kit.simulated_jobs import Fault, Job, simulate

MS = 1_000_000


def span(rank, kind, begin, end, **more):
    usual = {"name": "", "group": ""} if kind != "collective" else {}
    return {"rank": rank, "kind": kind, "start": begin * MS, "end": end * MS, "sequence": 0, **usual, **more}


def test_the_path_goes_back_to_whoever_came_last():
    analysis = analyse(
        table(
            span(0, "step", 0, 100),
            span(0, "forward", 0, 30),
            span(0, "collective", 30, 85),
            span(0, "optimizer", 85, 100),
            span(1, "step", 0, 96),
            span(1, "forward", 0, 80),
            span(1, "collective", 80, 85),
            span(1, "optimizer", 85, 96),
        )
    )
    path = [(each["rank"], round(each["begin"]), round(each["end"])) for each in path_of(analysis, None)]
    assert path == [(0, 80, 100), (1, 0, 80)]


def test_a_receive_leads_to_its_sender_and_a_send_to_nobody():
    message = {"name": "irecv", "peer": 0}
    analysis = analyse(
        table(
            span(0, "step", 0, 60),
            span(0, "forward", 0, 50),
            span(0, "send", 50, 51, name="isend", peer=1, blocked=0),
            span(1, "step", 0, 90),
            span(1, "receive", 2, 55, **message),
            span(1, "forward", 55, 90),
        )
    )
    analysis.clocks  # noqa: B018  (two ranks that one message connects have clocks of their own)
    path = path_of(analysis, None)
    assert [each["rank"] for each in path] in ([1, 0], [1])


def test_the_paths_of_a_job_are_whole_and_mostly_on_its_slow_rank():
    fault = Fault("device", (2,), 1.5, 1, 6)
    analysis = analyse(simulate(Job(2, 2, 2, steps=6, seed=5, faults=(fault,)))[0])
    path = path_of(analysis, None)
    begins = {each["begin"] for each in path}
    # Each piece goes on where the one before ended, but for the six ends of steps.
    assert sum(each["end"] not in begins for each in path) == 6
    on = {
        rank: sum(each["end"] - each["begin"] for each in path if each["rank"] == rank) for rank in range(8)
    }
    assert on[2] > 0.4 * sum(on.values())
    assert path_of(analysis, (0.0, 1e-3)) != []


def test_more_steps_than_can_be_seen_have_no_path():
    assert path_of(analyse(simulate(Job(1, 1, 2, steps=31, seed=5))[0]), None) == []


def test_spans_are_found_by_a_part_of_their_name_or_kind():
    analysis = analyse(simulate(Job(2, 1, 2, steps=3, micro_batches=2, seed=5))[0])
    spans = analysis.spans
    found = found_of(analysis, [0, 1], "REDUCE_sc")
    assert found["count"] == len(found["first"]) == 2 * 3
    assert [each["step"] for each in found["first"]] == [1, 1, 2, 2, 3, 3]
    assert found_of(analysis, [0, 1, 2, 3], "optim")["count"] == int(spans.of_kind("optimizer").sum())
    assert found_of(analysis, [0], "nothing of the kind")["first"] == []


def test_spans_that_are_found_are_numbered_and_come_by_pages():
    analysis = analyse(simulate(Job(1, 1, 2, steps=150, seed=1))[0])
    found = found_of(analysis, [0, 1], "forward")
    assert found["count"] >= 300
    rest = found_of(analysis, [0, 1], "forward", 200)
    assert (len(found["first"]), rest["since"], rest["count"]) == (200, 200, found["count"])
    assert rest["first"][0]["begin"] >= found["first"][-1]["begin"]


def test_a_selection_is_summed_by_name_and_only_within_it():
    analysis = analyse(
        table(
            span(0, "step", 0, 100),
            span(0, "forward", 0, 40),
            span(0, "backward", 40, 90),
            span(1, "step", 0, 100),
            span(1, "forward", 0, 50),
            span(1, "user", 60, 80, name="evaluation"),
        )
    )
    assert sums_of(analysis, [0, 1], (30.0, 70.0)) == [
        {"kind": "forward", "name": "", "count": 2, "total": 30.0},
        {"kind": "backward", "name": "", "count": 1, "total": 30.0},
        {"kind": "user", "name": "evaluation", "count": 1, "total": 10.0},
    ]
    assert [each["kind"] for each in sums_of(analysis, [1], (0.0, 55.0))] == ["forward"]
    assert sums_of(analysis, [0], (200.0, 300.0)) == []


@pytest.mark.parametrize("columns", [300, 1000, 3000])
@pytest.mark.parametrize("steps", [10, 1000, 100_000])
def test_one_long_span_among_many_gives_its_pixel_its_kind(columns, steps):
    at = int(steps * 0.617)
    kind = np.tile([KINDS.index("forward"), KINDS.index("backward")], steps)
    begin, length = np.arange(2.0 * steps), np.ones(2 * steps)
    begin[2 * at + 1 :] += 30
    kind[2 * at], length[2 * at] = KINDS.index("checkpoint"), 30
    zeros, rows = np.zeros(2 * steps, np.int64), np.arange(2 * steps)
    drawn = {"lane": zeros, "depth": zeros, "kind": kind, "row": rows, "begin": begin, "end": begin + length}
    shown = (0.0, float(begin[-1] + 1))
    pieces = _pieces(drawn, shown, columns)
    mine = pieces["kind"] == KINDS.index("checkpoint")
    assert mine.sum() == 1
    [left], [right] = pieces["begin"][mine], pieces["end"][mine]
    pixel = shown[1] / columns
    assert right - left >= min(30, 0.999 * pixel)
    assert left - pixel <= begin[2 * at] <= right
