"""Gradients that a script changes between backward pass and optimizer, or that its optimizer takes elsewhere."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
import torch
from seen_statistics import same
from torch import Tensor, nn

from megalens.tracer.moments import measure
from megalens.tracer.moments.hooks.changes import Comparison, change_of


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


# As of an overflow in one module, and of values whose squares overflow: clipping leaves zeros.
@pytest.mark.parametrize("value", [math.inf, 1e30])
def test_gradients_whose_norm_is_not_finite_are_those_that_the_pass_left(gpt, ids, logged, value) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    logger = logged(gpt, optimizer, grad=1)
    with logger.step():
        gpt.loss(ids).backward()
        gpt.head.weight.register_hook(lambda gradient: gradient.fill_(value))
        optimizer.zero_grad()
        gpt.loss(ids).backward()
        nn.utils.clip_grad_norm_(gpt.parameters(), 1.0)
        optimizer.step()
    assert logger.tracer.status()["warnings"] == []
    rows = logged.rows()
    assert rows["grad", "head.weight", 1]["inf_count"] == (
        gpt.head.weight.numel() if value == math.inf else 0
    )
    assert rows["grad", "norm.weight", 1]["m2"] > 0
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


def test_where_a_device_knows_the_answer_the_first_such_step_is_left_out(
    gpt, ids, logged, monkeypatch
) -> None:
    """As on a GPU: what was compared is looked at once the step has left the training."""
    monkeypatch.setattr(Comparison, "here", False)
    optimizer = torch.optim.SGD(gpt.parameters(), 0.01)
    taken = Taken(gpt, optimizer)
    logger = logged(gpt, optimizer, grad=1)
    said = threading.Event()
    monkeypatch.setattr(logger._gradients, "_more_than_clipping", _then(logger, said))

    def step(change: Callable[[nn.Module], None]) -> None:
        gpt.loss(ids).backward()
        change(gpt)
        optimizer.step()

    kept = train(logger, gpt, optimizer, taken, [lambda: step(averaged_by_hand)])
    assert said.wait(60)
    kept += train(logger, gpt, optimizer, taken, [lambda: step(averaged_by_hand), lambda: step(summed)])
    assert any("all_reduce" in text for text in logger.tracer.status()["warnings"])
    rows = logged.rows()
    assert {step for _, _, step in rows} == {2, 3}
    for at in (2, 3):
        for name, gradient in kept[at - 1].items():
            assert rows["grad", name, at]["gradient_stage"] == "pre_step"
            same(rows["grad", name, at], gradient)


def _then(logger, said: threading.Event) -> Callable[[str], None]:
    found = logger._gradients._more_than_clipping

    def call(words: str) -> None:
        found(words)
        said.set()

    return call


def test_parameters_that_are_not_trained_and_optimizers_of_other_models_change_nothing(
    gpt, ids, logged
) -> None:
    for parameter in gpt.embedding.parameters():
        parameter.requires_grad_(False)
    other = nn.Linear(2, 2)
    optimizer = torch.optim.SGD([p for p in gpt.parameters() if p.requires_grad], 0.01)
    elsewhere = torch.optim.SGD(other.parameters(), 0.1)
    logger = logged(gpt, [elsewhere, optimizer], grad=1)
    kept = []
    for _ in range(2):
        with logger.step():
            other(torch.ones(1, 2)).sum().backward()
            elsewhere.step()
            gpt.loss(ids).backward()
            trained = {name: p.grad for name, p in gpt.named_parameters() if p.grad is not None}
            kept.append({name: gradient.clone() for name, gradient in trained.items()})
            nn.utils.clip_grad_norm_(gpt.parameters(), 1e-3)
            optimizer.step()
            optimizer.zero_grad()
    assert logger.tracer.status()["warnings"] == []
    hold(logged.rows(), kept, "pre_clip")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("how", ["by norm", "by value", "each by its norm", "noise"])
def test_clipping_is_told_from_noise_in_every_precision(dtype, how) -> None:
    generator = torch.Generator().manual_seed(5)
    for size in (1e-5, 1e-2, 3.0):
        for bound in (0.003, 0.3, 0.7):
            # One of them has values of one sign only.
            given = [torch.randn(200, generator=generator) * size, torch.rand(60, generator=generator) * size]
            old = [each.to(dtype) for each in given]
            new = [
                each * bound
                if how == "by norm"
                else each.clamp(-bound * size, bound * size)
                if how == "by value"
                else each * (bound / (1 + at))
                if how == "each by its norm"
                else each + (torch.randn(each.shape, generator=generator) * size * bound).to(dtype)
                for at, each in enumerate(old)
            ]
            noise = bound > 4 * torch.finfo(dtype).eps
            words = change_of(
                *(measure(each).tolist() for each in (old, new)), [torch.finfo(dtype)] * 2, passes=4
            )
            if how != "noise":
                assert words is None
            elif noise:
                assert words is not None
