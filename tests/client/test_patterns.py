"""Patterns over names mean the same everywhere and take time linear in the name."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path

import pytest

from megalens.client import ClientError
from megalens.client.moments.grouping.patterns import Pattern
from scripts.pattern_cases import random_name, random_pattern

CASES = json.loads((Path(__file__).parents[2] / "protocol/fixtures/patterns.json").read_text())


def test_the_golden_cases_hold():
    for case in CASES:
        if "refused" in case:
            with pytest.raises(ClientError, match=re.escape(f"used here: {case['refused']}. ")):
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
    started = time.perf_counter()
    assert Pattern(pattern, "p").matches(["a" * 30_000]) == [False]
    assert time.perf_counter() - started < 1


def test_what_python_compiled_may_look_ahead():
    assert Pattern(re.compile(r"a(?=b)"), "p").matches(["ab", "ac"]) == [True, False]
