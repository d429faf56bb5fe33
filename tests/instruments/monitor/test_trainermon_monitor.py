"""``megalens.monitor`` with a configuration of TrainerMon."""

from __future__ import annotations

import json
import math
import warnings

import pytest
import torch
from torch import nn

import megalens
from megalens.instruments.monitor.trainermon.config import ConfigError


def train(config, spoiled=None, steps=5, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer, step = torch.optim.AdamW(model.parameters(), 1e-3), 0
    model[2].bias.register_hook(lambda gradient: gradient * (1000 if step == spoiled else 1))
    with megalens.monitor(model, optimizer, config, hub=None, **options) as monitor:
        for step in range(1, steps + 1):  # noqa: B007 - the hook looks at it
            with monitor.step():
                loss = model(torch.randn(3, 4)).square().mean()
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    return monitor


def test_it_says_what_is_measured_and_how_often() -> None:
    config = {
        "targets": {}, "step_interval": 2, "wg_distribution": True, "xy_distribution": True, "forward_only": True,
        "mv_distribution": True, "mg_direction": True, "recording_l2_features": True, "l2_targets": {"linear_hook": []},
    }  # fmt: skip
    monitor = train(config, activation=4)
    expected = {
        "grad": 2,
        "exp_avg": 2,
        "exp_avg_sq": 2,
        "gradient_direction": 2,
        "stable_rank": 2,
        "kernel_norm": 2,
    }
    assert monitor.statistics.intervals.on() == {**expected, "activation": 4}


def test_its_rules_judge_beside_ours_with_the_words_of_the_file(tmp_path) -> None:
    path = tmp_path / "config.json"
    rule = {"rule_name": "AnomalyTurbulence", "args": {"threshold": 99}}
    path.write_text(json.dumps({"wg_distribution": True, "alert": {"rules": [rule]}}))
    alarms = [alarm for alarm in train(path, spoiled=4).alarms if alarm.rule == "trainermon"]
    assert {(a.step, a.stat, a.name, a.statistic) for a in alarms} == {
        (4, "grad", "2.bias", "norm"), (4, "grad", "2.bias", "mean")
    }  # fmt: skip
    (norm,) = (a for a in alarms if a.statistic == "norm")
    assert norm.sentence.startswith(
        "Rule AnomalyTurbulence reports anomaly signal in ('2.bias:-1/rank0/grad', 'norm') at step 4, current value "
    )
    assert norm.value > 1
    assert math.isnan(norm.expected)
    assert "trainermon" not in {a.rule for a in train({"wg_distribution": True}, spoiled=4).alarms}


def test_what_a_monitor_does_not_follow_is_said() -> None:
    with pytest.warns(
        UserWarning, match="its first step on; targets, start_step are for megalens.TrainerMon"
    ):
        train({"targets": {"layers": {}}, "start_step": 5, "wg_distribution": True}, steps=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        train({"targets": {}, "wg_distribution": True, "format": "csv"}, steps=1)


def test_a_wrong_configuration_is_refused_as_the_class_does() -> None:
    with pytest.raises(ConfigError, match="eps must be a number with a decimal point, got 1"):
        train({"eps": 1})
    with pytest.raises(megalens.MegalensError, match="was not told what to log"):
        train({"targets": {}})
