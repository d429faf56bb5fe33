"""Statistics of gradients: over micro-batches, before clipping, without the loss scale, and NaN."""

from __future__ import annotations

import math

import pytest
import torch
from seen_statistics import Seen, same
from torch import nn

CPU_SCALE = 1024.0
# As a script does that took the function before anybody logged.
clip_by_norm = nn.utils.clip_grad_norm_


def clip_norm_in_parts(parameters, most: float) -> None:
    """Clip every parameter by itself."""
    for parameter in parameters:
        nn.utils.clip_grad_norm_([parameter], most)


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


@pytest.mark.parametrize("clip", [clip_by_norm, nn.utils.clip_grad_value_, clip_norm_in_parts])
def test_gradients_are_those_before_torch_clips_them_whatever_the_number_of_passes(
    gpt, ids, logged, clip
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    kept = []
    for count in (3, 2, 1, 4, 1):
        with logger.step():
            for at in range(count):
                gpt.loss(ids[at % 3 :]).backward()
            kept.append({name: p.grad.clone() for name, p in gpt.named_parameters()})
            clip(list(gpt.parameters()), 1e-4)
            assert float(gpt.head.weight.grad.abs().max()) <= 1.01e-4
            optimizer.step()
            optimizer.zero_grad()
    rows = logged.rows()
    for step, gradients in enumerate(kept, start=1):
        for name, gradient in gradients.items():
            assert rows["grad", name, step]["gradient_stage"] == "pre_clip"
            same(rows["grad", name, step], gradient)


def test_a_norm_that_is_asked_for_between_two_passes_is_not_the_end_of_the_step(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    for count in (4, 3):
        with logger.step():
            for _ in range(count):
                gpt.loss(ids).backward()
                nn.utils.get_total_norm([p.grad for p in gpt.parameters()])
            gradient = gpt.head.weight.grad.clone()
            clip_by_norm(gpt.parameters(), 1e-4)
            optimizer.step()
            optimizer.zero_grad()
    row = logged.rows()["grad", "head.weight", 2]
    assert row["gradient_stage"] == "pre_clip"
    same(row, gradient)


def test_clipping_of_ones_own_is_said_once_and_then_every_pass_is_measured(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    kept = []
    for count in (3, 1, 3, 2):
        with logger.step():
            for _ in range(count):
                gpt.loss(ids).backward()
            kept.append(gpt.head.weight.grad.clone())
            gpt.head.weight.grad.mul_(0.125)
            optimizer.step()
            optimizer.zero_grad()
    (said,) = [text for text in logger.tracer.status()["warnings"] if "maybe clipped" in text]
    assert "pre_step" in said
    rows = logged.rows()
    stages = [rows["grad", "head.weight", step]["gradient_stage"] for step in (1, 2, 3, 4)]
    assert stages == ["pre_clip", "pre_step", "pre_clip", "pre_clip"]
    for step, gradient in enumerate(kept, start=1):
        same(rows["grad", "head.weight", step], gradient * (0.125 if step == 2 else 1))


def test_fewer_passes_without_clipping_are_still_before_it(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    for count in (3, 1):
        optimizer.zero_grad()
        with logger.step():
            for _ in range(count):
                gpt.loss(ids).backward()
            optimizer.step()
    gradient = gpt.norm.weight.grad.clone()
    rows = logged.rows()
    assert rows["grad", "norm.weight", 2]["gradient_stage"] == "pre_clip"
    same(rows["grad", "norm.weight", 2], gradient)


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


def test_gradients_that_a_scaler_divided_are_not_divided_again_where_there_were_fewer_passes(
    gpt, ids, logged
) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=CPU_SCALE)
    logger = logged(gpt, optimizer, grad=1, loss_scale=scaler)
    for count in (3, 1):
        with logger.step():
            for _ in range(count):
                scaler.scale(gpt.loss(ids)).backward()
            scaler.unscale_(optimizer)
            gradient = gpt.head.weight.grad.clone()
            clip_by_norm(gpt.parameters(), 1e-4)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    row = logged.rows()["grad", "head.weight", 2]
    assert (row["gradient_stage"], row["loss_scale"]) == ("pre_clip", CPU_SCALE)
    same(row, gradient)


def test_a_scale_that_nobody_told_of_is_said_to_be_unknown(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1, dgrad=1)
    with logger.step(), torch.autocast("cpu", torch.float16):
        (gpt.loss(ids) * 64).backward()
        optimizer.step()
    rows = logged.rows()
    assert rows["grad", "head.weight", 1]["gradient_stage"] == "pre_step"
    row = rows["dgrad", "head/input0", 1]
    assert row["gradient_stage"] == "backward_scaled"
    assert math.isnan(row["loss_scale"])
