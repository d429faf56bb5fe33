"""A viewer arms a perturbation on a training that runs, and the training goes on as it was when it is over."""

import pytest
import torch
from perturbing import site
from torch.utils.checkpoint import checkpoint
from tracing_fixtures import hooks

from megalens import Tile
from megalens.demo.model import GPT, GPTConfig


class Checkpointed(GPT):
    """The demo's model with its layers recomputed in the backward pass, or not."""

    reentrant: bool | None = None

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x) if self.reentrant is None else checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(self.norm(x))


SITES = {
    "weight": site("noise2", coefficient=0.5),
    "calculation": site("noise1", coefficient=0.5),
    "system": site("bit_flip", rate=0.1, bit=22),
}


def arm(small_hub, sites: dict | None, **more) -> dict:
    perturb = None if sites is None else {"sites": sites, **more}
    small_hub.send({"type": "configure", "id": "c", "patch": {"flags": {}, "perturb": perturb}})
    while True:
        answer = small_hub.next("configured")
        # What was armed before may still be told to apply.
        if answer["applied"] is False:
            return answer


def test_a_perturbation_ends_by_itself_and_leaves_the_training_as_it_was(gpt, ids, traced, small_hub) -> None:
    before = {name: tensor.clone() for name, tensor in gpt.state_dict().items()}
    clean = gpt.loss(ids).item()
    tracer = traced(gpt, allow=["perturb"])
    announced = small_hub.next("announce")
    assert [one["layers"] for one in announced["sites"]] == [[0, 1]] * 3
    assert arm(small_hub, SITES, steps=2)["applied"] is False
    losses = []
    for _ in range(4):
        with tracer.step():
            loss = gpt.loss(ids)
            loss.backward()
            losses.append(loss.item())
    assert [loss == clean for loss in losses] == [False, False, True, True]
    assert losses[0] != losses[1]
    assert hooks(gpt) == 0
    assert all(torch.equal(tensor, before[name]) for name, tensor in gpt.state_dict().items())
    assert tracer.status()["perturbed_steps"] == 2
    assert "perturb" not in tracer.config


def test_the_steps_of_each_perturbation_are_counted_by_themselves(gpt, ids, traced, small_hub) -> None:
    tracer = traced(gpt, allow=["perturb"])
    small_hub.next("announce")

    def train(steps):
        for _ in range(steps):
            with tracer.step():
                gpt.loss(ids).backward()
        status = tracer.status()
        return status.get("perturbed_steps", 0), status.get("armed_steps")

    assert train(1) == (0, None)
    arm(small_hub, SITES, steps=3)
    assert train(2) == (2, 2)
    # Another change leaves it armed.
    tracer.configure({"HiddenStates": Tile(1)})
    assert train(1) == (3, 3)
    assert train(1) == (3, None)
    arm(small_hub, SITES, steps=9)
    assert train(2) == (5, 2)
    arm(small_hub, {**SITES}, steps=9)
    assert train(1) == (6, 1)
    arm(small_hub, None)
    assert train(1) == (6, None)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=str)
def test_what_is_recomputed_in_a_training_is_perturbed_as_it_was(ids, traced, small_hub, order) -> None:
    torch.manual_seed(0)
    model = Checkpointed(GPTConfig(vocabulary=50, layers=2, hidden=16, heads=2, sequence=12))
    parts = (ids[:1], ids[1:])

    def gradients(reentrant: bool | None) -> dict[str, torch.Tensor]:
        model.reentrant = reentrant
        tracer = traced(model, allow=["perturb"])
        small_hub.next("announce")
        arm(small_hub, SITES)
        with tracer.step():
            losses = [model(part).square().mean() for part in parts]
            for number in order:
                losses[number].backward()
        found = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
        model.zero_grad()
        assert tracer.status()["warnings"] == []
        tracer.close()
        assert hooks(model) == 0
        return found

    kept = gradients(None)
    for reentrant in (True, False):
        for name, gradient in gradients(reentrant).items():
            torch.testing.assert_close(gradient, kept[name])


def test_a_generation_inside_of_a_run_is_perturbed_and_the_training_around_it_is_not(
    gpt, ids, traced, small_hub
) -> None:
    clean = gpt.loss(ids).item()

    def text() -> list[list[int]]:
        return gpt.generate(ids[:1, :3], 4, temperature=0.1).tolist()

    clean_text = text()
    tracer = traced(gpt, allow=["perturb"])
    small_hub.next("announce")
    arm(small_hub, {"weight": site("noise1", phases=("generate",), coefficient=0.5)})
    with tracer.step():
        assert gpt.loss(ids).item() == clean
    texts = []
    for _ in range(2):
        with tracer.phase("generate"):
            texts.append(text())
    assert texts[0] == texts[1]
    assert texts[0] != clean_text


@pytest.mark.parametrize("compiled", [True, False])
def test_what_a_perturbation_did_not_reach_is_named_and_taken_for_compiled_only_where_something_is(
    gpt, ids, traced, small_hub, monkeypatch, compiled
) -> None:
    monkeypatch.setattr("megalens.tracer.tensors.instrument.compiles", lambda: compiled)
    tracer = traced(gpt, allow=["perturb"])
    small_hub.next("announce")
    arm(small_hub, {"calculation": {**SITES["calculation"], "layers": "1"}}, steps=2)
    with tracer.step():
        gpt.blocks[0](gpt.embedding(ids))
    (said,) = [text for text in tracer.status()["warnings"] if "did not reach" in text]
    assert said.startswith(
        "Step 1 did not reach what was to be perturbed, calculation of layer 1 (blocks.1.mlp.fc2): its"
    )
    assert ("compiled" in said) is compiled
