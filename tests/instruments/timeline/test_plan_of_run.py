"""Plans by the times of a recorded run: the planner of the page, asked from Python."""

from __future__ import annotations

import json

import pytest
from pipeline_jobs import BACKWARD, FORWARD, LATENCY, REST, Pipeline

import megalens
from megalens.instruments.pipeline import PipelineError, plan, split

pytestmark = pytest.mark.slow


def opened(tmp_path, pipeline: Pipeline):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(pipeline.chrome(iterations=5)))
    return megalens.open(path)


def test_the_measured_order_is_planned_with_the_times_that_it_had(tmp_path):
    pipeline = Pipeline(stages=3, micro_batches=4)
    with opened(tmp_path, pipeline) as run:
        made = plan(run, "measured")
        # All forward passes, then all backward passes.
        assert made.to_json()["order"] == plan(run, "gpipe").to_json()["order"]
        assert made.step_ms == pytest.approx(pipeline.length() - REST)
        # By hand: a pass a stage and 3 ms of message down, the other micro-batches, and the same up.
        down = 3 * FORWARD + 2 * LATENCY + 3 * FORWARD
        assert made.step_ms == pytest.approx(down + 3 * BACKWARD + 2 * LATENCY + 3 * BACKWARD)
        assert plan(run, "1f1b").plan.layout.micro_batches == 4


def test_what_a_request_says_itself_is_not_taken_from_the_run(tmp_path):
    with opened(tmp_path, Pipeline(stages=2, micro_batches=4)) as run:
        wide = plan(run, "gpipe", stages=4, micro_batches=8, latency=0, activation_bytes=1e9)
        # The model of two stages in four: half of each pass.
        assert wide.step_ms == pytest.approx((8 + 3) * (FORWARD + BACKWARD) / 2)
        assert wide.peak_bytes == pytest.approx([8e9] * 4)
        with pytest.raises(PipelineError, match="measured must be the order"):
            plan(run, "measured", stages=4)


def test_a_search_of_a_run_is_no_longer_than_what_ran(tmp_path):
    with opened(tmp_path, Pipeline(stages=2, micro_batches=4)) as run:
        assert plan(run).step_ms < plan(run, "measured").step_ms


def test_times_without_a_layout_and_things_that_are_no_run_are_refused():
    with pytest.raises(PipelineError, match="must have stages=, got none"):
        plan({"forward": 1.0}, "1f1b")
    with pytest.raises(PipelineError, match="must be a run, or times"):
        plan(3.0, "1f1b")


@pytest.mark.parametrize("stages", [1, 3])
def test_a_report_of_nobodys_choice_has_the_plan_of_a_pipeline_and_of_nothing_else(tmp_path, stages):
    with opened(tmp_path, Pipeline(stages=stages, micro_batches=4)) as run:
        text = run.report(tmp_path / "report.html").read_text(encoding="utf-8")
    assert "rank" in text
    assert ("GPipe as measured" in text) == (stages > 1)


def test_a_split_is_compared_with_what_a_pipeline_measured(tmp_path):
    with opened(tmp_path, Pipeline(stages=3, micro_batches=4)) as run:
        made = split.plan(run)
        own = made.layout("own")
        assert (own["family"], [each["layers"] for each in own["stages"]]) == ("pipeline", [1, 1, 1])
        # In the order 1F1B: four micro-batches, two more to fill, and messages down and up.
        passes = (4 + 2) * (FORWARD + BACKWARD) + 4 * LATENCY
        assert made.step_ms("own") == pytest.approx(passes, rel=0.1)
        assert not made.worth_it
        # Without memory limits nothing is gained by computing twice.
        assert made.step_ms("split") > made.step_ms("other")


def test_a_run_without_backward_passes_says_nothing_about_splits(tmp_path):
    path = tmp_path / "trace.json"
    events = Pipeline(stages=2, micro_batches=4).chrome(iterations=5)
    kept = [each for each in events if "backward" not in each["name"]]
    path.write_text(json.dumps(kept))
    with megalens.open(path) as run, pytest.raises(split.SplitError, match="of every process, got none"):
        split.plan(run)
