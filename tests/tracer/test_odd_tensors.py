"""Tensors that nobody expects: they are traced as they are, or named, and the step goes on."""

import math

import pytest
import torch
from torch import nn

from megalens import NoOp, Tile
from megalens.adapters import Adapter


class Odd(nn.Module):
    """A layer whose one point gives whatever the test wants."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = nn.Identity()

    def forward(self, given):
        self.fc1(given)
        return torch.zeros(1, 2, 3)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Odd()])
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, given):
        return self.blocks[0](given)


ADAPTER = Adapter(layer="blocks.{i}", fc1="fc1", heads=1)


def row_of(given, traced, small_hub, compressor):
    model = Model()
    tracer = traced(model, flags={"MLP1_mat_mul": compressor}, adapter=ADAPTER, samples=None)
    with tracer.step():
        model(given)
    (row,) = small_hub.next_rows(1)
    assert not [text for text in tracer.status()["warnings"] if "could not" in text]
    return row


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int8, torch.bool], ids=str
)
@pytest.mark.parametrize("compressor", [Tile(2), NoOp()], ids=["tile", "whole"])
def test_every_type_of_number_arrives_as_float32(dtype, compressor, traced, small_hub) -> None:
    given = (torch.arange(24).reshape(1, 3, 8) % 2).to(dtype)
    row = row_of(given, traced, small_hub, compressor)
    expected = given.float() if compressor == NoOp() else given.float().reshape(1, 3, 2, 4).mean(-1)
    assert row["values"] == expected.flatten().tolist()
    assert (row["nan_count"], row["inf_count"]) == (0, 0)


@pytest.mark.parametrize(
    ("shape", "values"),
    [((0, 3, 8), 0), ((2, 0, 8), 0), ((2, 3, 0), 0), ((), 1), ((5,), 5), ((2, 3), 4), ((1, 2, 3, 4, 6), 48)],
    ids=str,
)
def test_every_shape_arrives(shape, values, traced, small_hub) -> None:
    row = row_of(torch.ones(shape), traced, small_hub, Tile(2))
    assert row["values"] == [1.0] * values
    assert math.prod(row["shape"]) == values


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
def test_nothing_but_non_finite_values_is_counted_and_sent_as_it_is(bad, traced, small_hub) -> None:
    row = row_of(torch.full((2, 3, 8), bad), traced, small_hub, Tile(2))
    assert all(value == bad or value != value for value in row["values"])
    assert row["nan_count"] + row["inf_count"] == 48
    assert math.isnan(row["compression_error"])


def test_what_is_no_tensor_is_named_and_the_step_goes_on(traced, small_hub) -> None:
    model = Model()
    model.blocks[0].fc1.register_forward_hook(lambda module, args, output: "no tensor")
    tracer = traced(model, flags={"MLP1_mat_mul": Tile(2)}, adapter=ADAPTER)
    with tracer.step():
        model(torch.ones(1, 2, 4))
    assert any("MLP1 output, layer 0 gave no tensor" in text for text in tracer.status()["warnings"])


@pytest.mark.slow
def test_more_than_two_gigabytes_are_reduced_where_they_are(traced, small_hub) -> None:
    # Without memory behind them. What is left of 2.1 GB are 2,048 positions of 8 tiles.
    given = torch.ones(1, 2048, 1, dtype=torch.float64).expand(1, 2048, 131_104)
    row = row_of(given, traced, small_hub, Tile(8))
    assert row["source_shape"] == [1, 2048, 131_104]
    assert row["values"] == [1.0] * 2048 * 8
