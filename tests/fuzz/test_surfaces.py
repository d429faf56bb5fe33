"""Whatever comes from outside is taken or refused with a typed error: in two seconds, 512 MB, and without the end of the process."""

import json
import os

import pytest

from tests.fuzz.kept import from_kept, read_found, to_kept
from tests.fuzz.suite import run_cases, run_inputs, shares
from tests.fuzz.surface import CATALOGUE, case_input
from tests.fuzz.surfaces.changed_byte import all_changes

CASES = int(os.environ.get("MEGALENS_FUZZ_CASES", "1000"))


def assert_nothing_found(results):
    found = [
        f"{each.surface}:{each.case} ({each.count} such) {each.place}\n{each.trace[-1500:]}\ninput: {json.dumps(each.input)[:500]}\n"
        f"Again: python -m tests.fuzz --case {each.surface}:{each.case}"
        for result in results.values()
        for each in result.findings.values()
    ]
    assert not found, "\n\n".join(found)


@pytest.mark.slow
@pytest.mark.timeout(200 + CASES // 100)
def test_many_cases_of_every_surface_find_nothing():
    results = run_cases(shares(CASES))
    assert_nothing_found(results)
    assert set(results) == set(CATALOGUE)
    # What refuses everything tests only its door.
    assert all(result.accepted for result in results.values())
    assert sum(result.cases for result in results.values()) >= CASES - len(CATALOGUE)


@pytest.mark.slow
@pytest.mark.timeout(200 + CASES // 10)
def test_recordings_of_every_format_with_one_byte_changed_are_read_or_refused():
    """A part of them; ``python -m tests.fuzz --every-byte`` changes all."""
    changes = all_changes()
    results = run_inputs({"changed_byte": changes[:: max(1, 2 * len(changes) // CASES)]})
    assert_nothing_found(results)
    assert results["changed_byte"].accepted
    assert results["changed_byte"].refused


@pytest.mark.slow
def test_what_was_found_once_is_found_no_more():
    by_surface = {}
    for surface, _, given in read_found():
        by_surface.setdefault(surface, []).append(given)
    assert_nothing_found(run_inputs(by_surface))


@pytest.mark.parametrize("name", ["messages", "frames", "dialect_peer"])
def test_a_case_is_the_same_whenever_it_is_made(name):
    assert [repr(case_input(name, number)) for number in range(5)] == [
        repr(case_input(name, number)) for number in range(5)
    ]


def test_an_input_is_kept_as_json():
    given = {"a": [b"\x00\xff", "\ud800", 1.5, None], "$x": {}}
    assert from_kept(json.loads(json.dumps(to_kept(given)))) == given


SAID = {
    "loops": "TooLong",
    "stays in C": "SIGVTALRM",
    "takes memory": "MemoryError",
    "dies": "SIGSEGV",
    "raises": "KeyError",
}


@pytest.mark.slow
# Of cases that end the process one is kept, so that each of them runs without the other.
@pytest.mark.parametrize("ways", [("loops", "takes memory", "raises", "dies"), ("stays in C",)])
def test_cases_that_misbehave_are_found_and_the_next_ones_still_run(ways):
    given = ["fine", *(each for way in ways for each in (way, "fine"))]
    result = run_inputs({"misbehaving": given})["misbehaving"]
    found = {finding.input: finding for finding in result.findings.values()}
    assert {way: finding.case for way, finding in found.items()} == {way: given.index(way) for way in ways}
    assert [way for way in ways if SAID[way] not in found[way].trace] == []
    assert (result.accepted, result.cases) == (len(ways) + 1, len(given))
