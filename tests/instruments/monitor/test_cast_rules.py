"""Rules over what casts to fewer bits lose: on shares that are given, and on trainings that are healthy or not."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.instruments.monitor.levels import direction_of
from megalens.instruments.monitor.recorded import recorded_steps
from tests.instruments.monitor.judging import found, judged, readings, step

NAME = "layers.1.fc1/input0/activation:float8_e4m3fn"
GRADIENT = "layers.1.fc1/output0/dgrad:float16"


def shares(stat, share, name=NAME, **more):
    """What a process measured of a thousand values of which a part is lost."""
    return readings(stat, {name: np.arange(1000) < 1000 * share}, **more)


@pytest.mark.parametrize(
    ("stat", "rule", "name", "below", "above"),
    [
        ("overflow", "saturation", NAME, 0.01, 0.011),
        ("underflow", "underflow", NAME, 0.25, 0.251),
        ("underflow", "underflow", "layers.1.fc1/input0/activation:nvfp4", 0.5, 0.501),
    ],
)
def test_a_share_above_the_limit_in_four_measured_steps_is_an_alarm(stat, rule, name, below, above):
    def at(number):
        return step(number, shares(stat, above if number in (2, 3, 4, 9, 10, 11, 12) else below, name))

    alarms = judged([at(number) for number in range(1, 30)])
    assert found(alarms) == [(12, rule, stat, name, 0)]
    assert alarms[0].value == pytest.approx(above)
    assert alarms[0].expected == below
    assert f"{100 * above:.1f} %" in alarms[0].sentence
    assert name.rpartition(":")[2] in alarms[0].sentence


def test_steps_without_casts_say_nothing_of_them():
    rng = np.random.default_rng(0)
    between = [step(at, readings("grad", {"a.weight": rng.standard_normal(64)})) for at in range(40)]
    steps = [step(at, shares("overflow", 0.5)) if at % 10 == 0 else between[at] for at in range(40)]
    assert [alarm[:2] for alarm in found(judged(steps))] == [(30, "saturation")]


def test_the_search_of_a_loss_scale_is_no_alarm_and_a_scale_that_stays_is():
    scales = [2.0**16, 2.0**15, 2.0**14, 2.0**13, 2.0**12, 2.0**11, *[2.0**10] * 6]
    searched = [
        step(at, shares("overflow", 0.9, GRADIENT, loss_scale=each)) for at, each in enumerate(scales, 1)
    ]
    assert found(judged(searched[:6])) == []
    assert [alarm[:2] for alarm in found(judged(searched))] == [(11, "saturation")]
    # Activations have no loss scale in them.
    others = [step(at, shares("overflow", 0.9, loss_scale=each)) for at, each in enumerate(scales, 1)]
    assert [alarm[:2] for alarm in found(judged(others))] == [(4, "saturation")]


def test_other_rules_take_shares_for_no_tensors():
    def at(number):
        lost = 0.2 if number < 20 else 0.0
        errors = {NAME: [np.nan, 1e9 if number == 20 else 1e-9, 1.0]}
        return step(
            number, shares("underflow", lost), shares("subnormal", lost), readings("cast_error", errors)
        )

    assert found(judged([at(number) for number in range(1, 40)])) == []


def test_a_cast_arises_where_its_tensor_does():
    assert direction_of("underflow", NAME) == "forward"
    assert direction_of("overflow", GRADIENT) == "backward"
    assert direction_of("underflow", "layers.1.fc1.weight/param:mxfp8") == "parameters"


def gpt():
    torch.manual_seed(0)
    return GPT(GPTConfig(vocabulary=32, layers=2, hidden=32, heads=2, sequence=16))


def train(model, steps=16, scaler=None, loss_factor=1.0, **options):
    """Train under a monitor, and return the alarms of casts as (rule, name)."""
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    text = torch.randint(0, 32, (64,), generator=torch.Generator().manual_seed(1))
    with megalens.monitor(model, optimizer, hub=None, precision=1, loss_scale=scaler, **options) as monitor:
        for at in range(steps):
            ids = torch.stack([text[(at * 7 + k) % 48 :][:16] for k in range(4)])
            with monitor.step():
                if scaler is None:
                    (model.loss(ids) * loss_factor).backward()
                    optimizer.step()
                else:
                    with torch.autocast("cpu", torch.float16):
                        loss = model.loss(ids)
                    scaler.scale(loss).backward()
                    scaler.step(optimizer)
                    scaler.update()
                optimizer.zero_grad()
    return {(alarm.rule, alarm.name) for alarm in monitor.alarms if alarm.rule in ("saturation", "underflow")}


@pytest.mark.slow
@pytest.mark.parametrize(
    "formats",
    [
        None,
        "mxfp8",
        "nvfp4",
        "bfloat16",
        {"activation": "float8_e4m3fn_delayed", "dgrad": "float8_e5m2_delayed"},
    ],
)
def test_healthy_trainings_have_no_alarm_of_casts(formats):
    assert train(gpt(), formats=formats) == set()


@pytest.mark.slow
def test_a_healthy_training_in_float16_has_none_while_its_loss_scale_is_searched_for():
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
    assert train(gpt(), scaler=scaler, formats="float16") == set()
    assert scaler.get_scale() < 2.0**28


@pytest.mark.slow
def test_gradients_that_are_too_small_for_float16_are_an_alarm():
    found = train(gpt(), loss_factor=1e-7, formats={"dgrad": "float16"})
    assert ("underflow", "blocks.0.mlp.fc1/output0/dgrad:float16") in found
    assert {rule for rule, _ in found} == {"underflow"}


@pytest.mark.slow
def test_a_scale_of_a_module_that_is_too_large_is_an_alarm_of_that_module_alone():
    model = gpt()
    model.blocks[1].mlp.fc1.fp8_meta = {"scaling_fwd": SimpleNamespace(scale=torch.full((3,), 4096.0))}
    found = train(model, formats={"activation": "float8_e4m3fn_delayed"})
    assert found == {("saturation", "blocks.1.mlp.fc1/input0/activation:float8_e4m3fn_delayed")}


def test_a_log_of_transformer_engine_is_judged_by_the_same_rules(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path / "cache"))
    name = "model.layers.2.fc1_gradient_fp8_delayed_scaling"
    lines = [
        f"2026-01-02 03:04:{at:02d},678 - INFO - {name}_{said} \t iteration={at:06d} \t value={value:.4f}\n"
        for at in range(1, 8)
        for said, value in (("overflows%", 3.0 if at > 2 else 0.0), ("underflows%", 20.0))
    ]
    (tmp_path / "nvdlfw_inspect_globalrank-0.log").write_text("".join(lines))
    with megalens.open(tmp_path) as run:
        alarms = judged(recorded_steps(run))
    (alarm,) = alarms
    assert (alarm.step, alarm.rule, alarm.direction) == (6, "saturation", "backward")
    assert alarm.name == "layers.1.fc1/output0/dgrad:fp8_delayed_scaling"
    assert alarm.value == pytest.approx(0.03)
