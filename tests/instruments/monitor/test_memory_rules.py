"""Rules over memory, on series that are drawn by chance: planted leaks, and what healthy trainings look like."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from judging import judged, readings, step, tensors

import megalens
from megalens.instruments.monitor.rules.memory import Leak
from megalens.instruments.monitor.settings import WatchSettings
from megalens.instruments.monitor.watch import Watch
from megalens.protocol import MEMORY, MEMORY_LIMIT, MEMORY_NOW, MEMORY_PEAK, MOMENT_COLUMNS, Readings

MIB, GIB = 1 << 20, 1 << 30
STEPS = 1500


def memory(now, peak=None, limit=80 * GIB, of="device", rank=0) -> Readings:
    values = {MEMORY_NOW: now, MEMORY_PEAK: now if peak is None else peak, MEMORY_LIMIT + of: limit}
    rows = np.zeros((len(values), len(MOMENT_COLUMNS)))
    rows[:, 0], rows[:, 1] = 1, list(values.values())
    rows[:, 5] = rows[:, 6] = rows[:, 1]
    return Readings(MEMORY, rank, tuple(values), rows, counted=False)


def alarms_of(series, **more):
    """Return the alarms of a series of sizes, one a step, that begins with step 1."""
    return judged([step(at, memory(float(size), **more)) for at, size in enumerate(series, 1)])


def first_found(series):
    """Return the step in which the rule alone finds a leak, one size a step from step 1; None without one."""
    rule, floors = Leak(), None
    for at, size in enumerate(series.tolist(), 1):
        floors = rule.note(floors, at, size)
        # Whole blocks change with each block.
        if at % 50 == 0 and rule.grows(floors):
            return at
    return None


def noise(rng, size=STEPS):
    return np.abs(rng.normal(0, 2 * MIB, size))


# What is in use between steps, in bytes.
HEALTHY = {
    # A caching allocator gives the same size at each step.
    "constant": lambda rng, at: np.full(len(at), 9 * GIB),
    "noise": lambda rng, at: 2 * GIB + noise(rng),
    "sawtooth": lambda rng, at: 2 * GIB + (at % rng.integers(60, 400)) * 3 * MIB + noise(rng),
    "long sawtooth": lambda rng, at: 2 * GIB + (at % rng.integers(150, 450)) * MIB,
    # Optimizer state comes with the first step, and caches fill.
    "warm-up": lambda rng, at: (
        GIB + (at > 1) * 2 * GIB + 3e9 * (1 - np.exp(-at / rng.uniform(5, 400))) + noise(rng)
    ),
    # Each evaluation takes 2 GiB for 20 steps' time, and the first leaves 300 MiB for good.
    "evaluation": lambda rng, at: (
        2 * GIB + (at % 200 > 180) * 2 * GIB + (at > rng.integers(100, 900)) * 300 * MIB + noise(rng)
    ),
    "walk": lambda rng, at: 4 * GIB + np.cumsum(rng.normal(0, 3 * MIB, len(at))),
    # The longest text so far is kept in mind, and new longest ones are ever rarer.
    "records": lambda rng, at: GIB + np.maximum.accumulate(rng.lognormal(5, 1, len(at))) * MIB,
    "stairs": lambda rng, at: GIB + np.cumsum(rng.random(len(at)) < 0.004) * 200 * MIB,
    # The host's own objects grow a little.
    "small growth": lambda rng, at: 4 * GIB + at * rng.uniform(0, 15_000),
    "falling": lambda rng, at: 8 * GIB - at * MIB + noise(rng),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HEALTHY)
def test_healthy_series_give_no_alarm_with_any_of_300_seeds(kind) -> None:
    at = np.arange(1, STEPS + 1)
    for seed in range(300):
        series = HEALTHY[kind](np.random.default_rng(seed), at)
        assert first_found(series) is None, (kind, seed)


# Begin, and bytes a step.
LEAKS = {
    "steady": lambda rng, at: 2 * GIB + at * 300_000.0 + noise(rng),
    # A layer keeps as much as a text is long.
    "by length": lambda rng, at: 2 * GIB + np.cumsum(rng.lognormal(0, 0.6, len(at))) * 200_000 + noise(rng),
    "each tenth step": lambda rng, at: 2 * GIB + (at // 10) * 6 * MIB,
    "late": lambda rng, at: 3 * GIB + np.maximum(0, at - 600) * MIB + noise(rng),
    "under a sawtooth": lambda rng, at: 2 * GIB + (at % 25) * 20 * MIB + at * 500_000.0,
    "with evaluations": lambda rng, at: 2 * GIB + (at % 200 > 180) * 4 * GIB + at * 500_000.0,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAKS)
def test_a_planted_leak_is_found_about_500_steps_after_it_began(kind) -> None:
    at = np.arange(1, STEPS + 1)
    for seed in range(30):
        series = LEAKS[kind](np.random.default_rng(seed), at)
        begins = 600 if kind == "late" else 0
        # 500 steps, the block in which it begins, and the one in which it is told.
        assert begins + 500 <= first_found(series) <= begins + 750, seed


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEAKS)
def test_a_planted_leak_is_told_once_of_its_rank_with_its_pace_and_its_end(kind) -> None:
    at = np.arange(1, STEPS + 1)
    series = LEAKS[kind](np.random.default_rng(7), at)
    begins = 600 if kind == "late" else 0
    steps = [step(number, memory(1e9), memory(float(size), rank=1)) for number, size in enumerate(series, 1)]
    (alarm,) = judged(steps)
    assert (alarm.rule, alarm.severity, alarm.rank, alarm.stat) == ("leak", "warning", 1, MEMORY)
    pace = (alarm.value - alarm.expected) / 450
    true = (series[-1] - series[begins + 1]) / (len(series) - begins)
    assert pace == pytest.approx(true, rel=0.25) or "sawtooth" in kind or "evaluations" in kind
    assert "with each step. At this pace the 85.9 GB of the device last for" in alarm.sentence
    assert (alarm.direction, alarm.cause) == ("compute", 0)


def test_memory_near_its_limit_is_told_with_what_has_the_limit() -> None:
    for of, words in (("device", "the device"), ("cgroup", "its control group"), ("machine", "the machine")):
        peaks = [50, 90, 94, 96, 96, 20]
        steps = [
            step(at, memory(10e9, peak * 1e9, 100e9, of), memory(10e9, 20e9, 100e9, of, rank=1))
            for at, peak in enumerate(peaks, 1)
        ]
        (alarm,) = judged(steps)
        assert (alarm.step, alarm.rule, alarm.rank, alarm.value) == (4, "memory_limit", 0, 96e9)
        assert alarm.sentence == f"96 GB were in use, 96 % of the 100 GB of {words}."
    # Where the limit is not known nothing is near it.
    assert alarms_of([10e9] * 3, peak=99e9, limit=0) == []


def test_thresholds_are_settings() -> None:
    series = 2 * GIB + np.arange(1, 200) * 2.0 * MIB
    assert alarms_of(series) == []
    quick = WatchSettings.of({"rules": {"leak": {"steps": 100}, "memory_limit": {"share": 0.5}}})
    steps = [step(at, memory(float(size), limit=4 * GIB)) for at, size in enumerate(series, 1)]
    found = judged(steps, quick)
    assert sorted(alarm.rule for alarm in found) == ["leak", "memory_limit"]
    off = WatchSettings.of({"rules": {"leak": {"steps": 100, "on": False}}})
    assert judged(steps, off) == []


def test_memory_explains_no_other_alarm_and_is_judged_by_no_other_rule() -> None:
    rng = np.random.default_rng(0)
    values = tensors(rng)
    # Sizes that would be a jump, a collapse and a drift of a tensor's values.
    sizes = [GIB] * 80 + [40 * GIB] * 80 + [MIB] * 80
    steps = [
        step(at, readings("grad", values), *(memory(float(size), rank=rank) for rank in range(4)))
        for at, size in enumerate(sizes, 1)
    ]
    assert judged(steps) == []
    broken = dict(values)
    broken[next(iter(broken))] = np.array([np.nan])
    steps = [step(at, readings("grad", values), memory(10e9)) for at in range(1, 30)]
    steps += [step(30, readings("grad", broken), memory(10e9, peak=99e9, limit=100e9))]
    found = judged(steps)
    assert {(alarm.rule, alarm.severity, alarm.cause > 0) for alarm in found} == {
        ("memory_limit", "warning", False),
        ("nonfinite", "critical", True),
    }


def test_a_gap_in_the_steps_begins_anew() -> None:
    first = [step(at, memory(2e9 + at * MIB)) for at in range(1, 401)]
    then = [step(at, memory(2e9 + at * MIB)) for at in range(1000, 1401)]
    assert judged([*first, *then]) == []


@pytest.mark.slow
def test_a_training_that_keeps_its_outputs_is_told_and_one_that_does_not_is_not() -> None:
    for leaks in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        kept = []
        rules = {"rules": {"leak": {"steps": 200}}}
        options = {"param": 1, "grad": 0, "activation": 0, "optimizer_state": 0, "inputs": 0}
        with megalens.monitor(model, optimizer, hub=None, rules=rules, **options) as monitor:
            for _ in range(400):
                with monitor.step():
                    loss = model(torch.randn(4, 16)).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    if leaks:
                        kept.append(torch.ones(MIB // 4))
        found = [alarm for alarm in monitor.alarms if alarm.stat == MEMORY]
        assert [alarm.rule for alarm in found] == (["leak"] if leaks else [])


def test_the_watch_itself_keeps_little_of_each_step() -> None:
    watch = Watch()
    for at in range(1, 1000):
        watch.judge(step(at, memory(2e9 + at)))
    kept = watch._tables._memory["leak", 0]
    assert len(kept) < 100
    assert all(len(each) <= 12 for each in kept)
