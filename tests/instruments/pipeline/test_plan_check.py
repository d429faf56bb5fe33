"""What is said of plans, right and wrong."""

import json
from pathlib import Path

import pytest
from own_plans import ALL, plan_named, random_plan

from megalens.instruments.pipeline import PipelineError, Plan, check_plan

CASES = json.loads((Path(__file__).parents[3] / "protocol/fixtures/plans.json").read_text())


@pytest.mark.parametrize("case", CASES)
def test_a_golden_plan_is_taken_or_refused_for_what_is_wrong(case: str) -> None:
    wanted = CASES[case]
    if "code" not in wanted:
        check_plan(Plan.of(wanted["plan"]))
        return
    with pytest.raises(PipelineError) as caught:
        check_plan(Plan.of(wanted["plan"]))
    said = {name: getattr(caught.value, name) for name in ("code", "operation", "stage", "micro_batch")}
    assert said == {name: wanted[name] for name in said}


@pytest.mark.parametrize("name", ALL)
def test_the_plans_of_these_tests_are_right(name: str) -> None:
    check_plan(Plan.of(plan_named(name, 4, 8)))


def test_a_random_order_is_right() -> None:
    for seed in range(20):
        check_plan(Plan.of(random_plan(seed, 3, 4)))


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (3, "an object"),
        ({"order": []}, "must have"),
        (b"{", "JSON"),
        ("no/such.json", "cannot be read"),
        ({**CASES["one stage"]["plan"], "placement": "ring"}, "loop, v, two_way"),
        ({**CASES["one stage"]["plan"], "stages": 5000}, "1 to 1024"),
        ({**CASES["one stage"]["plan"], "order": [3]}, "list of texts"),
    ],
)
def test_what_is_no_plan_is_refused_in_words(given: object, word: str) -> None:
    with pytest.raises(PipelineError, match=word) as caught:
        Plan.of(given)
    assert caught.value.code == "shape"


def test_a_plan_comes_back_from_its_file_as_it_was(tmp_path) -> None:
    written = CASES["two chunks in a V"]["plan"]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(written))
    assert Plan.of(str(path)).to_json() == Plan.of(path).to_json() == written
