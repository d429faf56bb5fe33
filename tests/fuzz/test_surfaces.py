"""Whatever comes from outside is taken or refused with a typed error: in two seconds, 512 MB, and without the end of the process."""

import json
import os

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz import bounds
from tests.fuzz.kept import from_kept, read_found, to_kept
from tests.fuzz.suite import Finding, Result, run_cases, run_inputs, shares
from tests.fuzz.surface import CATALOGUE, case_input, every_byte

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
def test_files_of_every_format_with_one_byte_changed_are_read_or_refused():
    """A part of them; ``python -m tests.fuzz --every-byte`` changes all."""
    changes = every_byte()
    assert {"changed_byte", "csv_folders", "jsonl", "frames", "vectors"} <= set(changes)
    each = 4 * sum(map(len, changes.values())) // CASES
    results = run_inputs(
        {name: some[:: max(1, min(each, len(some) // 20))] for name, some in changes.items()}
    )
    assert_nothing_found(results)
    assert all(result.accepted for result in results.values())
    assert results["changed_byte"].refused


@pytest.mark.slow
def test_what_was_found_once_is_found_no_more():
    by_surface = {}
    for surface, _, given in read_found():
        by_surface.setdefault(surface, []).append(given)
    assert_nothing_found(run_inputs(by_surface))


@pytest.mark.slow
def test_without_a_bound_a_test_fails():
    """One of them; ``python -m tests.fuzz.bounds`` takes all away."""
    assert bounds.main(["trainermon_anomalies.py"]) == 0


@pytest.mark.parametrize("name", ["messages", "frames", "dialect_peer"])
def test_a_case_is_the_same_whenever_it_is_made_and_another_for_each_seed(name):
    made = [[repr(case_input(name, number, seed)) for number in range(5)] for seed in (None, None, 1, 1, 2)]
    assert made[0] == made[1] != made[2] == made[3] != made[4]


@pytest.mark.slow
def test_a_run_prints_its_seed_and_a_finding_how_to_see_it_again(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(fuzz, "_FOLDER", tmp_path)
    assert fuzz.main(["--cases", "20", "patterns"]) == 0
    seed = capsys.readouterr().out.splitlines()[0].removeprefix("seed ")
    assert fuzz.main(["--case", "patterns:3", "--seed", seed]) == 0
    assert " 1 cases: " in capsys.readouterr().out
    finding = Finding("patterns", 3, "KeyError", "x")
    fuzz.report({"patterns": Result(findings={"KeyError": finding})}, int(seed))
    assert f"again: python -m tests.fuzz --case patterns:3 --seed {seed}\n" in capsys.readouterr().out


def test_what_came_of_several_rounds_is_one_result():
    one, other = Result(), Result()
    one.found(Finding("x", 1, "KeyError: a", None))
    other.found(Finding("x", 7, "KeyError: a", None))
    other.found(Finding("x", 8, "IndexError: b", None))
    other.add({"refused": 2, "accepted": 3, "seconds": 0.5, "bytes": 7})
    one.join(other)
    assert (one.cases, one.refused, one.accepted, one.seconds, one.bytes) == (8, 2, 3, 0.5, 7)
    assert [(each.case, each.count) for each in one.findings.values()] == [(1, 2), (8, 1)]


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
