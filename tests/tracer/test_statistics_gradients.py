"""Statistics of gradients: over micro-batches, before clipping, without the loss scale, and NaN."""

from __future__ import annotations

import math

import pytest
import torch
from seen_statistics import Seen, same
from torch import nn

CPU_SCALE = 1024.0


def by_norm(model: nn.Module) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 1e-4)


def by_value(model: nn.Module) -> None:
    nn.utils.clip_grad_value_(model.parameters(), 1e-4)


def by_norm_in_parts(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.utils.clip_grad_norm_([parameter], 1e-4)


def by_hand(model: nn.Module) -> None:
    """Clip as many a script does, behind autograd's back: no version counts it."""
    for parameter in model.parameters():
        parameter.grad.data.mul_(1e-4 / (parameter.grad.data.norm() + 1e-6))


def by_replacing(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = parameter.grad.clamp(-1e-4, 1e-4)


def not_at_all(model: nn.Module) -> None:
    pass


@pytest.mark.parametrize("passes", [(2, 2, 2), (3, 1, 2), (1, 4, 1)])
def test_accumulated_micro_batches_are_one_tensor_and_gradients_those_of_the_last_pass(
    gpt, ids, logged, passes
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1, activation=1, dgrad=1)
    kept = []
    for count in passes:
        seen = Seen(gpt, lambda name, module: name == "blocks.1.mlp.fc1")
        with logger.step():
            for at in range(count):
                gpt.loss(ids[at % 3 :]).backward()
            gradients = {name: p.grad.clone() for name, p in gpt.named_parameters()}
            nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        kept.append((seen.values, seen.gradients, gradients))
        seen.remove()
    rows = logged.rows()
    for step, (values, back, gradients) in enumerate(kept, start=1):
        same(rows["activation", "blocks.1.mlp.fc1/input0", step], *values["blocks.1.mlp.fc1/input0"])
        same(rows["dgrad", "blocks.1.mlp.fc1/output0", step], *back["blocks.1.mlp.fc1/output0"])
        assert rows["grad", "positions.weight", step]["gradient_stage"] == "pre_clip"
        same(rows["grad", "positions.weight", step], gradients["positions.weight"])


@pytest.mark.parametrize("clip", [by_norm, by_value, by_norm_in_parts, by_hand, by_replacing, not_at_all])
def test_gradients_are_those_before_clipping_by_whatever_means_and_number_of_passes(
    gpt, ids, logged, clip
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    kept = []
    for count in (3, 2, 1, 4, 1):
        with logger.step():
            for at in range(count):
                gpt.loss(ids[at % 3 :]).backward()
                # Somebody who only looks, between two passes.
                nn.utils.get_total_norm([p.grad for p in gpt.parameters()])
            kept.append({name: p.grad.clone() for name, p in gpt.named_parameters()})
            clip(gpt)
            assert clip is not_at_all or float(gpt.head.weight.grad.abs().max()) <= 1.01e-4
            optimizer.step()
            optimizer.zero_grad()
    assert logger.tracer.status()["warnings"] == []
    rows = logged.rows()
    for step, gradients in enumerate(kept, start=1):
        for name, gradient in gradients.items():
            assert rows["grad", name, step]["gradient_stage"] == "pre_clip"
            same(rows["grad", name, step], gradient)


def test_gradients_that_no_backward_pass_made_are_said_to_be_as_the_optimizer_took_them(gpt, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    with logger.step():
        gpt.head.weight.grad = torch.full_like(gpt.head.weight, 2.0)
        optimizer.step()
    (said,) = logger.tracer.status()["warnings"]
    assert "no backward pass" in said
    assert "pre_step" in said
    row = logged.rows()["grad", "head.weight", 1]
    assert (row["gradient_stage"], row["mean"]) == ("pre_step", 2.0)


def test_a_gradient_that_is_nan_is_counted(gpt, ids, logged) -> None:
    logger = logged(gpt, torch.optim.SGD(gpt.parameters(), 0.1), grad=1)
    with logger.step():
        (gpt(ids).sum() * math.nan).backward()
    row = logged.rows()["grad", "norm.weight", 1]
    assert (row["count"], row["nan_count"], row["inf_count"]) == (0, 16, 0)
    assert math.isnan(row["mean"])


def test_a_gradient_scaler_is_divided_out_and_skipped_steps_have_no_gradients(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=CPU_SCALE, growth_interval=1)
    logger = logged(gpt, optimizer, grad=1, dgrad=1, residual_dgrad=1, loss_scale=scaler)
    gradients, scales = [], []
    for step in range(1, 4):
        with logger.step():
            loss = gpt.loss(ids) * (math.inf if step == 2 else 1.0)
            scaler.scale(loss).backward()
            scales.append(scaler.get_scale())
            scaler.unscale_(optimizer)
            gradients.append(gpt.head.weight.grad.clone())
            nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    rows = logged.rows()
    assert scales == [CPU_SCALE, 2 * CPU_SCALE, CPU_SCALE]
    assert sorted(step for stat, name, step in rows if (stat, name) == ("grad", "head.weight")) == [1, 3]
    for step in (1, 3):
        row = rows["grad", "head.weight", step]
        assert (row["gradient_stage"], row["loss_scale"]) == ("pre_clip", scales[step - 1])
        same(row, gradients[step - 1])
    for stat, name in (("dgrad", "blocks.0.mlp.fc1/output0"), ("residual_dgrad", "blocks.1/output0")):
        assert [rows[stat, name, step]["loss_scale"] for step in (1, 2, 3)] == scales
        assert rows[stat, name, 1]["gradient_stage"] == "backward"
        # The same data, and the weights hardly changed: without the scale the size is the same.
        assert rows[stat, name, 3]["max"] == pytest.approx(rows[stat, name, 1]["max"], rel=0.2)


@pytest.mark.parametrize("unscales", [True, False])
@pytest.mark.parametrize("told", [True, False])
def test_the_scale_is_divided_out_once_whoever_unscales_and_whether_the_scaler_was_given_or_not(
    gpt, ids, logged, told, unscales
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=CPU_SCALE, growth_interval=2)
    given = {"loss_scale": scaler} if told else {}
    logger = logged(gpt, optimizer, grad=1, dgrad=1, **given)
    kept, scales = [], []
    for count in (3, 1, 2):
        with logger.step():
            for _ in range(count):
                scaler.scale(gpt.loss(ids)).backward()
            scales.append(scaler.get_scale())
            kept.append(gpt.head.weight.grad / scales[-1])
            if unscales:
                scaler.unscale_(optimizer)
                by_norm(gpt)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert scales == [CPU_SCALE, CPU_SCALE, 2 * CPU_SCALE]
    assert logger.tracer.status()["warnings"] == []
    rows = logged.rows()
    for step, (gradient, scale) in enumerate(zip(kept, scales, strict=True), start=1):
        row = rows["grad", "head.weight", step]
        assert (row["gradient_stage"], row["loss_scale"]) == ("pre_clip", scale)
        same(row, gradient)
        row = rows["dgrad", "blocks.0.mlp.fc1/output0", step]
        assert (row["gradient_stage"], row["loss_scale"]) == ("backward", scale)


def test_of_two_scalers_that_nobody_told_of_the_scale_is_not_known(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    scalers = [torch.amp.GradScaler("cpu", init_scale=scale) for scale in (8.0, 64.0)]
    logger = logged(gpt, optimizer, grad=1, dgrad=1)
    with logger.step():
        for scaler in scalers:
            scaler.scale(gpt.loss(ids)).backward()
        optimizer.step()
    (said,) = logger.tracer.status()["warnings"]
    assert "loss_scale=" in said
    rows = logged.rows()
    assert rows["grad", "head.weight", 1]["gradient_stage"] == "pre_step"
    assert rows["dgrad", "head/input0", 1]["gradient_stage"] == "backward_scaled"


def test_a_scale_that_nobody_told_of_is_said_to_be_unknown(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1, dgrad=1)
    with logger.step(), torch.autocast("cpu", torch.float16):
        (gpt.loss(ids) * 64).backward()
        optimizer.step()
    (said,) = logger.tracer.status()["warnings"]
    assert "loss_scale=" in said
    rows = logged.rows()
    assert rows["grad", "head.weight", 1]["gradient_stage"] == "pre_step"
    row = rows["dgrad", "head/input0", 1]
    assert row["gradient_stage"] == "backward_scaled"
    assert math.isnan(row["loss_scale"])
