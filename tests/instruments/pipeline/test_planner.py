"""Plans from the engine's planner, in Python."""

import json
import subprocess
import sys

import pytest

from megalens.instruments.pipeline import PipelineError, Plan, check_plan, plan
from megalens.instruments.pipeline.orders import NAMES
from megalens.instruments.pipeline.plan_type import Placement
from megalens.instruments.pipeline.planner import compare_plans, plan_of_name

pytestmark = pytest.mark.slow


def test_a_plan_says_what_a_step_of_it_is(tmp_path) -> None:
    made = plan(
        {"forward": 4.0, "activation_bytes": 1 << 30}, "1f1b", stages=4, micro_batches=8, memory="20GiB"
    )
    assert made.schedule == "1f1b"
    # (M + P - 1) passes, forward and backward, of 4 and 8 ms.
    assert made.step_ms == pytest.approx(11 * 12)
    assert made.bubble == pytest.approx([3 / 11] * 4)
    assert made.peak_bytes == pytest.approx([4 << 30, 3 << 30, 2 << 30, 1 << 30])
    table = made.operations
    assert len(table) == 2 * 4 * 8
    assert set(table["kind"]) == {"F", "B"}
    assert table["end"].max() == pytest.approx(made.step_ms)
    check_plan(Plan.of(made))
    path = made.save(tmp_path / "plan.json")
    assert Plan.of(path) == made.plan
    assert json.loads(path.read_text()) == made.to_json()
    assert "1f1b: 4 stages" in repr(made)


def test_the_steady_period_tells_schedules_apart_whose_stages_begin_one_after_the_other() -> None:
    times = {"forward": 4.0, "input_gradient": 4.0, "weight_gradient": 4.0}
    first, second = (plan(times, name, stages=4, micro_batches=8) for name in ("zb_h1", "zb_h2"))
    # Both steps are as long, with (P - 1) F of skew in the second one.
    assert first.step_ms == second.step_ms == pytest.approx(8 * 12 + 3 * 4)
    assert first.bubble == pytest.approx(second.bubble)
    assert first.period_ms == pytest.approx(8 * 12 + 3 * 4)
    assert second.period_ms == pytest.approx(8 * 12)
    assert repr(second).endswith("108 ms, steady 96 ms>")


def test_every_schedule_has_a_plan_by_its_name() -> None:
    shapes = {"zb_v": ("v", 2), "dualpipev": ("v", 2), "dualpipe": ("two_way", 2)}
    for name in NAMES:
        one = name in ("gpipe", "1f1b", "zb_h1", "zb_h2")
        layout = Placement(*shapes.get(name, ("loop", 1 if one else 2))[:1], 4, 1 if one else 2, 8)
        made = Plan.of(plan_of_name(name, layout))
        assert made.layout == layout
        check_plan(made)


def test_plans_are_compared_with_the_one_that_runs() -> None:
    layout = Placement("loop", 2, 1, 4)
    running = Plan.of(plan_of_name("gpipe", layout))
    found = compare_plans(layout, {"forward": [1.0, 2.0]}, running)
    assert Plan.of(found[0][0]).schedule == "gpipe"
    assert {"gpipe", "1f1b", "zb_h1", "zb_h2"} <= {Plan.of(each).schedule for each, _ in found}
    assert all(ms > 0 for _, ms in found)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"memory": "20 cats"}, "20GiB"),
        ({"memory": -1}, "above 0"),
        ({"memory": "1kB"}, "needs 1.07 GB"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_words(given: dict, word: str) -> None:
    with pytest.raises(PipelineError, match=word):
        plan({"forward": 4.0, "activation_bytes": 1 << 30}, "search", stages=4, micro_batches=8, **given)


def test_plans_are_made_where_there_is_no_torch() -> None:
    code = (
        "import megalens, sys; megalens.pipeline.plan; megalens.pipeline.Plan; print('torch' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        == "False\n"
    )
