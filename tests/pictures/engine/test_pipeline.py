"""What Python is told of pipeline plans is what the page computes, to the last digit."""

import json
from pathlib import Path

import pytest
from engine_bundles import built

from megalens.pictures.engine import Engine, EngineError

GOLDEN = json.loads((Path(__file__).parents[3] / "protocol/fixtures/planned.json").read_text())


def nothing(method, body):
    raise AssertionError(f"{method} was asked")


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    engine = Engine(built(tmp_path_factory.mktemp("planner"), "pipeline"))
    yield engine
    engine.close()


@pytest.mark.parametrize("name", GOLDEN)
def test_the_engine_plans_as_the_page_does(planner, name):
    answer, _ = planner.run("pipeline", GOLDEN[name]["request"], nothing)
    assert json.dumps(answer, sort_keys=True) == json.dumps(GOLDEN[name]["answer"], sort_keys=True)


def test_a_wrong_request_names_its_member(planner):
    with pytest.raises(EngineError, match="stages must be") as caught:
        planner.run("pipeline", {"stages": 0, "micro_batches": 1, "times": {"forward": 1}}, nothing)
    assert caught.value.field == "stages"


def test_planning_tells_how_far_it_is_and_can_be_given_up(planner):
    request = {
        "stages": 4,
        "micro_batches": 8,
        "times": {"forward": 1, "weight_gradient": 0.5},
        "schedules": ["1f1b", "search"],
        "effort": 1000000,
    }
    told = []

    def progress(done, total, words):
        told.append((done, total, words))
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        planner.run("pipeline", request, nothing, progress=progress)
    assert told == [(0, 2, "1F1B"), (1, 2, "Search")]
    answer, _ = planner.run("pipeline", {**request, "effort": 10}, nothing)
    assert [each["schedule"] for each in answer["schedules"]] == ["1f1b", "search"]
