"""What the tensors of statistics are called: layers and experts are the adapter's, whatever the model calls them."""

import pytest
import torch
from torch import Tensor, nn

import megalens
from megalens.adapters import Adapter, find_adapter, find_moments
from megalens.protocol import parse_name
from tests.adapters.model_zoo import tiny_model


class Unit(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.mix(x)


class Trunk(nn.Module):
    """Layers that are called nothing of the usual."""

    def __init__(self, *stack: str) -> None:
        super().__init__()
        self.words = nn.Embedding(20, 8)
        holder: nn.Module = self
        for name in stack[:-1]:
            holder.add_module(name, nn.Module())
            holder = holder.get_submodule(name)
        holder.add_module(stack[-1], nn.ModuleList([Unit(), Unit(), Unit()]))
        self.units = list(holder.get_submodule(stack[-1]))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for unit in self.units:
            x = unit(x)
        return x.sum()


@pytest.mark.parametrize(
    "stack",
    [("trunk",), ("stages", "0", "units"), ("blocks", "1", "units"), ("layers",), ("experts_of_all",)],
)
def test_every_tensor_of_a_layer_says_the_number_that_the_adapter_says(stack: tuple[str, ...]) -> None:
    model = Trunk(*stack)
    points = Adapter(layer=".".join(stack) + ".{i}", tokens="words").points(model)
    found = find_moments(model, None, points)
    names = [p.name for p in (*found.params, *found.sites)] + [
        p.name for p in found.residuals if p.end == "output"
    ]
    said = sorted((name.layer, name.family) for name in map(parse_name, names) if name.layer is not None)
    assert said == [(i, family) for i in range(3) for family in ("mix", "mix", "mix", "output0")]
    if stack == ("layers",):
        assert "layers.1.mix.weight" in names


@pytest.mark.slow
def test_statistics_are_grouped_by_layers_that_have_a_name_of_their_own(tmp_path, recorded) -> None:
    torch.manual_seed(0)
    model = Trunk("trunk")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with (
        megalens.log_statistics(
            model,
            optimizer,
            param=1,
            adapter=Adapter(layer="trunk.{i}", tokens="words"),
            record=tmp_path / "runs",
            linger=0.1,
        ) as logger,
        logger.step(),
    ):
        model(torch.arange(6).view(1, 6)).backward()
        optimizer.step()
    with recorded() as run:
        groups = run.moments("param", by=["layer"])
    of_layers = groups[groups["layer"].notna()]
    assert sorted(of_layers["layer"]) == [0, 1, 2]
    for row in of_layers.to_dict("records"):
        values = torch.cat(
            [p.detach().flatten() for p in model.trunk[int(row["layer"])].parameters()]
        ).double()
        assert row["count"] == values.numel()
        assert row["mean"] == pytest.approx(values.mean().item(), abs=1e-7)


def test_each_expert_of_a_mixture_is_a_tensor_by_itself() -> None:
    model = tiny_model("mixtral", "eager")
    model(torch.arange(3, 12).view(1, 9), labels=torch.arange(3, 12).view(1, 9)).loss.backward()
    found = find_moments(model, None, find_adapter(model).points(model))
    stacked = dict(model.named_parameters())["model.layers.1.mlp.experts.down_proj"]
    for expert in range(4):
        (point,) = [p for p in found.params if p.name == f"model.layers.1.mlp.experts.{expert}.down_proj"]
        assert torch.equal(point.value(), stacked[expert])
        assert torch.equal(point.gradient(), stacked.grad[expert])
        said = parse_name(point.name)
        assert (said.layer, said.expert, said.family, said.kind) == (1, expert, "mlp", "down_proj")
    total = sum(p.value().numel() for p in found.params if p.counted)
    assert total == sum(p.numel() for p in model.parameters())


def test_weights_that_are_no_floating_point_numbers_are_left_out_by_name() -> None:
    model = Trunk("trunk")
    model.units[1].mix.weight = nn.Parameter(torch.zeros(32, 1, dtype=torch.uint8), requires_grad=False)
    found = find_moments(model, None, Adapter(layer="trunk.{i}").points(model))
    assert "trunk.1.mix.weight (uint8)" in (found.left_out or "")
    assert "quantised" not in (found.left_out or "").lower()
    assert "trunk.layers.1.mix.weight" not in [p.name for p in found.params]
    assert "trunk.layers.1.mix.bias" in [p.name for p in found.params]
