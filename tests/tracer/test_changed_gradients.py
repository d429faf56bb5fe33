"""Gradients that a script changes between backward pass and optimizer, or that its optimizer takes elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from seen_statistics import same
from torch import Tensor, nn


class Taken:
    """The gradients that an optimizer was given, in a hook of the test's own."""

    def __init__(self, model: nn.Module, *optimizers: torch.optim.Optimizer) -> None:
        self.gradients: dict[str, Tensor] = {}
        self._names = {parameter: name for name, parameter in model.named_parameters()}
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._note)

    def _note(self, optimizer, args, kwargs) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.gradients.pop(self._names[parameter], None)
                if parameter.grad is not None:
                    self.gradients[self._names[parameter]] = parameter.grad.clone()


def averaged_by_hand(model: nn.Module) -> None:
    """As an all_reduce of the script's own: no version counts it."""
    generator = torch.Generator().manual_seed(3)
    for parameter in model.parameters():
        parameter.grad.data.add_(torch.randn(parameter.shape, generator=generator) * 1e-3)


def summed(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.mul_(4)


def divided_by_passes(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad /= 3


def divided_by_a_scale(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.data.mul_(1 / 4096)


def divided_and_clipped(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.div_(2.5)
    nn.utils.clip_grad_norm_(model.parameters(), 1e-4)


def all_zeroed(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad.data.zero_()


def one_zeroed(model: nn.Module) -> None:
    model.blocks[0].mlp.fc1.weight.grad.zero_()


def one_made_nan(model: nn.Module) -> None:
    model.blocks[1].mlp.fc2.weight.grad[0, 0] = math.nan


def one_taken_away(model: nn.Module) -> None:
    model.head.weight.grad = None


def with_noise_in_a_new_tensor(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = parameter.grad + 1e-3 * parameter.detach().sin()


MORE = {
    averaged_by_hand: "all_reduce",
    summed: "more than 1",
    divided_by_passes: "divided by 3",
    divided_by_a_scale: "divided by 4096",
    divided_and_clipped: "multiplied more than once",
    all_zeroed: "zero",
    one_zeroed: "zero",
    one_made_nan: "NaN",
    one_taken_away: "taken away",
    with_noise_in_a_new_tensor: "all_reduce",
}


def train(logger, model, optimizer, taken: Taken, steps: list[Callable[[], None]]) -> list[dict[str, Tensor]]:
    kept = []
    for step in steps:
        with logger.step():
            step()
            kept.append(dict(taken.gradients))
        optimizer.zero_grad()
    return kept


def hold(rows: dict, kept: list[dict[str, Tensor]], stage: str) -> None:
    for at, gradients in enumerate(kept, start=1):
        assert {name for stat, name, step in rows if (stat, step) == ("grad", at)} == set(gradients)
        for name, gradient in gradients.items():
            row = rows["grad", name, at]
            assert row["gradient_stage"] == stage
            if gradient.isfinite().all():
                same(row, gradient)
            else:
                assert row["nan_count"] == gradient.isnan().sum()


@pytest.mark.parametrize("change", list(MORE))
def test_what_is_more_than_clipping_is_seen_and_what_the_optimizer_takes_is_measured(
    gpt, ids, logged, change
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    taken = Taken(gpt, optimizer)
    logger = logged(gpt, optimizer, grad=1)

    def step() -> None:
        for at in range(3):
            gpt.loss(ids[at:]).backward()
        change(gpt)
        optimizer.step()

    kept = train(logger, gpt, optimizer, taken, [step, step] if change is not one_made_nan else [step])
    (said,) = logger.tracer.status()["warnings"]
    assert MORE[change] in said
    assert "pre_step" in said
    hold(logged.rows(), kept, "pre_step")


def test_a_scale_that_was_told_and_is_divided_out_by_hand_is_no_change(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    taken = Taken(gpt, optimizer)
    logger = logged(gpt, optimizer, grad=1, loss_scale=4096.0)

    def step() -> None:
        (gpt.loss(ids) * 4096).backward()
        for parameter in gpt.parameters():
            parameter.grad.div_(4096)
        optimizer.step()

    kept = train(logger, gpt, optimizer, taken, [step, step])
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), kept, "pre_clip")


def test_gradients_that_are_not_finite_before_clipping_are_those_that_the_pass_left(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    logger = logged(gpt, optimizer, grad=1)
    with logger.step():
        gpt.loss(ids).backward()
        # As of an overflow in one module.
        gpt.head.weight.register_hook(lambda gradient: gradient.fill_(math.inf))
        optimizer.zero_grad()
        gpt.loss(ids).backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
    assert logger.tracer.status()["warnings"] == []
    rows = logged.rows()
    assert rows["grad", "head.weight", 1]["inf_count"] == gpt.head.weight.numel()
    assert rows["grad", "norm.weight", 1]["nan_count"] == 0


def test_gradients_that_autograd_gave_and_the_script_set_are_those_of_the_optimizer(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    taken = Taken(gpt, optimizer)
    logger = logged(gpt, optimizer, grad=1)

    def step() -> None:
        parameters = list(gpt.parameters())
        gradients = torch.autograd.grad(gpt.loss(ids), parameters)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    kept = train(logger, gpt, optimizer, taken, [step, step])
    (said,) = logger.tracer.status()["warnings"]
    assert "set by the script" in said
    assert "no backward pass" not in said
    hold(logged.rows(), kept, "pre_step")


def test_a_pass_that_gives_no_parameter_a_gradient_is_not_the_last_one(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    logger = logged(gpt, optimizer, grad=1)
    with logger.step():
        gpt.loss(ids).backward()
        kept = {name: parameter.grad.clone() for name, parameter in gpt.named_parameters()}
        nn.utils.clip_grad_norm_(gpt.parameters(), 1e-4)
        torch.autograd.grad(gpt.loss(ids), gpt.head.weight)
        optimizer.step()
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), [kept], "pre_clip")


def test_a_gradient_penalty_is_part_of_the_gradients(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    taken = Taken(gpt, optimizer)
    logger = logged(gpt, optimizer, grad=1)

    def step() -> None:
        loss = gpt.loss(ids)
        (gradient,) = torch.autograd.grad(loss, gpt.norm.weight, create_graph=True)
        (loss + gradient.square().sum()).backward()
        optimizer.step()

    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        kept = train(logger, gpt, optimizer, taken, [step, step])
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), kept, "pre_clip")


@pytest.mark.parametrize("kind", ["LBFGS", "SGD"])
def test_an_optimizer_that_calls_the_model_itself_has_the_gradients_of_its_last_call(
    gpt, ids, logged, kind
) -> None:
    optimizer = (
        torch.optim.LBFGS(gpt.parameters(), 0.01, max_iter=4)
        if kind == "LBFGS"
        else torch.optim.SGD(gpt.parameters(), 0.01)
    )
    logger = logged(gpt, optimizer, grad=1)
    last: dict[str, Tensor] = {}

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = gpt.loss(ids)
        loss.backward()
        last.update({name: parameter.grad.clone() for name, parameter in gpt.named_parameters()})
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        return loss

    kept = []
    for _ in range(2):
        with logger.step():
            optimizer.step(closure)
        kept.append(dict(last))
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), kept, "pre_clip")


def step_inside(optimizers: dict) -> Callable[[Tensor], None]:
    def hook(parameter: Tensor) -> None:
        optimizers[parameter].step()
        parameter.grad = None

    return hook


@pytest.mark.parametrize("told", [True, False])
def test_an_optimizer_that_steps_inside_of_the_backward_pass_is_followed_or_named(
    gpt, ids, logged, told
) -> None:
    optimizers = {parameter: torch.optim.SGD([parameter], 0.01) for parameter in gpt.parameters()}
    taken = Taken(gpt, *optimizers.values())
    for parameter in gpt.parameters():
        parameter.register_post_accumulate_grad_hook(step_inside(optimizers))
    logger = logged(gpt, list(optimizers.values()) if told else None, grad=1)
    kept = []
    for _ in range(2):
        with logger.step():
            gpt.loss(ids).backward()
        kept.append(dict(taken.gradients))
    warnings = logger.tracer.status()["warnings"]
    rows = logged.rows()
    if told:
        assert warnings == []
        hold(rows, kept, "pre_step")
    else:
        (said,) = warnings
        assert "steps inside" in said
        assert rows == {}


def test_gradients_of_a_fused_step_are_named_and_none_is_measured(gpt, ids, logged) -> None:
    """As LOMO does it: each gradient is taken where the next comes."""

    def update(gradient: Tensor) -> Tensor:
        for parameter in gpt.parameters():
            if parameter.grad is not None:
                parameter.data.add_(parameter.grad, alpha=-0.01)
                parameter.grad = None
        return gradient

    for parameter in gpt.parameters():
        parameter.register_hook(update)
    logger = logged(gpt, None, grad=1)
    with logger.step():
        gpt.loss(ids).backward()
        update(torch.zeros(()))
    (said,) = logger.tracer.status()["warnings"]
    assert "at the end of the backward pass they are gone" in said
    assert logged.rows() == {}


class Pair(nn.Module):
    """A generator and what judges it, each with an optimizer of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.makes, self.judges = nn.Linear(6, 5), nn.Linear(5, 1)

    def forward(self, noise: Tensor) -> Tensor:
        return self.judges(self.makes(noise).tanh())


def test_of_two_optimizers_each_has_what_it_took_whatever_comes_after(logged) -> None:
    model = Pair()
    makes, judges = (torch.optim.SGD(each.parameters(), 0.1) for each in (model.makes, model.judges))
    taken = Taken(model, makes, judges)
    logger = logged(model, [makes, judges], grad=1)
    kept = []
    for _ in range(2):
        with logger.step():
            judges.zero_grad()
            model(torch.randn(8, 6)).square().mean().backward()
            judges.step()
            makes.zero_grad()
            model(torch.randn(8, 6)).mean().backward()
            makes.step()
        kept.append(dict(taken.gradients))
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), kept, "pre_clip")


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_a_sparse_gradient_counts_the_rows_that_it_lacks_as_zeros(logged, kind) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.head = kind(20, 4, sparse=True), nn.Linear(4, 3)

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids)).square().mean()

    model = Model()
    optimizers = [
        torch.optim.SparseAdam(list(model.embed.parameters()), 0.01),
        torch.optim.SGD(model.head.parameters(), 0.1),
    ]
    taken = Taken(model, *optimizers)
    logger = logged(model, optimizers, grad=1)
    kept = []
    for step in range(3):
        with logger.step():
            model(torch.tensor([[1, 2, 2], [3, 1, step]])).backward()
            for optimizer in optimizers:
                optimizer.step()
        kept.append({name: gradient.to_dense() for name, gradient in taken.gradients.items()})
        for optimizer in optimizers:
            optimizer.zero_grad()
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), kept, "pre_clip")


def test_complex_parameters_are_named_as_complex(logged) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 3)
            self.turn = nn.Parameter(torch.ones(3, dtype=torch.complex64))

        def forward(self, x: Tensor) -> Tensor:
            return (self.head(x) * self.turn).abs().mean()

    model = Model()
    logger = logged(model, torch.optim.SGD(model.parameters(), 0.1), grad=1, param=1)
    with logger.step():
        model(torch.randn(2, 4)).backward()
    (said,) = logger.tracer.status()["warnings"]
    assert "(complex64)" in said
    assert "turn" in said
    assert "uantised" not in said
    assert {name for _, name, _ in logged.rows()} == {"head.weight", "head.bias"}
