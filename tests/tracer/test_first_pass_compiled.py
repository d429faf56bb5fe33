"""The first forward pass of what is compiled, before it is traced, afterwards or where nobody can see it: nothing of the training changes."""

import contextlib
import functools

import pytest
import torch
from compiling import IDS, WAYS, recompiled, small
from torch import nn

from megalens import NoOp

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("compiler")]
FLAGS = {"HiddenStates": NoOp(), "QKV_mat_mul": NoOp()}


def whole_step(model):
    return torch.compile(lambda ids: loss_of(model, ids), fullgraph=True, backend="aot_eager")


def loss_of(run, ids):
    return nn.functional.cross_entropy(run(ids).flatten(0, 1), ids.flatten())


class Hidden(nn.Module):
    """Calls its layers by compiled functions of which no module tells."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small()
        self.fast = [torch.compile(each, fullgraph=True, backend="aot_eager") for each in self.inner.blocks]

    def forward(self, ids):
        x = self.inner.embedding(ids)
        for layer in self.fast:
            x = layer(x)
        return self.inner.head(x)


class Function(nn.Module):
    """Its activation is a compiled function."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = small()
        fused = torch.compile(lambda x: nn.functional.silu(x) * 2, fullgraph=True, backend="aot_eager")
        for block in self.inner.blocks:
            fc1 = block.mlp.fc1
            fc1.register_forward_hook(lambda module, args, output: fused(output))

    def forward(self, ids):
        return self.inner(ids)


def train(model, compile, tracer=None, *, late=False, compiled=True):
    """Return the losses of four steps, the weights, and how much was compiled."""
    torch._dynamo.reset()
    before = recompiled()
    run = model if late else compile(model)
    traces = None if tracer is None else tracer(run, flags=FLAGS, compiled=compiled)
    run = compile(model) if late else run
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(4):
        with contextlib.nullcontext() if traces is None else traces.step():
            loss = run(IDS) if compile is whole_step else loss_of(run, IDS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    return losses, [each.detach().clone() for each in model.parameters()], recompiled() - before, traces


def same(plain, traced) -> bool:
    return plain[0] == traced[0] and all(map(torch.equal, plain[1], traced[1])) and plain[2] == traced[2]


def made(way):
    """Return a model: layers that are compiled one by one share their code, of others one is compiled in half the time."""
    return small(layers=2 if way == "blocks" else 1)


@functools.cache
def untraced(way):
    return train(made(way), WAYS[way])


@pytest.mark.parametrize(
    ("way", "late"), [*((way, False) for way in WAYS), ("whole", True), ("in place", True), ("blocks", True)]
)
def test_a_model_is_watched_once_and_compiled_once(traced, way, late) -> None:
    watched = train(made(way), WAYS[way], traced, late=late)
    assert same(untraced(way), watched)
    points = watched[3].points
    assert points.watch is None
    assert "attention" in points.flags["QKV_mat_mul"].evidence[0]
    assert watched[3].status()["warnings"] == []


def test_a_step_that_is_compiled_as_a_whole_goes_on_and_a_sentence_says_that_it_showed_nothing(
    traced,
) -> None:
    plain = train(small(layers=1), whole_step)
    watched = train(small(layers=1), whole_step, traced, late=True)
    assert same(plain, watched)
    said, lost = watched[3].status()["warnings"]
    assert said.startswith("Step 1 did not show what the model does")
    assert lost.startswith("QKV_mat_mul is not traced.")


@pytest.mark.parametrize("kind", [Hidden, Function])
def test_what_only_the_pass_shows_to_be_compiled_is_compiled_all_the_same(traced, kind) -> None:
    plain = train(kind(), lambda model: model)
    watched = train(kind(), lambda model: model, traced, compiled=False)
    assert same(plain, watched)
    assert watched[3].points.watch is None


def test_parts_of_one_tensor_are_not_guessed_until_a_pass_is_seen(traced) -> None:
    model = small()
    tracer = train(model, whole_step, traced, late=True)[3]
    assert "QKV_mat_mul" not in {name for name, flag in tracer.points.flags.items() if flag.layers}
    assert tracer.points.watch is not None
    with tracer.step():
        model(IDS)
    assert sorted(tracer.points.flags["QKV_mat_mul"].layers) == [0, 1]
