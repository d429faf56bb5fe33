"""Probes at modules that are odd, in compiled code: each tells what a plain hook of torch sees in the model uncompiled, or says why not, and no step fails."""

import copy
from collections import namedtuple

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from megalens.tracer import ModelPoints
from megalens.tracer.graph_probes import ALL_ITEMS, GraphProbes, end_of
from megalens.tracer.own_hooks import hook_after

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("compiler")]
Pair = namedtuple("Pair", "left right")


class Own(tuple):
    """A tuple of a class of its own, with an argument of its own."""

    def __new__(cls, one: Tensor, two: Tensor) -> "Own":
        return super().__new__(cls, (one, two))


class Marked(Tensor):
    """A tensor of a class of its own."""


class Inner(nn.Module):
    """What gives something odd, as a function says it."""

    def __init__(self, gives) -> None:
        super().__init__()
        self.linear, self.gives = nn.Linear(4, 4), gives

    def forward(self, x: Tensor):
        return self.gives(self.linear(x))


class Outer(nn.Module):
    """Calls it, and makes a loss of what it takes out of it."""

    def __init__(
        self, gives, takes=lambda given: given, times: int = 1, call=lambda inner, x: inner(x)
    ) -> None:
        super().__init__()
        self.first, self.inner = nn.Linear(4, 4), Inner(gives)
        self.takes, self.times, self.call = takes, times, call

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(self.times):
            x = self.takes(self.call(self.inner, x))
        return x.abs().square().sum()


class Many(nn.Module):
    """Some of them side by side, so that they are compiled at once; gives the loss of each."""

    def __init__(self, made) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.each = nn.ModuleList(Outer(*how) for how in made)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [each(x) for each in self.each]


