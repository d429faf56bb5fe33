"""What a perturbation does with outputs of every kind, and what happens when it cannot do its work."""

from typing import NamedTuple

import pytest
import torch
from perturbing import HandClock, Perturbing, site
from torch import nn

from megalens.adapters import find_adapter
from megalens.tracer.perturb import install_perturbations, perturb_plan


class Named(NamedTuple):
    hidden: torch.Tensor
    text: str


class Odd(nn.Module):
    def __init__(self, output) -> None:
        super().__init__()
        self.output = output

    def forward(self):
        return self.output


@pytest.mark.parametrize(
    "output", [torch.arange(4), torch.zeros(0, 3), (torch.arange(2), "x")], ids=["integers", "empty", "tuple"]
)
def test_integers_and_empty_tensors_are_left_alone(gpt, output) -> None:
    odd = Odd(output)
    points = find_adapter(gpt).points(gpt)
    sites = {"system": type(points.sites["system"])({1: (odd,)})}
    with Perturbing(
        gpt, {"system": site("noise1")}, points=type(points)(points.roots, points.model, {}, sites)
    ):
        assert str(odd()) == str(output)


def test_the_first_of_several_outputs_is_perturbed_and_their_kind_kept(gpt) -> None:
    points = find_adapter(gpt).points(gpt)
    x = torch.ones(3)
    for output in ((x, None, "b"), [x, "b"], Named(x, "b")):
        odd = Odd(output)
        sites = {"system": type(points.sites["system"])({1: (odd,)})}
        here = type(points)(points.roots, points.model, {}, sites)
        with Perturbing(gpt, {"system": site("offset", coefficient=1.0)}, points=here):
            got = odd()
        assert type(got) is type(output)
        assert got[0].tolist() == [2, 2, 2]
        assert list(got[1:]) == list(output[1:])


def test_a_fault_is_said_once_and_the_tensor_passes(gpt, ids) -> None:
    points = find_adapter(gpt).points(gpt)
    plan = perturb_plan({"sites": {"system": site("bit_flip", bit=20, rate=0.5)}}, points)
    warnings: list[str] = []
    installed = install_perturbations(points, plan, HandClock(), warnings.append)
    gpt.bfloat16()
    clean = gpt(ids)
    gpt(ids)
    installed()
    assert torch.equal(gpt(ids), clean)
    assert (installed.calls, installed.errors) == (0, 4)
    # One cause, in two layers and twice.
    (warning,) = warnings
    assert "system of layer 0 (blocks.0): torch.bfloat16 has the bits 0 to 15, and no 20" in warning
    assert "disarm" in warning


def test_what_cannot_be_put_on_is_said_and_nothing_stays(gpt) -> None:
    points = find_adapter(gpt).points(gpt)
    plan = perturb_plan({"sites": {"system": site("noise1"), "weight": site("noise1")}}, points)
    del gpt.blocks[1].mlp.fc2._parameters["weight"]
    warnings: list[str] = []
    installed = install_perturbations(points, plan, HandClock(), warnings.append)
    assert (len(warnings), installed.hooks) == (1, [])
    assert "Nothing is perturbed on rank 0" in warnings[0]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in gpt.modules())


def test_a_module_that_layers_share_is_perturbed_once_a_call(gpt, ids) -> None:
    gpt.blocks[1] = gpt.blocks[0]
    with Perturbing(gpt, {"system": site("offset", coefficient=1.0)}):
        perturbed = gpt(ids)
    assert not torch.equal(perturbed, gpt(ids))
    gpt.blocks[0].register_forward_hook(lambda _module, _inputs, output: output + 1)
    assert torch.equal(perturbed, gpt(ids))


def test_a_place_that_is_not_reached_is_named(gpt, ids) -> None:
    with Perturbing(gpt, {"system": site("noise1"), "weight": site("noise1", "0")}) as on:
        gpt.blocks[0](gpt.embedding(ids))
        assert on.installed.unfired() == ["system of layer 1 (blocks.1)"]
