"""Mixtures of experts: what the router gives, and what each expert gives."""

from collections import defaultdict

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import megalens
from megalens import NoOp
from megalens.adapters import find_adapter, find_points
from megalens.protocol import ProtocolError
from megalens.tracer.tensors.config import change_plan, settings_from
from megalens.tracer.tensors.plan import TracingPlan
from tests.adapters.model_zoo import LAYERS, MODELS, tiny_model
from tests.adapters.test_watch_models import WIDTH, stack
from tests.adapters.watched import traced, watched

IDS = torch.randint(3, 40, (2, 9), generator=torch.Generator().manual_seed(5))
MIXTURES = [name for name, (_, _, layout) in MODELS.items() if layout.router is not None]


@pytest.mark.parametrize("name", MIXTURES)
def test_probabilities_are_those_of_all_experts_and_their_outputs_make_up_the_whole(name: str) -> None:
    model, layout = tiny_model(name, "eager").eval(), MODELS[name][2]
    seen: dict[int, dict[str, tuple]] = defaultdict(dict)
    for number in range(layout.dense, LAYERS):
        path, _ = layout.router
        layer = model.get_submodule(f"{layout.stack}.{number}")
        layer.get_submodule(path).register_forward_hook(
            lambda module, args, output, number=number: seen[number].update(router=output)
        )
        experts = layer.get_submodule(f"{path.partition('.')[0]}.experts")
        experts.register_forward_hook(
            lambda module, args, output, number=number: seen[number].update(args=args, output=output)
        )
    points, _ = watched(model, lambda: model(input_ids=IDS))
    values_of = traced(points, lambda: model(input_ids=IDS))
    assert sorted(seen) == list(range(layout.dense, LAYERS))
    if not layout.dense:
        reason = find_adapter(model).points(model).flags["MLP1_mat_mul"].reason
        assert "Every layer is a mixture of experts" in (reason or "")
    for number, here in seen.items():
        if "router" not in here:
            pytest.skip("This transformers multiplies with the router's matrix without calling it.")
        # Before the scores were returned with what is chosen, a router gave them alone.
        given = here["router"]
        logits = given if isinstance(given, Tensor) else given[layout.router[1]]
        logits = logits.reshape(2, 9, 4).float()
        expected = logits.sigmoid() if layout.sigmoid else logits.softmax(-1)
        assert torch.equal(values_of["RouterProbabilities", number, ""], expected)
        if name == "llama 4":
            reason = find_adapter(model).points(model).flags["ExpertOutputs"].reason
            assert "cannot be told apart" in (reason or "")
            continue
        _, index, weights = here["args"]
        outputs = {
            part: values
            for (flag, at, part), values in values_of.items()
            if (flag, at) == ("ExpertOutputs", number)
        }
        assert set(outputs) == {f"expert{expert}" for expert in set(index.flatten().tolist())}
        total = torch.zeros_like(here["output"])
        for part, values in outputs.items():
            tokens, places = torch.where(index == int(part.removeprefix("expert")))
            assert values.shape == (1, len(tokens), 32)
            total.index_add_(0, tokens, values[0] * weights[tokens, places, None])
        torch.testing.assert_close(total, here["output"])


class Mixture(nn.Module):
    """Experts in a list, of which one is never chosen."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 3)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 12), nn.ReLU(), nn.Linear(12, WIDTH)) for _ in range(3)
        )
        nn.init.constant_(self.router.bias, 0.0)
        self.router.bias.data[2] = -1e4

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        chosen = self.router(flat).argmax(-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            mine = chosen == number
            if mine.any():
                out[mine] = expert(flat[mine])
        return out.view_as(x)


def test_experts_that_are_modules_are_seen_one_by_one_and_an_idle_one_is_not_missed() -> None:
    model = stack(feed=Mixture)
    seen: dict[int, Tensor] = {}
    for number, expert in enumerate(model.blocks[1].feed.experts):
        expert.register_forward_hook(
            lambda module, args, output, number=number: seen.update({number: output})
        )
    found = traced(find_points(model), lambda: model(IDS))
    parts = {
        part: each for (flag, layer, part), each in found.items() if (flag, layer) == ("ExpertOutputs", 1)
    }
    assert sorted(parts) == [f"expert{number}" for number in sorted(seen)]
    assert "expert2" not in parts
    for number, output in seen.items():
        assert torch.equal(parts[f"expert{number}"][0], output)
    assert found["RouterProbabilities", 0, ""].shape == (2, 9, 3)


class Uncalled(Mixture):
    """Takes the weights of its experts, and calls none of them."""

    def forward(self, x: Tensor) -> Tensor:
        share = self.router(x).softmax(-1)
        given = [
            functional.linear(functional.linear(x, up.weight).relu(), down.weight)
            for up, _, down in self.experts
        ]
        return (torch.stack(given, -1) * share.unsqueeze(-2)).sum(-1)


def test_experts_are_those_that_the_pass_calls() -> None:
    model = stack(feed=Mixture)
    points, _ = watched(model, lambda: model(IDS))
    assert "2 of 3 were called" in points.flags["ExpertOutputs"].evidence[1]
    model.blocks[1].feed = Uncalled()
    points, watch = watched(model, lambda: model(IDS))
    assert sorted(points.flags["ExpertOutputs"].layers) == [0]
    assert "none of them is called" in points.flags["ExpertOutputs"].reasons[1]
    assert ("ExpertOutputs", 1) in watch.changed


def test_what_is_computed_beside_the_model_has_no_gradient_to_ask_for() -> None:
    points = find_points(stack(feed=Mixture))
    for flag in ("RouterProbabilities", "ExpertOutputs"):
        with pytest.raises(ProtocolError, match="no gradient"):
            change_plan(
                TracingPlan(),
                settings_from({flag: {"compressor": {"name": "NoOp"}, "passes": ["backward"]}}),
                points,
            )


def test_a_model_without_experts_speaks_of_none() -> None:
    model = tiny_model("llama", "eager")
    points = find_adapter(model).points(model)
    assert "ExpertOutputs" not in points.flags
    with pytest.raises(ProtocolError, match="no mixture of experts"):
        change_plan(TracingPlan(), settings_from(["ExpertOutputs"]), points)


@pytest.mark.slow
def test_a_recording_has_the_experts_as_a_column(tmp_path, recorded) -> None:
    model = stack(feed=Mixture)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    flags = {"ExpertOutputs": NoOp(), "HiddenStates": NoOp()}
    with megalens.trace(model, flags=flags, samples=None, record=tmp_path / "runs", linger=0.1) as tracer:
        assert tracer.connected(30)
        for _ in range(2):
            with tracer.step():
                model(IDS).sum().backward()
                optimizer.step()
    with recorded() as run:
        caption = run.heatmap("ExpertOutputs", part="expert1").draw()
        assert caption.startswith("Expert outputs, part expert1, no compression")
        table = run.tensors("ExpertOutputs").to_pandas()
        assert run.flags["ExpertOutputs"]["parts"] == ["expert0", "expert1", "expert2"]
        assert "expert" not in run.tensors("HiddenStates").column_names
    assert set(table["expert"]) == {0, 1}
    tokens = table["shape"].map(lambda shape: int(shape[1])).groupby([table["step"], table["layer"]]).sum()
    assert set(tokens) == {18}
