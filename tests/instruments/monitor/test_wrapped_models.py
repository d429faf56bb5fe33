"""No setting of the monitor ends a training, wherever the model lies and whatever it lacks."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import nn

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.tracer.moments.intervals import STATE, Intervals

STATISTICS = ("optimizer_state", *(each.name for each in fields(Intervals) if each.name not in STATE))


class Wrapped(nn.Module):
    """Gives what a module inside of it gives, in a dictionary."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return {"out": self.inner(x)}


def batch(of: nn.Module) -> torch.Tensor:
    return torch.randint(0, 64, (2, 12)) if isinstance(of, GPT) else torch.randn(4, 8)


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("inner", ["attention", "plain"])
def test_a_statistic_that_a_model_lacks_is_left_out_with_a_warning(
    inner: str, statistic: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    module = (
        GPT(GPTConfig(64, 1, 8, 2, sequence=12))
        if inner == "attention"
        else nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    )
    model = Wrapped(module)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    before = [each.clone() for each in model.parameters()]
    with megalens.monitor(model, optimizer, hub=None, **{statistic: 1}) as monitor:
        for _ in range(2):
            with monitor.step():
                optimizer.zero_grad()
                model(batch(module))["out"].square().mean().backward()
                optimizer.step()
    assert any(not torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))
    lacks = statistic.startswith("router") or (inner == "plain" and statistic.startswith(("att", "res")))
    assert (f"{statistic} is not measured." in caplog.text) == lacks


def test_a_configuration_of_trainermon_for_what_a_model_lacks_ends_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = Wrapped(nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), 1e-2)
    config = {
        "targets": {},
        "xy_distribution": True,
        "recording_l2_features": True,
        "l2_targets": {"attention_hook": [], "moe_router_logit_hook": [], "linear_hook": []},
    }
    with megalens.monitor(model, optimizer, config, hub=None) as monitor, monitor.step():
        model(torch.randn(4, 8))["out"].sum().backward()
        optimizer.step()
    assert "attention_entropy is not measured. In this model neither" in caplog.text
