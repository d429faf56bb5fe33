"""What somebody does to a real training by mistake is named within twenty steps, where it was done; one of each kind."""

import pytest
import torch
from torch import nn

import megalens
from tests.kit.monitor_faults.judging import verdict_of
from tests.kit.monitor_faults.running import KINDS, kind_alarms
from tests.kit.monitor_faults.unseen import CHOSEN

CLASSIFIER = [at for at, fault in enumerate(KINDS[: len(CHOSEN)]) if fault.name.startswith("classifier")]


@pytest.mark.slow
@pytest.mark.parametrize("number", CLASSIFIER, ids=[KINDS[at].name.partition(": ")[2] for at in CLASSIFIER])
def test_it_is_named_where_it_was_done(number: int) -> None:
    alarms, peer = kind_alarms(number)
    verdict = verdict_of(KINDS[number], alarms, peer)
    assert verdict.found, verdict.first
    assert verdict.late <= 20
    assert verdict.right in ((1, 2, 3) if KINDS[number].name.endswith("swapped") else (1,)), verdict.first


def trained(model: nn.Module, steps: int, batch, make=torch.optim.AdamW, **options) -> list:
    torch.manual_seed(0)
    optimizer = make(model.parameters(), 1e-2)
    with megalens.monitor(model, optimizer, hub=None, **options) as monitor:
        for step in range(steps):
            x, y = batch(step)
            with monitor.step():
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), y).backward()
                optimizer.step()
    return monitor.alarms


class Normed(nn.Module):
    """Its first bias is taken away again by the batch norm: its gradient is rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


# Adam divides rounding by rounding and moves it; plain SGD leaves it as it is.
@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD])
def test_a_bias_before_a_batch_norm_is_not_called_dead(make) -> None:
    torch.manual_seed(1)
    weights = torch.randn(8, 3)

    def batch(step: int):
        x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
        return x, (x @ weights).argmax(1)

    assert [each.sentence for each in trained(Normed(), 40, batch, make)] == []


def test_the_learning_rate_is_read_of_the_optimizer_where_nobody_logs_it() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with megalens.monitor(model, optimizer, hub=None) as monitor:
        for step in range(1, 25):
            optimizer.param_groups[0]["lr"] = 1e-3 if step < 20 else 1e-2
            with monitor.step():
                optimizer.zero_grad()
                x = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
                nn.functional.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
                optimizer.step()
    first = monitor.first_anomaly
    assert first is not None
    assert (first.step, first.rule) == (20, "loss")
    assert "The learning rate is 0.01, 0.001 the step before" in first.sentence
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("turn", [1, 3])
def test_data_that_come_again_are_known_in_whatever_order_they_lie(turn: int) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def batch(step: int):
        number = step if step < 20 else step % turn
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(32, 8, generator=generator)
        x = x[torch.randperm(32, generator=torch.Generator().manual_seed(step))]
        return x, x[:, :3].argmax(1)

    found = [each for each in trained(model, 36, batch) if each.rule == "repeated"]
    words = "in the step before" if turn == 1 else "the same 3 batches in turns"
    assert words in found[0].sentence
    assert found[0].step == (22 if turn == 1 else 21 + 3 + 7)


def optimized(disturb) -> list:
    """Return the alarms of a training of which something reaches between the backward pass and the optimizer."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with megalens.monitor(model, optimizer, hub=None) as monitor:
        for step in range(1, 41):
            with monitor.step():
                optimizer.zero_grad()
                model(torch.randn(16, 8)).square().mean().backward()
                disturb(step, model, optimizer)
                optimizer.step()
    return [(each.step, each.name, each.sentence) for each in monitor.alarms if each.rule == "optimizer"]


def test_a_state_whose_values_change_places_is_named_although_its_moments_stay() -> None:
    def shuffle(step, model, optimizer) -> None:
        if step == 30:
            mean = optimizer.state[model[2].weight]["exp_avg"].view(-1)
            mean.copy_(mean[torch.randperm(len(mean))])

    words = "Something else than the optimizer wrote it since the optimizer's last step."
    assert optimized(shuffle) == [(30, "2.weight", words)]


def test_a_state_that_is_loaded_or_written_at_every_step_is_not_told_as_written() -> None:
    assert optimized(lambda step, model, optimizer: optimizer.load_state_dict(optimizer.state_dict())) == []
    assert (
        optimized(
            lambda step, model, optimizer: [each["exp_avg"].mul_(1) for each in optimizer.state.values()]
        )
        == []
    )


def test_what_is_trained_in_its_turn_has_lost_nothing() -> None:
    def in_turns(step, model, optimizer) -> None:
        for parameter in (model[3] if step > 10 else model[:3]).parameters():
            parameter.grad = None

    assert optimized(in_turns) == []
