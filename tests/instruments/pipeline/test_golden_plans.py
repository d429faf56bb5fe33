"""The golden answers of the planner, recomputed by the rules of protocol/README.md alone: nothing here is the planner's."""

import json
import re
from collections import defaultdict
from pathlib import Path

import pytest

GOLDEN = json.loads((Path(__file__).parents[3] / "protocol/fixtures/planned.json").read_text("utf-8"))
PLANNED = [
    pytest.param(case["request"], each, id=f"{name}: {each['schedule']}")
    for name, case in GOLDEN.items()
    for each in case["answer"]["schedules"]
    if "refused" not in each
]


def shared(value, parts, chunks):
    """What each of the virtual stages of one copy has: a list is shares of the model's depth, a number a stage's of all its chunks."""
    if not isinstance(value, list):
        return [value / chunks] * parts
    assert parts % len(value) == 0
    return [value[part * len(value) // parts] * len(value) / parts for part in range(parts)]


class Model:
    """A plan's operations, with what each takes, waits for and holds."""

    def __init__(self, plan, times):
        self.stages, self.two_way = plan["stages"], plan["placement"] == "two_way"
        chunks = 1 if self.two_way else plan["chunks"]
        self.parts = self.stages * chunks
        self.of = {
            name: shared(times.get(name, 0), self.parts, chunks)
            for name in (
                *("forward", "input_gradient", "weight_gradient"),
                *("optimizer", "activation_bytes", "weight_gradient_bytes", "weight_bytes"),
            )
        }
        self.orders = [
            [(int(v), kind, int(m)) for v, kind, m in re.findall(r"(\d+)([FBIW])(\d+)", order)]
            for order in plan["order"]
        ]
        self.stage_of = {(v, m): s for s, order in enumerate(self.orders) for v, _, m in order}
        self.all = {each for order in self.orders for each in order}

    def length(self, operation):
        v, kind, _ = operation
        parts = {"F": ["forward"], "I": ["input_gradient"], "W": ["weight_gradient"]}
        return sum(self.of[name][v % self.parts] for name in parts.get(kind, [*parts["I"], *parts["W"]]))

    def waits(self, operation):
        """Return what an operation waits for beside those before it on its stage."""
        v, kind, m = operation
        if kind == "F":
            return [(v - 1, "F", m)] if v % self.parts else []
        if kind == "W":
            return [(v, "I", m)]
        last = (v + 1) % self.parts == 0
        after = [] if last else [each for each in ((v + 1, "B", m), (v + 1, "I", m)) if each in self.all]
        return [(v, "F", m), *after]

    def held(self, stage):
        """Return what a stage holds at all times, and how long its optimizer takes."""
        mine = {v for v, _, _ in self.orders[stage]}
        return [sum(self.of[name][v % self.parts] for v in mine) for name in ("weight_bytes", "optimizer")]


def simulated(model, times):
    """Return when each operation begins and ends, and the bytes that each link carried."""
    span, free, carried = {}, defaultdict(float), defaultdict(int)
    arrived, busy_until = {}, defaultdict(float)
    links = {(each["from"], each["to"]): each for each in times.get("links", [])}
    waiting = [list(order) for order in model.orders]
    while any(waiting):
        before = len(span)
        for stage, order in enumerate(waiting):
            while order and all(each in span for each in model.waits(order[0])):
                operation = order.pop(0)
                v, kind, m = operation
                ready = [arrived.get((each, stage), span[each][1]) for each in model.waits(operation)]
                begin = max([busy_until[stage], *ready])
                busy_until[stage] = end = begin + model.length(operation)
                span[operation] = (begin, end)
                onto = model.stage_of.get(({"F": v + 1, "W": -1}.get(kind, v - 1), m))
                if onto in (None, stage) or (v % model.parts, kind == "F") in (
                    (0, False),
                    (model.parts - 1, True),
                ):
                    continue
                link = {**times, **links.get((stage, onto), {})}
                sent = max(end, free[stage, onto]) + link["message_bytes"] / link["bandwidth"]
                free[stage, onto] = sent
                arrived[operation, onto] = sent + link["latency"]
                carried[stage, onto] += link["message_bytes"]
        assert len(span) > before, "The plan deadlocks."
    return span, carried


@pytest.mark.parametrize(("request_", "said"), PLANNED)
def test_a_golden_plan_takes_and_holds_what_the_rules_say(request_, said):
    times = request_["times"]
    model = Model(said["plan"], times)
    span, carried = simulated(model, times)
    columns = said["operations"]
    flat = [each for order in model.orders for each in order]
    named = zip(columns["virtual_stage"], columns["kind"], columns["micro_batch"], strict=True)
    assert list(named) == flat
    assert columns["begin"] == pytest.approx([span[each][0] for each in flat])
    assert columns["end"] == pytest.approx([span[each][1] for each in flat])
    done, busy, peaks = [], [], []
    for stage, order in enumerate(model.orders):
        weights, optimizer = model.held(stage)
        done.append(span[order[-1]][1] + optimizer)
        busy.append(sum(model.length(each) for each in order) + optimizer)
        changes = []
        for v, kind, m in order:
            whole, half = (
                model.of[name][v % model.parts] for name in ("activation_bytes", "weight_gradient_bytes")
            )
            begin, end = span[v, kind, m]
            freed = {"B": whole, "I": whole - half, "W": half}
            changes.append((begin, 1, whole) if kind == "F" else (end, 0, -freed[kind]))
        holds, peak = weights, weights
        for _, _, change in sorted(changes):
            holds += change
            peak = max(peak, holds)
        peaks.append(peak)
        assert holds == pytest.approx(weights)
    step = max(done)
    assert said["nominal_ms"] == pytest.approx(step)
    assert said["done_ms"] == pytest.approx(done)
    assert said["busy_ms"] == pytest.approx(busy)
    assert said["bubble"] == pytest.approx([1 - each / step for each in busy])
    assert said["peak_bytes"] == pytest.approx(peaks)
    assert said["over_memory_bytes"] == max(0, max(peaks) - request_.get("memory_bytes", float("inf")))
    assert {(each["from"], each["to"]): each["bytes"] for each in said["links"]} == carried
    # Without jitter a step takes what it takes; with it, about that, within what is said.
    assert said["low_ms"] <= said["step_ms"] <= said["high_ms"]
    assert said["step_ms"] == pytest.approx(step, rel=times.get("jitter", 0) or 1e-12)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_best_is_the_shortest_step_that_fits(name):
    answer = GOLDEN[name]["answer"]
    fitting = {
        place: each["step_ms"]
        for place, each in enumerate(answer["schedules"])
        if "refused" not in each and not each["over_memory_bytes"]
    }
    assert answer["best"] == min(fitting, key=fitting.get, default=None)
