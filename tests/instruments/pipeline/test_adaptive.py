"""The order that measures itself: it changes for more than its own uncertainty, goes back, and says why."""

import time

import pytest
from own_plans import plan_named
from processes import run_job

from megalens.instruments.pipeline.adaptive import Adaptive
from megalens.instruments.pipeline.orders import GreedyRule
from megalens.instruments.pipeline.plan_type import Placement, Plan


@pytest.mark.slow
def test_a_plan_that_is_faster_is_found_and_kept() -> None:
    (ran, decisions, asked), (other, _, _) = run_job(
        2, "adaptive_work:chosen", "bad", {"good": 35.0, "bad": 55.0}, 70
    )
    assert ran == other
    assert ran[0] == "bad"
    # The greedy rule may be tried, which is as fast.
    assert list(dict.fromkeys(ran))[:2] == ["bad", "good"]
    assert ran[-1] in ("good", "greedy (breadth first)")
    text = "\n".join(decisions)
    assert "good should take" in text
    assert "±" in text
    assert "uncertainty" in text
    times, running = asked[0]
    assert running == "bad"
    # As slow as the modules are made, in ms.
    assert all(each > 6 for each in times["forward"])
    assert all(each > 0 for each in times["input_gradient"])


@pytest.mark.slow
def test_a_plan_that_only_promised_to_be_faster_is_left_again() -> None:
    (ran, decisions, _), _ = run_job(2, "adaptive_work:chosen", "good", {"bad": 1.0, "good": 36.0}, 70)
    assert "bad" in ran
    assert ran[-1] != "bad"
    assert any("not faster" in each for each in decisions)


class _Board:
    decides = True

    def __init__(self) -> None:
        self.held: dict = {}

    def publish(self, name, value) -> None:
        self.held[name] = value

    def last_post(self, name):
        return self.held.get(name)


def _run(adaptive: Adaptive, order, name: str, steps) -> None:
    for ms in steps:
        adaptive.step_ended(order, name, ms, [])
        deadline = time.monotonic() + 60
        while adaptive._busy.is_set():
            assert time.monotonic() < deadline
            time.sleep(0.001)


def test_nothing_changes_for_less_than_the_uncertainty() -> None:
    asked, said = [], []
    plan = Plan.of(plan_named("1f1b", 2, 4))
    other = plan_named("gpipe", 2, 4)
    adaptive = Adaptive(
        plan.layout,
        0,
        _Board(),
        lambda *given: asked.append(given),
        said.append,
        # 2 ms less, where steps vary by 10.
        lambda *_: [(plan.to_json(), 100.0), (other, 98.0)],
        rules=False,
    )
    adaptive._board.publish("times/1", {})
    _run(adaptive, plan, "1f1b", [90, 110] * 6)
    assert asked == []
    assert "promises more than the uncertainty" in said[0]
    # And so it does where they are steady.
    _run(adaptive, plan, "1f1b", [100.0, 100.1] * 5)
    assert [given[0].schedule for given in asked] == ["gpipe"]


def test_a_rule_is_tried_once_and_left_where_it_is_not_faster() -> None:
    asked, said = [], []
    plan = Plan.of(plan_named("interleaved_1f1b", 2, 4))
    adaptive = Adaptive(plan.layout, 0, _Board(), lambda *given: asked.append(given), said.append, None)
    adaptive._board.publish("times/1", {"F1": 1.0, "B1": 2.0, "F3": 1.0})
    _run(adaptive, plan, "1f1b", [100.0, 101.0] * 6)
    assert asked[-1][0] == GreedyRule("breadth")
    _run(adaptive, GreedyRule("breadth"), "greedy (breadth first)", [100.0, 101.0] * 6)
    assert asked[-1][0] == plan
    _run(adaptive, plan, "1f1b", [100.0, 101.0] * 6)
    assert asked[-1][0] == GreedyRule("depth")
    _run(adaptive, GreedyRule("depth"), "greedy (depth first)", [80.0, 81.0] * 6)
    assert "greedy (depth first) stays" in said[-2]
    assert len(asked) == 3
    # It gets slow: others are looked at anew.
    _run(adaptive, GreedyRule("depth"), "greedy (depth first)", [140.0, 141.0] * 5)
    assert any("looked at anew" in each for each in said)
    assert asked[-1][0] == GreedyRule("breadth")


def test_a_greedy_choice_costs_microseconds_however_many_micro_batches_there_are() -> None:
    from megalens.instruments.pipeline.orders import GreedyOrder

    spent = {}
    for micro_batches in (128, 1280):
        layout = Placement("loop", 64, 2, micro_batches)
        held = layout.held_by(3)
        best = 1e9
        for _ in range(3):
            order = GreedyOrder(layout, held, "depth", None)
            began = time.thread_time()
            for virtual in held:
                for number in range(micro_batches):
                    order.arrived("F", virtual, number)
                    order.arrived("B", virtual, number)
            count = 0
            while not order.over:
                order.ended(order.next())
                count += 1
            best = min(best, time.thread_time() - began)
        assert count == 4 * micro_batches
        spent[micro_batches] = best / count
    # A few microseconds each; looking through all of ten times as many would take ten times as long.
    assert max(spent.values()) < 60e-6
