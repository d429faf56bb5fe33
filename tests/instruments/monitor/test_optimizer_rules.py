"""Rules about the optimizer's state, against torch's own Adam."""

from __future__ import annotations

import pytest
import torch
from judging import judged, readings, step
from torch import nn

BETAS = (0.9, 0.95)


def trained(steps=12, change=None, clip=None, first=1, betas=BETAS, make=torch.optim.AdamW):
    """Give the steps of a small training by torch, which ``change`` may disturb before an update."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(6)))
    optimizer = make(model.parameters(), 1e-3, betas=betas)
    for at in range(1, steps + 1):
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().sum().backward()
        named = dict(model.named_parameters())
        grads = readings("grad", {n: p.grad.double().numpy().copy() for n, p in named.items()})
        if clip is not None and clip(at):
            nn.utils.clip_grad_norm_(model.parameters(), clip(at))
        if change is not None:
            change(at, optimizer)
        optimizer.step()
        if at < first:
            continue
        of = {n: optimizer.state[p] for n, p in named.items()}
        parts = [
            readings(stat, {n: state[stat].double().numpy().copy() for n, state in of.items()})
            for stat in ("exp_avg", "exp_avg_sq")
        ]
        yield step(at, grads, *parts)


def rules(steps):
    return [
        (alarm.step, alarm.rule, alarm.statistic)
        for alarm in judged(steps)
        if alarm.rule in ("optimizer", "clipping")
    ]


@pytest.mark.parametrize("betas", [(0.9, 0.95), (0.9, 0.999), (0.95, 0.98)])
def test_a_healthy_state_raises_nothing(betas):
    assert rules(trained(30, betas=betas)) == []
    # Watched from the middle of a training on.
    assert rules(trained(30, betas=betas, first=10)) == []
    assert rules(trained(30, clip=lambda at: 0.1)) == []


def test_an_optimizer_that_adds_to_gradients_raises_nothing():
    def change(at, optimizer):
        group = optimizer.param_groups[0]
        group["weight_decay"] = 1e-2 if at > 10 else 0.0
        if at == 1:
            # One weight is so large that it alone does not follow.
            group["params"][4].data.mul_(10)

    assert rules(trained(20, change=change, make=torch.optim.Adam)) == []


def test_a_state_that_is_lost_is_found_in_that_step():
    def lose(at, optimizer):
        if at == 8:
            optimizer.state.clear()

    assert {(8, "optimizer", "beta1"), (8, "optimizer", "beta2")} <= {*rules(trained(change=lose))}


def test_a_resume_without_its_state_is_found_in_the_first_step_that_is_seen():
    def lose(at, optimizer):
        if at == 8:
            optimizer.state.clear()

    found = rules(trained(change=lose, first=8))
    assert {(step_, statistic) for step_, _, statistic in found} >= {(8, "state")}


@pytest.mark.parametrize(
    ("betas", "statistic"), [((0.0, 0.95), "beta1"), ((0.9, 0.5), "beta2"), ((0.999, 0.9999), "beta1")]
)
def test_betas_that_are_unusual_or_change_are_found(betas, statistic):
    assert (3, "optimizer", statistic) in rules(trained(betas=betas))

    def change(at, optimizer):
        if at >= 8:
            optimizer.param_groups[0]["betas"] = betas

    assert (8, "optimizer", statistic) in rules(trained(change=change))


def test_gradients_that_are_no_longer_clipped_are_found():
    assert rules(trained(clip=lambda at: 0.1 if at < 8 else None)) == [(8, "clipping", "norm")]


@pytest.mark.parametrize(
    ("rate", "alarms"), [(1e-3, set()), (2.0, {"update_ratio"}), (1e-11, {"update_ratio"})]
)
def test_an_update_that_is_too_large_or_too_small_for_its_weight_is_found(rate, alarms):
    rng = torch.Generator().manual_seed(0)
    steps = []
    for at in range(1, 40):
        # What Adam keeps of gradients that are noise of size one, and weights of size one half.
        parts = [("param", 0.5, False), ("exp_avg", 0.2, False), ("exp_avg_sq", 1.0, True)]
        given = []
        for stat, scale, square in parts:
            values = {
                f"h.{n}.weight": scale * torch.randn(64, generator=rng).double().numpy() for n in range(3)
            }
            given.append(readings(stat, {n: v**2 if square else v for n, v in values.items()}))
        steps.append(step(at, *given, lr=rate if at > 34 or rate < 1 else 1e-3))
    found = [alarm for alarm in judged(steps) if alarm.rule == "update_ratio"]
    assert {alarm.rule for alarm in found} == alarms
    if found:
        assert found[0].value == pytest.approx(rate * 0.4, rel=0.4)


def weights(steps=60, change=None, rate=lambda at: 1e-3, logged=lambda at: 1e-3):
    """Give the steps of a training by torch's AdamW with the weights after each, which ``change`` may write anew."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, betas=BETAS)
    for at in range(1, steps + 1):
        optimizer.param_groups[0]["lr"] = rate(at)
        optimizer.zero_grad()
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        if change is not None:
            with torch.no_grad():
                change(at, model)
        named = dict(model.named_parameters())
        of = {
            "param": {n: p.detach().double().numpy().copy() for n, p in named.items()},
            **{
                stat: {n: optimizer.state[p][stat].double().numpy().copy() for n, p in named.items()}
                for stat in ("exp_avg", "exp_avg_sq")
            },
        }
        yield step(at, *(readings(stat, each) for stat, each in of.items()), lr=logged(at))


def written(*given, **more):
    return [
        (a.step, a.name, a.direction) for a in judged(weights(*given, **more)) if a.rule == "update_ratio"
    ]


def test_weights_that_something_else_than_the_optimizer_wrote_are_named_at_that_step():
    def forget(at, model):
        if at == 50:
            model[2].reset_parameters()

    assert written(change=forget) == [(50, "2.weight", "update")]
    sentence = next(a.sentence for a in judged(weights(change=forget)) if a.rule == "update_ratio")
    assert "the optimizer moves none by more than 0.01" in sentence
    assert sentence.endswith("Something else wrote these weights.")


def test_what_the_optimizer_itself_may_do_is_not_told_as_written():
    # A warm-up, a schedule that begins anew, and a group whose learning rate is fifty times the one that is logged.
    assert written(rate=lambda at: 1e-3 * min(1, at / 20), logged=lambda at: 1e-3 * min(1, at / 20)) == []
    assert written(rate=lambda at: 1e-3 * 0.9 ** (at % 25), logged=lambda at: 1e-3 * 0.9 ** (at % 25)) == []
    assert written(rate=lambda at: 5e-2) == []


@pytest.mark.parametrize("factor", [1.02, 1.0])
def test_a_weight_that_grows_by_more_than_adam_can_is_named_although_it_grew_before(factor):
    def grow(at, model):
        # Faster still, as long as the rate is high: by no more than Adam's own steps.
        with torch.no_grad():
            model[2].weight += 9e-4 * model[2].weight.sign() if at < 30 else (factor - 1) * model[2].weight

    steps = weights(change=grow, rate=lambda at: 1e-3 if at < 30 else 2e-4)
    found = [(a.step, a.name, a.sentence) for a in judged(steps) if a.statistic == "growth"]
    assert [each[:2] for each in found] == ([(33, "2.weight")] if factor > 1 else [])
    assert all(each[2].endswith("something else writes it.") for each in found)
