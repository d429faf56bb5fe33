"""Ranges of steps that something lacks."""

import pytest

from megalens.hub.stream_folder import StepRanges


def ranges(*steps):
    result = StepRanges()
    for step in steps:
        result.add(step)
    return result.to_list()


def test_neighbours_become_one_range_in_any_order():
    assert ranges(5, 3, 4, 9, 9, 1) == [[1, 1], [3, 5], [9, 9]]


def test_nothing_lacks_nothing():
    assert ranges() == []
    assert not StepRanges()


def test_a_range_swallows_what_lies_in_it():
    result = StepRanges()
    result.add(2, 3)
    result.add(1, 10)
    assert result.to_list() == [[1, 10]]


@pytest.mark.slow
def test_too_many_ranges_never_say_too_little():
    result = StepRanges()
    for step in range(0, 6000, 3):
        result.add(step)
    kept = result.to_list()
    assert len(kept) <= 1000
    assert all(any(low <= step <= high for low, high in kept) for step in range(0, 6000, 3))
