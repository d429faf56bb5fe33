"""The logger of statistics beside a training: off, beside a tracer, at fault, compiled, and never in the way."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from seen_statistics import ALL, same
from torch import nn

import megalens
from megalens.adapters import Adapter
from megalens.tracer import TracerError


def test_nothing_is_installed_while_everything_is_off(gpt, ids, logged) -> None:
    def hooks() -> int:
        of_modules = sum(
            len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in gpt.modules()
        )
        return of_modules + sum(len(p._post_accumulate_grad_hooks or ()) for p in gpt.parameters())

    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, param=0)
    assert (hooks(), len(optimizer._optimizer_step_pre_hooks)) == (0, 0)
    with logger.step():
        gpt.loss(ids).backward()
        assert hooks() == 0
    logger.close()
    seldom = logged(gpt, optimizer, activation=2, grad=2, dgrad=2)
    # One counts passes until a step begins.
    before = hooks() - 1
    with seldom.step():
        gpt.loss(ids).backward()
        # No hook on modules inside of the model in a step that is not logged.
        assert hooks() == before
    with seldom.step():
        assert hooks() > before
        gpt.loss(ids).backward()
    assert hooks() == before
    seldom.close()
    assert (hooks(), len(optimizer._optimizer_step_pre_hooks)) == (0, 0)


def test_a_tracer_that_is_there_carries_the_statistics_beside_its_flags(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, flags=["HiddenStates"])
    with megalens.log_statistics(gpt, None, residual=1, tracer=tracer) as logger:
        with tracer.step():
            gpt.loss(ids).backward()
        assert small_hub.moments.get(timeout=20)["name"] == "blocks.0/output0"
        assert small_hub.rows.get(timeout=20)["flag"] == "HiddenStates"
        with pytest.raises(TracerError, match="logged already"):
            megalens.log_statistics(gpt, None, residual=1, tracer=tracer)
        with pytest.raises(TracerError, match="name are settings of a tracer"):
            megalens.log_statistics(gpt, None, tracer=tracer, name="x")
    assert logger.tracer is tracer
    with tracer.step():
        gpt.loss(ids).backward()
    # The tracer goes on without.
    assert {small_hub.rows.get(timeout=20)["step"] for _ in range(3)} == {1, 2}
    tracer.close()
    assert small_hub.moments.qsize() == 2


def test_a_step_that_ends_with_the_optimizers_is_logged_too(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, param=1, grad=1)
    logger.tracer.wrap(optimizer)
    for _ in range(2):
        gpt.loss(ids).backward()
        optimizer.step()
        optimizer.zero_grad()
    weights = gpt.head.weight.detach().clone()
    rows = logged.rows()
    assert {step for _, _, step in rows} == {1, 2}
    same(rows["param", "head.weight", 2], weights)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grad": 1.5}, "grad=… must be a number of steps"),
        ({"param": True}, "param=… must be a number of steps"),
        ({"loss_scale": "x"}, "loss_scale must be a GradScaler"),
        ({"samples": 1.5}, "samples must be how many"),
        ({}, "was not told what to log: give any of param, grad"),
        ({"grad": np.int64(1)}, "With hub=None statistics go to files only, and there are none: give jsonl="),
    ],
)
def test_a_wrong_argument_is_named(gpt, options: dict, words: str) -> None:
    with pytest.raises(TracerError, match=words):
        megalens.log_statistics(gpt, None, hub=None, **options)


def test_a_model_that_no_adapter_knows_has_everything_but_the_residual_stream(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    files = {"hub": None, "jsonl": tmp_path / "unknown"}
    with megalens.log_statistics(model, None, residual=1, **files) as logger, logger.step():
        model(torch.ones(2, 3)).sum().backward()
    assert any(
        "residual stream of this model is not known" in each for each in logger.tracer.status()["warnings"]
    )
    known = Adapter(layer="{i}")
    options = {"hub": None, "jsonl": tmp_path / "known", "adapter": known}
    with megalens.log_statistics(model, None, residual=1, **options) as logger, logger.step():
        model(torch.ones(2, 3))
    (file,) = (tmp_path / "known").rglob("rank0.jsonl")
    assert sorted(json.loads(file.read_text())["values"]) == [
        "layers.0/output0",
        "layers.1/output0",
        "layers.2/output0",
        "layers/input0",
    ]


@pytest.mark.parametrize(("sites", "said"), [(None, ["sites='all' measures"]), ("all", [])])
def test_a_model_without_projections_has_no_activations_and_a_sentence(sites, said, logged) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten())
    more = {} if sites is None else {"sites": sites}
    logger = logged(model, None, activation=1, **more)
    with logger.step():
        model(torch.ones(1, 1, 4, 4)).sum().backward()
    warnings = logger.tracer.status()["warnings"]
    assert len(warnings) == len(said)
    assert all(part in text for part, text in zip(said, warnings, strict=True))


def test_a_fault_of_the_loggers_own_does_not_reach_the_training(gpt, ids, logged) -> None:
    logger = logged(gpt, None, param=1, samples=lambda: int("x"), activation=1)
    with logger.step():
        gpt.loss(ids).backward()
    rows = logged.rows()
    assert rows["param", "head.weight", 1]["samples"] == -1
    assert any("samples could not be read" in text for text in logger.tracer.status()["warnings"])


@pytest.mark.slow
def test_a_compiled_model_has_its_parameters_and_gradients_and_the_rest_is_said(gpt, ids, logged) -> None:
    optimizer = torch.optim.SGD(gpt.parameters(), 0.1)
    logger = logged(gpt, optimizer, **ALL)
    loss = torch.compile(gpt.loss, backend="aot_eager")
    for _ in range(2):
        optimizer.zero_grad()
        with logger.step():
            loss(ids).backward()
            gradient = gpt.blocks[0].mlp.fc1.weight.grad.clone()
            nn.utils.clip_grad_norm_(gpt.parameters(), 0.01)
            optimizer.step()
    rows = logged.rows()
    assert {stat for stat, _, _ in rows} == {"param", "grad"}
    assert rows["grad", "blocks.0.mlp.fc1.weight", 2]["gradient_stage"] == "pre_clip"
    same(rows["grad", "blocks.0.mlp.fc1.weight", 2], gradient)
    assert any("Nothing could be measured inside" in text for text in logger.tracer.status()["warnings"])


def test_a_layer_has_one_number_in_traced_tensors_and_in_the_names_of_statistics(
    gpt, ids, traced, small_hub
) -> None:
    tracer = traced(
        gpt,
        flags={
            "HiddenStates": {"compressor": {"name": "NoOp"}, "samples": None},
            "InputTokens": {"compressor": {"name": "NoOp"}},
        },
    )
    with megalens.log_statistics(gpt, None, residual=1, tracer=tracer), tracer.step():
        gpt.loss(ids).backward()
    means = {}
    for row in small_hub.next_rows(4):
        means.setdefault(row["flag"], {})[row["layer"]] = sum(row["values"]) / len(row["values"])
    logged = [small_hub.moments.get(timeout=20) for _ in range(3)]
    named = {row["name"]: row["mean"] for row in logged}
    assert set(named) == {"blocks/input0", "blocks.0/output0", "blocks.1/output0"}
    assert set(means["HiddenStates"]) == {0, 1}
    for layer, mean in means["HiddenStates"].items():
        assert mean == pytest.approx(named[f"blocks.{layer}/output0"], rel=1e-5)
    # The embedding is no layer.
    assert set(means["InputTokens"]) == {-1}


def said(logger) -> list[str]:
    return [text for text in logger.tracer.status()["warnings"] if "Step 1 has" in text or "Nothing" in text]


def test_modules_that_a_step_does_not_reach_are_named_once(gpt, ids, logged) -> None:
    logger = logged(gpt, activation=1)
    mlp = gpt.blocks[1].mlp
    mlp.forward = lambda x: mlp.fc2.forward(mlp.fc1(x))
    for _ in range(2):
        with logger.step():
            gpt.loss(ids).backward()
    rows = logged.rows()
    assert not [name for _, name, _ in rows if "blocks.1.mlp.fc2" in name]
    assert said(logger) == [
        "Step 1 has no statistics of what goes into and out of blocks.1.mlp.fc2: it was not called, or only its "
        "forward method, which runs no hooks."
    ]


def test_the_projection_that_torch_reads_without_a_call_is_named(logged) -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(8, 8)
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            x = self.first(x)
            return self.attention(x, x, x)[0]

    model = Attending()
    logger = logged(model, activation=1)
    with logger.step():
        model(torch.randn(2, 3, 8)).sum().backward()
    assert {name for _, name, _ in logged.rows()} >= {"first/input0", "first/output0"}
    assert said(logger) == [
        "Step 1 has no statistics of what goes into and out of attention.out_proj: nn.MultiheadAttention reads "
        "its weight and does not call it."
    ]


def test_of_passes_that_are_no_training_it_is_not_said_that_nothing_was_called(gpt, ids, logged) -> None:
    logger = logged(gpt, activation=1)
    with logger.step(), torch.no_grad():
        gpt(ids)
    assert not any(name.startswith("blocks") for _, name, _ in logged.rows())
    assert said(logger) == []
    assert any("forward passes that are no training" in text for text in logger.tracer.status()["warnings"])


def test_a_step_that_reaches_all_modules_has_nothing_said_of_it(gpt, ids, logged) -> None:
    logger = logged(gpt, activation=1, dgrad=1)
    with logger.step():
        gpt.loss(ids).backward()
    assert logged.rows()
    assert logger.tracer.status()["warnings"] == []
