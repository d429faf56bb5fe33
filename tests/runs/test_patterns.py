"""Patterns over names mean the same everywhere and take time linear in the name."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest

from megalens.runs import ClientError
from megalens.runs.moments.grouping.name_filter import Pattern
from scripts.pattern_cases import random_name, random_pattern

CASES = json.loads((Path(__file__).parents[2] / "protocol/fixtures/patterns.json").read_text())


def test_the_golden_cases_hold():
    for case in CASES:
        if "refused" in case:
            with pytest.raises(ClientError, match=r"used here: .+"):
                Pattern(case["pattern"], "p")
        else:
            found = Pattern(case["pattern"], "p").captures(case["names"])
            assert {**case, "found": [one and list(one) for one in found]} == case


def test_a_random_pattern_finds_what_pythons_own_expressions_find():
    rng = random.Random(5)
    for _ in range(300):
        pattern = random_pattern(rng)[:60]
        try:
            read = Pattern(pattern, "p")
        except ClientError:
            continue
        # Python, alone, finds no \\B in an empty text.
        names = [random_name(rng) or "a" for _ in range(8)]
        own = re.compile(pattern.replace("$", r"\Z"), re.ASCII)
        assert read.matches(names) == [own.search(name) is not None for name in names], pattern
        assert [one is not None for one in read.captures(names)] == read.matches(names)


@pytest.mark.parametrize(
    "pattern", [r"(\w+\.?)+#", "(a+)+b$", "(a|a)*b", "(.{0,300}x)#", "(?:a?){100}a{100}#"]
)
def test_no_pattern_goes_back_in_a_long_name(pattern):
    started = time.thread_time()
    assert Pattern(pattern, "p").matches(["a" * 30_000]) == [False]
    assert time.thread_time() - started < 1


def test_what_python_compiled_may_look_ahead():
    assert Pattern(re.compile(r"a(?=b)"), "p").matches(["ab", "ac"]) == [True, False]


def test_what_is_long_once_its_repeats_are_written_out_is_refused_in_no_time():
    for longest in (
        "a{993}",
        "(?:a?){330}",
        "(a{0,300})",
        "(?:(a)|b){140}",
        "(a)" * 166,
        "[a-z]{3,}\\.\\d{1,4}",
    ):
        assert Pattern(longest, "p").matches([""]) is not None
    started = time.thread_time()
    for long in (
        "a{1000}{1000}",
        "(a?){1000}(a?){1000}",
        f"({'a' * 490}){{1000}}",
        r"(?:\pL{30}|[^a]{30}){30}",
    ):
        with pytest.raises(ClientError, match="more than 1000 positions"):
            Pattern(long, "p")
    assert time.thread_time() - started < 1


def test_groups_are_counted_and_named_as_they_stand_in_the_pattern():
    read = Pattern(r"(?i:[()[:alpha:]]+)\(\Q(\E(?P<n>a)((?:b))[]()](?<m>\x{28})(?s-i:.)(?m)", "p")
    assert read.group_names == ["n", None, "m"]
    assert read.captures(["x((ab](\n"]) == [("a", "b", "(")]
    assert Pattern(r"\Qa)", "p").captures(["ba)"]) == [("a)",)]


@pytest.mark.parametrize("pattern", ["[[:]", r"\C", "(?P<é>a)", "(?<a>)(?<a>)"])
def test_what_the_page_reads_otherwise_is_refused(pattern):
    with pytest.raises(ClientError):
        Pattern(pattern, "p")
