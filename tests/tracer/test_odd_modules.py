"""Modules that take no hooks, and tensors of a user's own class: what can be seen of them is, and nothing else is lost."""

import pytest
import torch
from torch import nn

import megalens
from megalens import NoOp
from megalens.tracer.first_pass import put_back

HIDDEN = "HiddenStates"
IDS = torch.arange(8).reshape(2, 4)


class Named(torch.Tensor):
    """Only adds a method, as the tensors of training libraries do."""

    def shown(self) -> str:
        return f"{self.ndim} axes"


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))

    def forward(self, x):
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(8, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, ids):
        x = self.embedding(ids)
        if self.named:
            x = x.as_subclass(Named)
        for block in self.blocks:
            x = block(x)
        return x


@pytest.fixture
def model():
    model = Model()
    model.named = False
    return model


def two_steps(model, tracer) -> None:
    for _ in range(2):
        with tracer.step():
            model(IDS).square().mean().backward()


def test_tensors_of_a_class_that_only_adds_methods_are_read_as_any_other(traced, small_hub, model) -> None:
    model.named = True
    seen = []
    model.blocks[1].register_forward_hook(
        lambda m, a, output: seen.append(output.detach().flatten().tolist())
    )
    tracer = traced(model, flags={HIDDEN: {"compressor": NoOp(), "samples": "all"}})
    logger = megalens.log_statistics(model, tracer=tracer, activation=1)
    two_steps(model, tracer)
    logger.close()
    rows = {(row["step"], row["layer"]): row["values"] for row in small_hub.next_rows(4)}
    assert rows[2, 1] == pytest.approx(seen[1], rel=1e-6)
    assert not [text for text in tracer.status()["warnings"] if "could not" in text or "lost" in text]


def test_a_script_among_the_modules_costs_only_what_is_inside_of_it(traced, small_hub, model) -> None:
    model.blocks[1].mlp = torch.jit.script(model.blocks[1].mlp)
    tracer = traced(model, flags=dict.fromkeys((HIDDEN, "MLP2_mat_mul"), NoOp()))
    logger = megalens.log_statistics(model, tracer=tracer, activation=1, param=1)
    two_steps(model, tracer)
    logger.close()
    rows = [(row["step"], row["flag"], row["layer"]) for row in small_hub.next_rows(6)]
    assert {row for row in rows if row[1] == HIDDEN} == {(step, HIDDEN, n) for step in (1, 2) for n in (0, 1)}
    assert {row[2] for row in rows if row[1] != HIDDEN} == {0}
    (said,) = [text for text in tracer.status()["warnings"] if "MLP2" in text]
    assert said.startswith("MLP2 output, layer 1: not traced. No projection was seen")


def test_buffers_of_a_script_are_put_back() -> None:
    script = torch.jit.script(nn.BatchNorm1d(4))
    with put_back(nn.Sequential(script)):
        script(torch.randn(3, 4) + 5)
    assert script.running_mean.tolist() == [0.0] * 4
    assert int(script.num_batches_tracked) == 0