def without_gradients(inner: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return x + inner(x)


def broken(inner: nn.Module, x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return inner(x)


ODD = {
    "transposed": (lambda x: x.transpose(0, 1), lambda x: x.transpose(0, 1)),
    "strided": (lambda x: x[:, ::2], lambda x: torch.cat([x, x], 1)),
    "expanded": (lambda x: x[:1].expand(3, 4),),
    "tuple": (lambda x: (x, None, 3), lambda given: given[0]),
    "list": (lambda x: [x, x.detach() + 1], lambda given: given[0] * given[1]),
    "named tuple": (lambda x: Pair(x, x.detach() + 1), lambda given: given.left * given.right),
    "in place": (lambda x: x.mul_(2.0),),
    "changed in place after": (lambda x: x, lambda x: x.mul_(2.0)),
    "given as it is": (lambda x: x, lambda x: x, 2),
    "no number": (lambda x: x.sum(),),
    "complex": (lambda x: torch.fft.fft(x), lambda x: x.real),
    "whole numbers": (lambda x: (x * 100).to(torch.int64), lambda x: x.float()),
    "half": (lambda x: x.to(torch.bfloat16), lambda x: x.float()),
    "nothing in it": (lambda x: x[:0],),
    "called twice": (lambda x: x.tanh(), lambda x: x, 2),
    "checkpointed": (
        lambda x: x.tanh(),
        lambda x: x,
        1,
        lambda inner, x: checkpoint(inner, x, use_reentrant=False),
    ),
    "without gradients": (lambda x: x.tanh(), lambda x: x, 1, without_gradients),
    "by name": (lambda x: x.tanh(), lambda x: x, 1, lambda inner, x: inner(x=x)),
    "sparse": (lambda x: x.to_sparse(), lambda x: x.to_dense()),
    "behind a break": (lambda x: x.tanh(), lambda x: x, 2, broken),
    "left out by the compiler": (
        lambda x: x.tanh(),
        lambda x: x,
        1,
        torch.compiler.disable(lambda inner, x: inner(x)),
    ),
}
# There the module is called as it is, or begins a graph.
ALONE = ("sparse", "behind a break", "left out by the compiler")
LOST = {
    "nothing": (lambda x: None, lambda given: torch.ones(3, requires_grad=True), "has no tensor there"),
    "mapping": (lambda x: {"a": x}, lambda given: given["a"], "has no tensor there"),
    "text": (lambda x: "text", lambda given: torch.ones(3, requires_grad=True), "has no tensor there"),
    "tuple of its own": (lambda x: Own(x, x), lambda given: given[1], "a tuple of a class of its own"),
    "tensor of its own": (
        lambda x: x.as_subclass(Marked),
        lambda x: x.as_subclass(Tensor),
        "DTensor or its like",
    ),
}
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def first(output) -> Tensor | None:
    return output[0] if isinstance(output, (tuple, list)) else output


def run(model: Many, call) -> tuple[list[float], list[list[Tensor | None]]]:
    """Losses and gradients of each."""
    losses = call(X)
    sum(losses).backward()
    return [loss.item() for loss in losses], [
        [weight.grad for weight in each.parameters()] for each in model.each
    ]


def probed(model: Many) -> tuple[GraphProbes, list[list[Tensor]], list[list[Tensor]], list]:
    """Place probes at each inner module; whatever is called tells the same."""
    warnings: list[str] = []
    probes = GraphProbes(ModelPoints((model,), {"name": "x", "layers": 0}, {}), warnings.append)
    values: list[list[Tensor]] = [[] for _ in model.each]
    gradients: list[list[Tensor]] = [[] for _ in model.each]
    for each, told, changes in zip(model.each, values, gradients, strict=True):
        for side in ("input", "output"):
            probes.place(each.inner, side)
            probes.place(each.inner, side, ALL_ITEMS)
        end_of(each.inner, "output").watch(
            lambda x, told=told: told.append(x.clone()), lambda x, changes=changes: changes.append(x.clone())
        )
    return probes, values, gradients, warnings


def plainly(module: Inner) -> tuple[list[Tensor], list[Tensor]]:
    values: list[Tensor] = []
    gradients: list[Tensor] = []

    def after(module: nn.Module, given, output) -> None:
        # What is computed again for the backward pass is the same.
        tensor = first(output)
        if torch._C._current_graph_task_id() == -1:
            values.append(tensor.detach().clone())
        if tensor.requires_grad:
            tensor.register_hook(lambda x: gradients.append(x.clone()))

    module.register_forward_hook(after)
    return values, gradients


@pytest.mark.parametrize(
    "names",
    [[name for name in ODD if name not in ALONE], *([name] for name in ALONE)],
    ids=["together", *ALONE],
)
def test_what_odd_modules_give_is_told(names) -> None:
    plain = Many(ODD[name] for name in names)
    model = copy.deepcopy(plain)
    wanted = [plainly(each.inner) for each in plain.each]
    losses, weights = run(plain, plain)
    probes, values, gradients, warnings = probed(model)
    if names[0] in ALONE:
        (inner, told, changes) = model.each[0].inner, values[0], gradients[0]
        hook_after(inner, lambda module, given, output: told.append(output.detach().clone()))
        hook_after(inner, lambda module, given, output: output.register_hook(changes.append) and None)
    found = run(model, torch.compile(model, backend="aot_eager", fullgraph=names[0] not in ALONE))
    for at, name in enumerate(names):
        assert found[0][at] == pytest.approx(losses[at]), name
        for seen, expected in zip((found[1], values, gradients), (weights[at], *wanted[at]), strict=True):
            torch.testing.assert_close(seen[at], expected, msg=lambda text, name=name: f"{name}: {text}")
    assert warnings == []
    probes.close()


def test_what_cannot_be_told_is_said_and_the_step_goes_on() -> None:
    plain = Many(how for *how, _ in LOST.values())
    model = copy.deepcopy(plain)
    losses, weights = run(plain, plain)
    probes, values, _, warnings = probed(model)
    found = run(model, torch.compile(model, backend="aot_eager"))
    assert found[0] == pytest.approx(losses)
    torch.testing.assert_close(found[1], weights)
    assert values == [[]] * len(LOST)
    for each, (*_, reason) in zip(model.each, LOST.values(), strict=True):
        assert reason in end_of(each.inner, "output").lost
        assert end_of(each.inner, "input").lost is None
    assert warnings == []
    probes.close()
