"""Which spans are one collective or one message, of rows by hand."""

from __future__ import annotations

import pyarrow as pa
from span_rows import table

from megalens.instruments.timeline.dependencies import dependencies
from megalens.instruments.timeline.spans import Spans


def events(*rows):
    found = dependencies(Spans.of(table(*rows)))
    spans = found.spans
    together = [
        [(int(spans.rank[row]), int(spans.start[row])) for row in found.of(event)]
        for event in range(found.count)
        if found.complete[event]
    ]
    return sorted(together), found.problems


def test_collectives_belong_together_by_name_group_and_number_whatever_the_clocks_say():
    pairs, problems = events(
        *({"rank": 0, "start": at, "end": at + 5, "sequence": at} for at in (1, 2)),
        *({"rank": 1, "start": 900 - at, "end": 905 - at, "sequence": at} for at in (1, 2)),
        *({"rank": rank, "start": 50, "end": 60, "name": "broadcast", "sequence": 1} for rank in (0, 1)),
    )
    assert pairs == [[(0, 1), (1, 899)], [(0, 2), (1, 898)], [(0, 50), (1, 50)]]
    assert problems == ()


def test_without_numbers_the_order_in_the_step_says_it():
    pairs, _ = events(
        *(
            {"rank": rank, "step": step, "start": 100 * step + at + 7 * rank, "end": 100 * step + at + 9}
            for rank in (0, 1)
            for step in (1, 2)
            # Rank 1 recorded one more in step 1 only: step 2 fits all the same.
            for at in range(2 + (rank and step == 1))
        ),
    )
    assert pairs == [[(0, 100), (1, 107)], [(0, 101), (1, 108)], [(0, 200), (1, 207)], [(0, 201), (1, 208)]]


def test_a_message_is_a_send_and_its_receive_in_both_directions_of_a_pair():
    message = {"group": "0-3", "name": "isend"}
    pairs, problems = events(
        {**message, "kind": "send", "rank": 2, "peer": 1, "sequence": 0, "start": 5},
        {**message, "kind": "receive", "rank": 1, "peer": 2, "sequence": 0, "start": 6},
        {**message, "kind": "send", "rank": 1, "peer": 2, "sequence": 0, "start": 7},
        {**message, "kind": "receive", "rank": 2, "peer": 1, "sequence": 0, "start": 8},
        {**message, "kind": "send", "rank": 3, "peer": 2, "sequence": 4, "start": 9},
    )
    assert pairs == [[(1, 7), (2, 8)], [(2, 5), (1, 6)]]
    assert problems == ("1 of 3 messages have no other end in the recording; they are left out.",)


def test_what_lacks_a_rank_has_one_twice_or_a_foreign_one_is_said_and_left_out():
    pairs, problems = events(
        *({"rank": rank, "group": "0-2", "sequence": 0} for rank in (0, 2)),
        *({"rank": 0, "group": "0-1", "sequence": 1, "start": at} for at in (0, 1)),
        *({"rank": rank, "group": "4-5", "sequence": 2} for rank in (4, 6)),
        *({"rank": rank, "group": "0-1", "sequence": 3} for rank in (0, 1)),
        {"rank": 7, "group": "7"},
        {"rank": 0, "group": "no ranks", "sequence": 3},
    )
    assert pairs == [[(0, 0), (1, 0)]]
    assert problems == (
        "1 × all_reduce of 0-2 lack rank 1; they are left out.",
        "1 × all_reduce of 0-1 lack rank 1; they are left out.",
        "1 × all_reduce of 4-5 lack rank 5; they are left out.",
        "1 × all_reduce of no ranks have ranks that are not of the group, or one twice; they are left out.",
    )


def test_spans_that_end_before_they_begin_or_are_of_an_unknown_kind_are_said_and_left_out():
    spans = Spans.of(
        table(
            {"start": 10, "end": 5},
            {"rank": 3, "kind": "dance"},
            {"rank": 1, "start": 4, "end": 6, "blocked": 99},
        )
    )
    assert spans.problems == (
        "1 spans of rank 0 end before they begin; they are left out.",
        "1 spans of rank 3 are of an unknown kind; they are left out.",
    )
    assert spans.rank.tolist() == [1]
    assert spans.blocked.tolist() == [2]


def test_rows_in_any_order_of_clocks_hours_apart_become_ordered_by_rank_and_time():
    hours = 3600 * 10**9
    rows = [
        {"rank": rank, "start": rank * 90 * hours + at, "end": rank * 90 * hours + at + long}
        for rank in (2, 0, 1)
        for at, long in ((5, 1), (0, 9), (0, 20))
    ]
    spans = Spans.of(table(*rows))
    assert spans.rank.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert (spans.end - spans.start).tolist() == [20, 9, 1] * 3


def test_nothing_is_no_error():
    empty = table({})[:0]
    found = dependencies(Spans.of(empty))
    assert (found.count, found.problems) == (0, ())
    assert isinstance(empty, pa.Table)
