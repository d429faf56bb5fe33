"""What cannot be trained is refused by name, before any process is waited for."""

import pytest
import torch
from torch import distributed, nn

from megalens.instruments.pipeline.split import SplitError, SplitLayout, SplitTraining, seeded


def test_a_seeded_pass_draws_alike_and_leaves_the_generator_as_it_was() -> None:
    torch.manual_seed(1)
    wanted = torch.rand(3)
    torch.manual_seed(1)
    drawn = []
    for place in ((0, 0, 0, 0), (0, 0, 0, 0), (1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)):
        with seeded(*place):
            drawn.append(tuple(torch.rand(3).tolist()))
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) == 5
    assert torch.equal(torch.rand(3), wanted)


GOOD = {
    "loss_fn": nn.functional.mse_loss,
    "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "micro_batches": 2,
}


@pytest.mark.parametrize(
    ("given", "field", "words"),
    [
        ({"tensor": 3, "forward_tensor": 2}, "forward_tensor", "must divide tensor, 3, got 2"),
        ({"tensor": 0}, "tensor", "1 to 64"),
        ({"pipeline": "two"}, "pipeline", "pipeline"),
        ({"context": 2}, "context", "must be 1, got 2"),
        ({"expert": 4}, "expert", "must be 1, got 4"),
        ({"last_forward": False}, "last_forward", "one stage"),
        ({"data": 2}, "world", r"needs 4 processes \(2 forward, 2 backward\), got WORLD_SIZE 2"),
        ({"pipeline": 2}, "world", "needs 4 processes"),
        ({"layout": SplitLayout.of(1, 3)}, "world", "needs 6 processes"),
        ({"micro_batches": 0}, "micro_batches", "from 1, got 0"),
        ({"micro_batches": 2.0}, "micro_batches", "whole number"),
        ({"ahead": 0}, "ahead", "from 1"),
        ({"seed": None}, "seed", "whole number"),
        ({"check_every": -1}, "check_every", "from 0"),
        ({"timeout": 0}, "timeout", "above 0"),
        ({"clip": float("nan")}, "clip", "above 0"),
        ({"loss_fn": None}, "loss_fn", "callable"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(1))])}, "optimizer", "callable"),
        ({"stage": "gpt2"}, "stage", "got a str"),
        ({"stage": nn.Linear}, "stage", "got the class Linear"),
        ({"stage": [nn.Linear(2, 2)]}, "stage", "got a list"),
        ({"device": "warp:0"}, "device", "one of torch's"),
    ],
)
def test_what_does_not_fit_is_refused_before_a_group_exists(monkeypatch, given, field, words) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    options = {**GOOD, "stage": nn.Linear(2, 2), **given}
    with pytest.raises(SplitError, match=words) as caught:
        SplitTraining(options.pop("stage"), **options)
    assert caught.value.field == field
    assert not distributed.is_initialized()


@pytest.mark.parametrize(("name", "value"), [("RANK", None), ("WORLD_SIZE", "many")])
def test_without_a_launchers_words_it_says_which_are_missing(monkeypatch, name, value) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(SplitError, match=f"{name} must be in the environment"):
        SplitTraining(nn.Linear(2, 2), **GOOD)
    assert not distributed.is_initialized()
