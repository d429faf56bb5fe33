"""What each rule finds: tensors in, alarms out; and nothing in steps that are as those before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import NAMES, found, judged, readings, step, tensors

from megalens.instruments.monitor.settings import WatchSettings
from megalens.protocol import StepReadings

N = NAMES[3]


def healthy(count=20, stat="grad", seed=0, **more):
    rng = np.random.default_rng(seed)
    return [step(at, readings(stat, tensors(rng)), **more) for at in range(1, count + 1)]


def with_one(stat, change, count=20, seed=0):
    """Return steps in the last of which a tensor is changed."""
    rng = np.random.default_rng(seed)
    steps = [step(at, readings(stat, tensors(rng))) for at in range(1, count)]
    last = tensors(rng)
    last[N] = change(last[N])
    return [*steps, step(count, readings(stat, last))]


@pytest.mark.slow
def test_steps_that_are_alike_raise_no_alarm():
    for stat in ("grad", "activation", "residual", "dgrad"):
        assert judged(healthy(200, stat, loss=2.0, lr=1e-3)) == []


@pytest.mark.parametrize(
    ("value", "statistic", "words"),
    [(np.nan, "nan_count", "1 value is NaN."), (np.inf, "inf_count", "1 value is infinite."), (-np.inf, "inf_count", "1 value is infinite.")],
)  # fmt: skip
def test_one_value_that_is_not_finite_is_found_in_the_step_it_comes(value, statistic, words):
    def spoil(values):
        values[7] = value
        return values

    for count in (1, 20):
        (alarm,) = judged(with_one("activation", spoil, count))
        assert found([alarm]) == [(count, "nonfinite", "activation", N, 0)]
        assert (alarm.statistic, alarm.value, alarm.expected, alarm.severity, alarm.sentence) == (
            *(statistic, 1.0, 0.0, "critical"),
            words,
        )


def test_infinite_gradients_under_a_loss_scale_are_a_note():
    def spoil(values):
        values[:] = np.inf
        return values

    values = tensors(np.random.default_rng(0))
    values[N] = spoil(values[N])
    assert judged([step(1, readings("dgrad", values, loss_scale=65536.0))]) == []
    assert len(judged([step(1, readings("dgrad", values))])) == 1


@pytest.mark.parametrize(
    ("stat", "factor", "rule"),
    [
        ("activation", 10, "jump"),
        ("param", 10, "jump"),
        ("grad", 1e5, "jump"),
        ("activation", 1 / 50, "collapse"),
    ],
)
def test_a_tensor_that_is_suddenly_of_another_size_is_found(stat, factor, rule):
    alarms = judged(with_one(stat, lambda values: values * factor))
    assert {alarm.rule for alarm in alarms} == {rule}
    assert {(alarm.step, alarm.stat, alarm.name) for alarm in alarms} == {(20, stat, N)}
    rms = next(alarm for alarm in alarms if alarm.statistic == "rms")
    assert rms.value / rms.expected == pytest.approx(factor, rel=0.3)


@pytest.mark.slow
def test_one_value_of_a_weight_that_grows_is_found_by_the_largest_value():
    def flip(values):
        values[3] = 40.0
        return values

    rng = np.random.default_rng(0)
    weights = tensors(rng, size=100_000)
    steps = []
    for at in range(1, 21):
        now = {name: values * (1 + 1e-4 * at) for name, values in weights.items()}
        if at == 20:
            now[N] = flip(now[N])
        steps.append(step(at, readings("param", now)))
    (alarm,) = judged(steps)
    assert (alarm.rule, alarm.name, alarm.statistic, alarm.value) == ("jump", N, "max_abs", 40.0)


@pytest.mark.slow
@given(
    st.lists(st.sampled_from([np.nan, np.inf, 1e30, -1e30, 0.0]), min_size=1, max_size=12), st.integers(0, 5)
)
def test_outliers_before_never_silence_a_later_one(outliers, gap):
    rng = np.random.default_rng(1)
    steps = [step(at, readings("activation", tensors(rng))) for at in range(1, 21)]
    at = 20
    for value in outliers:
        at += 1
        values = tensors(rng)
        values[N][5] = value
        steps.append(step(at, readings("activation", values)))
    for _ in range(20 + gap):
        at += 1
        steps.append(step(at, readings("activation", tensors(rng))))
    values = tensors(rng)
    values[N] = values[N] * 1000
    steps.append(step(at + 1, readings("activation", values)))
    assert (at + 1, "jump", "activation", N, 0) in found(judged(steps))


def test_what_lasts_is_said_once_and_again_when_it_comes_back():
    rng = np.random.default_rng(0)
    bad = [1, 2, 3, 30]
    steps = []
    for at in range(1, 31):
        values = tensors(rng)
        if at in bad:
            values[N][0] = np.nan
        steps.append(step(at, readings("activation", values)))
    assert [alarm.step for alarm in judged(steps)] == [1, 30]


def test_a_rise_to_another_level_in_a_warm_up_is_no_alarm():
    rng = np.random.default_rng(0)
    values = tensors(rng)
    # A bias that begins at zero under a learning rate that rises: its size grows with the square of the step.
    steps = [
        step(
            at,
            readings("param", {n: v * at**2 * 1e-6 for n, v in values.items()}),
            lr=1e-5 * at,
            loss=10 / at**0.5,
        )
        for at in range(1, 200)
    ]
    assert judged(steps) == []


def test_a_growing_largest_value_is_found_before_it_overflows():
    rng = np.random.default_rng(0)
    steps = [
        step(at, readings("activation", tensors(rng, 2.0 ** (at * 0.5)), dtypes=("float16",) * len(NAMES)))
        for at in range(1, 28)
    ]
    alarms = [alarm for alarm in judged(steps) if alarm.rule == "overflow"]
    # 2^16 comes at about step 28, the largest of 64 values being 2^1.3 times the rms.
    assert {alarm.name for alarm in alarms} == {*NAMES}
    assert min(alarm.step for alarm in alarms) < 24
    # float32 is far from its end.
    long = [
        step(
            each.step, readings("activation", tensors(rng, 2.0**each.step), dtypes=("float32",) * len(NAMES))
        )
        for each in steps
    ]
    assert not [alarm for alarm in judged(long) if alarm.rule == "overflow"]


def test_a_tensor_that_becomes_all_zeros_is_dead_and_an_expert_without_tokens_is_not():
    assert found(judged(with_one("activation", np.zeros_like))) == [(20, "dead", "activation", N, 0)]
    rng = np.random.default_rng(0)
    names = ("layers.0.experts.0.fc1", "layers.0.experts.1.fc1")
    steps = [step(at, readings("grad", tensors(rng, names=names))) for at in range(1, 20)]
    steps.append(step(20, readings("grad", {name: np.zeros(64) for name in names})))
    assert judged(steps) == []


@pytest.mark.parametrize(("size", "alarms"), [(1, 0), (64, 1)])
def test_a_single_value_that_passes_zero_has_not_collapsed(size, alarms):
    others = {name: np.ones(64) for name in NAMES}
    values = [1.0 + 0.01 * at for at in range(20)] + [0.25]
    steps = [
        step(at, readings("param", {**others, N: np.full(size, each)})) for at, each in enumerate(values, 1)
    ]
    assert len([alarm for alarm in judged(steps) if alarm.rule == "collapse"]) == alarms


def test_a_parameter_that_no_update_moves_is_found_unless_the_rate_is_zero():
    rng = np.random.default_rng(0)
    weights = tensors(rng)

    def steps(rate, stuck=N):
        for at in range(1, 10):
            now = {n: v + 0.001 * at * (n != stuck or at < 4) for n, v in weights.items()}
            yield step(at, readings("grad", tensors(rng)), readings("param", now), lr=rate(at))

    dead = [alarm for alarm in judged(steps(lambda at: 1e-3)) if alarm.rule == "dead"]
    # It stays from step 5 on; twice could be chance.
    assert found(dead) == [(7, "dead", "param", N, 0)]
    assert judged(steps(lambda at: 1e-3 if at < 4 else 0.0)) == []


@pytest.mark.parametrize(("after", "alarms"), [(2.2, 0), (6.0, 1), (0.5, 1), (np.nan, 1)])
def test_the_loss_is_judged_on_both_sides(after, alarms):
    rng = np.random.default_rng(0)
    steps = [step(at, loss=2.2 + 0.05 * rng.standard_normal()) for at in range(1, 40)]
    assert len(judged([*steps, step(40, loss=after)])) == alarms


@pytest.mark.parametrize(("jump_to", "alarms"), [(1e-2, 1), (1.5e-3, 0)])
def test_a_learning_rate_above_all_before_is_found_and_a_restart_is_not(jump_to, alarms):
    rates = [1e-3 * at / 10 for at in range(1, 11)] + [1e-3 / at for at in range(1, 30)] + [1e-3] * 5
    steps = [step(at, lr=rate) for at, rate in enumerate([*rates, jump_to], 1)]
    assert [alarm.rule for alarm in judged(steps)] == ["loss"] * alarms


def test_a_learning_rate_that_falls_at_once_and_warms_up_again_is_found():
    warmup = [1e-4 * at for at in range(1, 11)]
    rates = [*warmup, *[1e-3] * 20]
    # Schedules of steps fall at once, too, and stay.
    assert judged([step(at, lr=rate) for at, rate in enumerate([*rates, *[1e-4] * 10], 1)]) == []
    alarms = judged([step(at, lr=rate) for at, rate in enumerate([*rates, *warmup], 1)])
    assert [(alarm.step, alarm.rule, alarm.name) for alarm in alarms] == [(34, "loss", "lr")]
    assert alarms[0].sentence.endswith(
        "It fell at once from 0.001 and rises again, now 0.0004: the schedule has begun anew."
    )


@pytest.mark.parametrize(("to", "rate", "number"), [(2.6, 1e-3, 1), (2.25, 1e-3, 0), (2.6, 2e-3, 0)])
def test_a_loss_that_stays_above_what_it_was_is_found_unless_the_learning_rate_rose(to, rate, number):
    rng = np.random.default_rng(0)
    steps = [
        step(at, loss=(2.2 if at <= 40 else to) + 0.05 * rng.standard_normal(), lr=1e-3 if at <= 40 else rate)
        for at in range(1, 60)
    ]
    alarms = judged(steps)
    assert len(alarms) == number
    # Eight of the new level, or seven and one that noise lifted.
    assert {alarm.step for alarm in alarms} <= {47, 48}
    assert {(alarm.rule, alarm.name, alarm.statistic) for alarm in alarms} <= {("loss", "loss", "level")}


def test_a_weight_that_begins_unlike_its_siblings_is_found_at_the_first_step():
    rng = np.random.default_rng(0)
    values = tensors(rng, 0.02)
    values[N] = values[N] * 10
    assert found(judged([step(1, readings("param", values))])) == [(1, "initial", "param", N, 0)]
    # Later it is what training made of it.
    assert judged([step(500, readings("param", values))]) == []


def test_a_weight_that_is_too_large_for_its_width_is_found():
    values = {"proj.weight": np.random.default_rng(0).standard_normal(64 * 256)}
    (alarm,) = judged([step(1, readings("param", values, shapes=("[64, 256]",)))])
    assert (alarm.rule, alarm.expected) == ("initial", 1 / 16)


def test_attention_and_router_that_lose_their_entropy_are_found():
    for stat, rule in (("attention_entropy", "attention"), ("router_entropy", "router")):
        rng = np.random.default_rng(0)
        values = [2.0, 1.9, 1.2, 0.9, 0.05]
        steps = [
            step(at, readings(stat, {"layers.0": value + 1e-3 * rng.random(8)}))
            for at, value in enumerate(values, 1)
        ]
        assert [(alarm.step, alarm.rule) for alarm in judged(steps)] == [(5, rule)]


def test_an_expert_that_gets_nearly_all_tokens_is_found():
    rng = np.random.default_rng(0)
    tokens = {
        f"layers.0.mlp.experts.{at}.fc1/input0": rng.standard_normal(900 if at == 2 else 10)
        for at in range(4)
    }
    (alarm,) = judged([step(1, readings("activation", tensors(rng) | tokens))])
    assert (alarm.rule, alarm.name, alarm.expected) == ("router", "layers.0.mlp.experts.2.fc1/input0", 0.25)


def test_every_rule_can_be_switched_off_and_a_tensor_muted():
    def spoil(values):
        values[0] = np.nan
        return values

    steps = with_one("activation", spoil)
    off = WatchSettings.of({"rules": {"nonfinite": {"on": False}}})
    assert judged(steps, off) == []
    muted = WatchSettings.of({"muted": [{"rule": "nonfinite", "name": "layers.1.*"}]})
    assert judged(steps, muted) == []
    other = WatchSettings.of({"muted": [{"name": "layers.0.*"}]})
    assert len(judged(steps, other)) == 1


def test_the_same_samples_again_are_found():
    rng = np.random.default_rng(0)
    steps = [
        StepReadings(at, -1, [readings("activation", tensors(rng))], {}, f"[{3 if at == 5 else at}]")
        for at in range(1, 8)
    ]
    assert [(alarm.step, alarm.rule, alarm.samples) for alarm in judged(steps)] == [(5, "repeated", "[3]")]


def test_a_loss_without_its_noise_is_that_of_one_batch():
    rng = np.random.default_rng(0)
    noisy = [3 - 0.001 * at + 0.1 * rng.standard_normal() for at in range(60)]
    smooth = [noisy[-1] - 0.02 * at for at in range(1, 20)]
    (alarm,) = judged(step(at, loss=loss) for at, loss in enumerate([*noisy, *smooth], 1))
    assert alarm.rule == "repeated"
    assert alarm.step <= 72
    # Without noise from the start there is nothing to lose.
    assert judged(step(at, loss=3 - 0.01 * at) for at in range(1, 100)) == []


def test_a_tensor_that_moves_to_another_level_is_found_though_no_step_is_far_off():
    rng = np.random.default_rng(0)
    noise = [2.0 ** (0.1 * rng.standard_normal()) for _ in range(120)]
    # Four times as large is nothing for a single gradient.
    level = [1.0 if at < 80 else 4.0 for at in range(120)]
    steps = [
        step(at, readings("grad", tensors(rng, scale * size)))
        for at, (scale, size) in enumerate(zip(noise, level, strict=True), 1)
    ]
    alarms = judged(steps)
    assert {alarm.rule for alarm in alarms} == {"drift"}
    assert {alarm.name for alarm in alarms} > {N}
    assert 80 < min(alarm.step for alarm in alarms) <= 105


def test_a_loss_that_rises_slowly_is_found_against_its_lowest():
    rng = np.random.default_rng(0)
    losses = [3 - 0.01 * at for at in range(100)] + [2 + 0.01 * at for at in range(150)]
    steps = [step(at, loss=loss + 0.03 * rng.standard_normal()) for at, loss in enumerate(losses, 1)]
    (alarm, *_) = (alarm for alarm in judged(steps) if alarm.rule == "drift")
    assert (alarm.name, alarm.statistic) == ("loss", "level")
    assert alarm.value / alarm.expected > 1.3


def test_what_rounding_changes_says_nothing_about_the_size_of_updates():
    rng = np.random.default_rng(0)
    names = ("first.bias", "first.weight", "last.bias", "last.weight")
    values = tensors(rng, names=names)
    steps = []
    for at in range(1, 40):
        moved = {name: values[name] + 1e-3 * rng.standard_normal() for name in names[1:]}
        # The bias stands before a batch norm: rounding moves it, and in some steps leaves it as it is.
        values = {names[0]: values[names[0]] + (0 if at % 10 == 0 else 1e-9), **moved}
        gradients = tensors(rng, names=names)
        gradients[names[0]] = gradients[names[0]] * 1e-8
        steps.append(step(at, readings("param", values), readings("grad", gradients)))
    assert judged(steps) == []


@pytest.mark.parametrize(("size", "number"), [(16, 0), (64, 1)])
def test_gradients_of_few_values_may_move_further_before_they_drift(size, number):
    rng = np.random.default_rng(0)

    def at(number):
        values = tensors(rng, size=size)
        return {**values, N: values[N] * (3.5 if number > 80 else 1)}

    steps = [step(number, readings("grad", at(number))) for number in range(1, 100)]
    assert len({alarm.name for alarm in judged(steps)} - {"*"}) == number


@pytest.mark.parametrize("rate", [1e-3, None])
def test_single_values_of_a_weight_may_grow_further_while_the_rate_rises(rate):
    rng = np.random.default_rng(0)
    values = tensors(rng)
    steps = [
        step(at, readings("param", values), lr=1e-4 * at if rate is None else rate) for at in range(1, 20)
    ]
    grown = {**values, N: np.where(values[N] == values[N].max(), 8 * values[N], values[N])}
    steps.append(step(20, readings("param", grown), lr=2e-3 if rate is None else rate))
    assert (("jump", "max_abs") in {(each.rule, each.statistic) for each in judged(steps)}) == (
        rate is not None
    )


def test_a_training_on_all_data_at_once_reads_nothing_again():
    def told(numbers, calls=lambda given: 1):
        steps = (
            step(at, readings("inputs", {"inputs": np.full(calls(given), float(given))}))
            for at, given in enumerate(numbers, 1)
        )
        return [alarm.step for alarm in judged(steps)]

    assert told([5] * 30) == []
    # A search asks for them several times a step.
    assert told([5 * (3 + at % 2) for at in range(30)], lambda given: given // 5) == []
    assert told([*range(20), 19, *range(30, 40)]) == [21]
