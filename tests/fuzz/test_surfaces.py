"""Whatever comes from outside is taken or refused with a typed error: in two seconds, 512 MB, and without the end of the process."""

import json
import os

import pytest

from tests.fuzz.kept import from_kept, read_found, to_kept
from tests.fuzz.suite import run_cases, run_inputs, shares
from tests.fuzz.surface import CATALOGUE, case_input

CASES = int(os.environ.get("MEGALENS_FUZZ_CASES", "2000"))


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


@pytest.mark.slow
@pytest.mark.parametrize("way", ["loops", "stays in C", "takes memory", "dies", "raises"])
def test_a_case_that_misbehaves_is_found_and_the_next_ones_still_run(way):
    results = run_inputs({"misbehaving": ["fine", way, "fine"]})
    (finding,) = results["misbehaving"].findings.values()
    assert finding.case == 1
    assert finding.input == way
    assert (results["misbehaving"].accepted, results["misbehaving"].cases) == (2, 3)
    said = {"loops": "TooLong", "stays in C": "SIGVTALRM", "takes memory": "MemoryError", "dies": "SIGSEGV"}
    assert said.get(way, "KeyError") in finding.trace
