"""Texts of ranges mean the same on both sides: the cases are golden, and jest reads them, too."""

import itertools
import json
import tracemalloc
from pathlib import Path

import pytest

from megalens.protocol import ProtocolError, in_ranges, join_numbers, ranges_text, read_ranges

CASES = json.loads((Path(__file__).parents[2] / "protocol/fixtures/ranges.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES["texts"], ids=lambda case: repr(case["text"]))
def test_a_text_of_ranges_means_what_the_golden_cases_say(case):
    if "message" in case:
        with pytest.raises(ProtocolError) as refused:
            read_ranges(case["text"], "layers")
        assert (refused.value.message, refused.value.field) == (case["message"], "layers")
        return
    found = read_ranges(case["text"], "layers")
    assert found == (None if case["ranges"] is None else tuple(map(tuple, case["ranges"])))


@pytest.mark.parametrize("case", CASES["numbers"], ids=lambda case: repr(case["text"]))
def test_numbers_are_written_as_the_golden_cases_say(case):
    assert ranges_text(join_numbers(case["numbers"])) == case["text"]


@pytest.mark.parametrize(
    ("value", "ranges"),
    [(None, None), (3, ((3, 3),)), (range(4), ((0, 3),)), (range(0), ()), ({2, 0}, ((0, 0), (2, 2)))],
)
def test_what_a_person_may_write_in_python_is_read_too(value, ranges):
    assert read_ranges(value, "layers") == ranges


@pytest.mark.parametrize("value", [True, 1.5, [1, "2"], [False], b"1", {"a": 1}, itertools.repeat(1.5)])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ProtocolError, match="layers must be a number, several numbers, 'all' or ranges"):
        read_ranges(value, "layers")


def test_wide_ranges_and_long_texts_take_no_memory():
    long = "1," * 100_000 + "1"
    tracemalloc.start()
    try:
        assert in_ranges(999_999_999, read_ranges("0-999999999", "layers"))
        assert read_ranges(range(10**12), "layers") == ((0, 10**12 - 1),)
        with pytest.raises(ProtocolError):
            read_ranges(long, "layers")
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_endless_numbers_are_refused():
    with pytest.raises(ProtocolError):
        read_ranges(itertools.count(), "layers")
