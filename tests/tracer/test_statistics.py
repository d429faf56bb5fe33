"""Statistics of the very tensors of a training, held against numpy in float64 and seen through a real socket."""

from __future__ import annotations

import json
import math
from threading import Event

import pytest
import torch
from seen_statistics import ALL, Seen, projects, same
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from megalens.demo.model import GPT, GPTConfig


def test_all_six_statistics_are_those_of_the_tensors_themselves(gpt, ids, logged, small_hub) -> None:
    optimizer = torch.optim.AdamW(gpt.parameters(), 0.01)
    logger = logged(gpt, optimizer, **ALL, samples=lambda: 77)
    sites = Seen(gpt, projects)
    layers = Seen(gpt, lambda name, module: name in ("blocks.0", "blocks.1"))
    with logger.step():
        gpt.loss(ids).backward()
        gradients = {name: p.grad.clone() for name, p in gpt.named_parameters()}
        nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
    parameters = {name: p.detach().clone() for name, p in gpt.named_parameters()}
    rows = logged.rows()
    # One that is sent once logging has ended has none.
    assert ALL in [each.get("statistics") for each in logged.announced]
    for name in parameters:
        same(rows.pop(("param", name, 1)), parameters[name])
        same(rows.pop(("grad", name, 1)), gradients[name])
    for name, values in sites.values.items():
        # Ids are no values, logits are left out.
        if values[0].is_floating_point() and name != "head/output0":
            same(rows.pop(("activation", name, 1)), *values)
    for name, values in sites.gradients.items():
        if name != "head/output0":
            same(rows.pop(("dgrad", name, 1)), *values)
    for stat, found in (("residual", layers.values), ("residual_dgrad", layers.gradients)):
        same(rows.pop((stat, "blocks/input0", 1)), *found["blocks.0/input0"])
        for layer in (0, 1):
            same(rows.pop((stat, f"blocks.{layer}/output0", 1)), *found[f"blocks.{layer}/output0"])
    assert rows == {}


def test_rows_say_step_samples_and_stage_and_come_at_their_intervals(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, param=2, grad=3, activation=0, residual=None, samples=3)
    for _ in range(6):
        with logger.step():
            gpt.loss(ids).backward()
            optimizer.step()
    rows = logged.rows()
    steps = {(stat, step) for stat, _, step in rows}
    assert steps == {("param", 2), ("param", 4), ("param", 6), ("grad", 3), ("grad", 6)}
    row = rows["grad", "blocks.0.mlp.fc1.weight", 6]
    assert {
        key: row[key] for key in ("samples", "rank", "stage", "rounding", "gradient_stage", "loss_scale")
    } == {
        "samples": 18,
        "rank": 0,
        "stage": -1,
        "rounding": 0.0,
        "gradient_stage": "pre_clip",
        "loss_scale": 1.0,
    }
    assert rows["param", "blocks.0.mlp.fc1.weight", 2]["gradient_stage"] == ""


def test_steps_of_more_and_of_fewer_micro_batches_keep_rows_of_their_own(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, activation=1, dgrad=1)
    # Nothing is taken from the training thread before all steps are over.
    begin, resume = Event(), Event()
    logger.tracer._coordinator.worker.task(lambda: (begin.set(), resume.wait(30)))
    assert begin.wait(30)
    seen: dict[int, Seen] = {}
    for step, micro_batches in enumerate((1, 3, 1, 4, 2), 1):
        seen[step] = Seen(gpt, projects)
        with logger.step():
            for _ in range(micro_batches):
                gpt.loss(ids).backward()
            optimizer.step()
            optimizer.zero_grad()
        seen[step].remove()
    resume.set()
    rows = logged.rows()
    for step, found in seen.items():
        for stat, values in (("activation", found.values), ("dgrad", found.gradients)):
            for name, parts in values.items():
                if name != "head/output0" and parts[0].is_floating_point():
                    same(rows.pop((stat, name, step)), *parts)
    assert rows == {}


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_checkpointing_computes_twice_is_counted_once(gpt, ids, logged, reentrant: bool) -> None:
    whole, cut = gpt, GPT(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
    cut.load_state_dict(gpt.state_dict())
    for block in cut.blocks:
        block.attention.forward = _checkpointed(block.attention.forward, reentrant)
        block.forward = _checkpointed(block.forward, reentrant)
    found = []
    for model in (whole, cut):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        logger = logged(model, optimizer, **ALL)
        for _ in range(2):
            with logger.step():
                for part in (ids, ids[:1]):
                    model.loss(part).backward()
                with torch.no_grad():
                    model.loss(ids)
                optimizer.step()
                optimizer.zero_grad()
        found.append(logged.rows())
    plain, again = found
    assert again.keys() == plain.keys()
    for key, row in again.items():
        for column in ("count", "mean", "m2", "m4", "min", "max"):
            assert row[column] == pytest.approx(plain[key][column], rel=1e-5, abs=1e-12), (key, column)


def _checkpointed(forward, reentrant: bool):
    return lambda *args: checkpoint(forward, *args, use_reentrant=reentrant)


def test_tied_and_shared_modules_are_counted_once(logged, ids) -> None:
    class Twice(nn.Module):
        """One linear map that is used twice, and a head that is the embedding."""

        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(50, 8)
            self.first = self.second = nn.Linear(8, 8)
            self.lm_head = nn.Linear(8, 50, bias=False)
            self.lm_head.weight = self.embedding.weight

        def forward(self, tokens: Tensor) -> Tensor:
            return self.lm_head(self.second(self.first(self.embedding(tokens))))

    model = Twice()
    logger = logged(model, torch.optim.SGD(model.parameters(), 0.1), param=1, grad=1, activation=1)
    seen = []
    model.first.register_forward_hook(lambda m, args, out: seen.append(args[0].detach()))
    with logger.step():
        model(ids).sum().backward()
    gradient = model.embedding.weight.grad.clone()
    rows = logged.rows()
    names = {
        stat: sorted(name for s, name, _ in rows if s == stat) for stat in ("param", "grad", "activation")
    }
    assert names["param"] == names["grad"] == ["embedding.weight", "first.bias", "first.weight"]
    assert names["activation"] == ["embedding/output0", "first/input0", "first/output0", "lm_head/input0"]
    same(rows["activation", "first/input0", 1], *seen)
    same(rows["grad", "embedding.weight", 1], gradient)


def test_an_empty_tensor_has_a_row_of_count_zero(logged, tmp_path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    model[0].register_parameter("none", nn.Parameter(torch.empty(0, 4)))
    logger = logged(model, param=1, activation=1, dgrad=1, jsonl=tmp_path)
    for samples in (0, 3):
        with logger.step():
            model(torch.ones(samples, 4)).sum().backward()
    rows = logged.rows()
    for stat, name, step in (
        ("param", "0.none", 1),
        ("activation", "0/input0", 1),
        ("activation", "1/output0", 1),
        ("dgrad", "1/output0", 1),
    ):
        row = rows[stat, name, step]
        assert [row[of] for of in ("count", "m2", "m3", "m4", "nan_count", "inf_count")] == [0] * 6
        assert math.isnan(row["mean"])
        assert math.isnan(row["min"])
    assert rows["activation", "0/input0", 2]["count"] == 12
    for file in tmp_path.rglob("rank0.jsonl"):
        for line in file.read_text().splitlines():
            json.loads(line, parse_constant=pytest.fail)
