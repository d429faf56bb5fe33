"""Losses made of any tensor that a model gives: micro-batches and gradients are those of every backward pass."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from seen_statistics import same
from torch import Tensor, nn

from megalens import Tile, trace

BOTH = {"HiddenStates": {"compressor": Tile(1), "passes": ["forward", "backward"]}}


@dataclass
class Given:
    loss: Tensor
    more: dict[str, Any]


class Model(nn.Module):
    """Gives its own loss first, as models of Hugging Face do, and all else below."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.blocks = body.blocks

    def forward(self, ids: Tensor, kind: str = "tuple") -> Any:
        hidden: list[Tensor] = []
        hooks = [
            block.register_forward_hook(lambda module, args, output: hidden.append(output))
            for block in self.blocks
        ]
        logits = self.body(ids)
        for hook in hooks:
            hook.remove()
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        if kind == "dataclass":
            return Given(loss, {"logits": [logits], "hidden": tuple(hidden)})
        return loss, logits, tuple(hidden)


def of_logits(model, ids):
    return model(ids)[1].square().mean()


def of_hidden_states(model, ids):
    return sum(each.square().mean() for each in model(ids)[2])


def of_one_hidden_state(model, ids):
    return model(ids)[2][1].square().mean()


def of_several(model, ids):
    loss, logits, hidden = model(ids)
    return loss + logits.logsumexp(-1).mean() + hidden[0].mean()


def of_a_dataclass(model, ids):
    return model(ids, "dataclass").more["logits"][0].square().mean()


def with_a_teacher(model, ids):
    with torch.no_grad():
        target = model(ids.flip(0))[1].softmax(-1)
    return -(target * model(ids)[1].log_softmax(-1)).sum(-1).mean()


LOSSES = [of_logits, of_hidden_states, of_one_hidden_state, of_several, of_a_dataclass, with_a_teacher]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_measured_before_clipping_whatever_the_loss_is_made_of(
    gpt, ids, logged, loss, training
) -> None:
    model = Model(gpt).train(training)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    logger = logged(model, optimizer, grad=1, activation=1)
    kept = []
    for _ in range(2):
        with logger.step():
            for part in (ids[:2], ids[1:]):
                loss(model, part).backward()
            kept.append({n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None})
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
            optimizer.zero_grad()
    said = [text for text in logger.tracer.status()["warnings"] if "no training" not in text]
    rows = logged.rows()
    assert said == []
    for step, gradients in enumerate(kept, start=1):
        assert {name for stat, name, at in rows if (stat, at) == ("grad", step)} == set(gradients)
        for name, gradient in gradients.items():
            assert rows["grad", name, step]["gradient_stage"] == "pre_clip"
            same(rows["grad", name, step], gradient)
        assert rows["activation", "body.blocks.0.mlp.fc1/input0", step]["count"] == 4 * 8 * 16


@pytest.mark.parametrize("loss", LOSSES)
def test_passes_in_evaluation_mode_are_micro_batches_whatever_the_loss_is_made_of(
    gpt, ids, small_hub, loss
) -> None:
    model = Model(gpt).eval()
    twin = copy.deepcopy(model)
    with trace(model, hub=small_hub.address, flags=BOTH, layers="1") as tracer, tracer.step():
        for part in (ids[:2], ids[1:]):
            loss(model, part).backward()
    seen: list[float] = []

    def note(module: nn.Module, args: Any, output: Tensor) -> None:
        if output.requires_grad:
            seen.append(float(output.detach().mean()))
            output.register_hook(lambda gradient: seen.append(float(gradient.mean())))

    twin.blocks[1].register_forward_hook(note)
    for part in (ids[:2], ids[1:]):
        loss(twin, part).backward()
    rows = small_hub.next_rows(4)
    assert small_hub.rows.empty()
    rows.sort(key=lambda row: (row["micro_batch"], row["pass"] == "backward"))
    assert [(row["micro_batch"], row["pass"]) for row in rows] == [
        (at, side) for at in (0, 1) for side in ("forward", "backward")
    ]
    assert [row["mean"] for row in rows] == [pytest.approx(mean, rel=1e-5, abs=1e-9) for mean in seen]


def test_a_loss_of_what_a_hook_has_seen_is_measured_before_clipping(gpt, ids, logged) -> None:
    seen: list[Tensor] = []
    gpt.blocks[1].register_forward_hook(lambda module, args, output: seen.append(output))
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, grad=1)
    with logger.step():
        gpt(ids)
        seen.pop().square().mean().backward()
        kept = {name: p.grad.clone() for name, p in gpt.named_parameters() if p.grad is not None}
        nn.utils.clip_grad_norm_(gpt.parameters(), 1e-3)
        optimizer.step()
    assert logger.tracer.status()["warnings"] == []
    rows = logged.rows()
    assert {name for _, name, _ in rows} == set(kept)
    for name, gradient in kept.items():
        assert rows["grad", name, 1]["gradient_stage"] == "pre_clip"
        same(rows["grad", name, 1], gradient)


def test_a_parameter_that_a_model_gives_keeps_no_hook(gpt, ids, logged) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.blocks, self.scale = gpt, gpt.blocks, nn.Parameter(torch.ones(()))

        def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
            return self.scale, self.body(ids)

    model = Scaled()
    logger = logged(model, torch.optim.SGD(model.parameters(), 0.1), grad=1)
    for _ in range(3):
        with logger.step():
            scale, logits = model(ids)
            (scale * logits).mean().backward()
    assert not model.scale._backward_hooks
    assert logged.rows()["grad", "body.head.weight", 3]["gradient_stage"] == "pre_clip"
