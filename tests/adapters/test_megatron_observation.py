"""Listening to Megatron-Core beside others: by the stand-in of its module, on a model that tells of its layers."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tensor_observation as core
import torch
from torch import nn

from megalens.adapters import find_moments
from megalens.adapters.megatron_observation import Observations
from megalens.tracer import ModelPoints
from megalens.tracer.moments.points import MomentPoints

KIND = "residual_accumulator"


class Block(nn.Module):
    """Calls its layers and tells of them, as Megatron-Core's block does."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(count))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            before = given
            given = layer(given)
            core.observe_layer_residuals(layer, before, given)
        core.observe_tensor(self, "a_kind_of_its_own", "a_kind_of_its_own", given)
        return given


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.decoder = Block()

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        if not given.isfinite().all():
            raise ValueError("not finite")
        return self.decoder(given)


@pytest.fixture
def model(monkeypatch) -> Iterator[Model]:
    monkeypatch.setitem(sys.modules, "megatron.core.tensor_observation", core)
    torch.manual_seed(0)
    yield Model()
    assert not core.is_observing_tensor(KIND)


def listening(model: Model, tp: int = 0) -> Observations:
    found = Observations.of([model], tp)
    assert found is not None
    return found


def test_an_observer_that_was_there_before_hears_what_it_asked_for_and_no_more(model) -> None:
    ours: list[Any] = []
    theirs: list[Any] = []
    first = model.decoder.layers[0]
    heard = listening(model).before(first)(ours.append)

    def observer(owner: Any, name: str, kind: str, tensor: Any, tp_shard_dim: Any) -> None:
        theirs.append((owner, kind, tensor, tp_shard_dim))
        # As one that asks again: in its own scope.
        assert not core.is_observing_tensor(KIND)

    given = torch.ones(1, 2)
    kinds = frozenset(("residual_contribution", "a_kind_of_its_own"))
    with core.capture_tensor_observations(observer, kinds):
        model(given)
        assert core.is_observing_tensor("residual_contribution")
    assert [tensor is given for tensor in ours] == [True]
    assert [(owner, kind) for owner, kind, *_ in theirs] == [
        *((layer, "residual_contribution") for layer in model.decoder.layers),
        (model.decoder, "a_kind_of_its_own"),
    ]
    heard.remove()
    model(given)
    assert len(ours) == 1


def test_nothing_is_computed_for_nobody(model) -> None:
    asked: list[bool] = []
    model.decoder.layers[0].register_forward_hook(
        lambda *_: asked.append(core.is_observing_tensor("residual_contribution"))
    )
    heard = listening(model).before(model.decoder.layers[0])(lambda _: None)
    model(torch.ones(1, 2))
    heard.remove()
    assert asked == [False]


def test_several_that_listen_all_hear_it_once_a_pass(model) -> None:
    one: list[Any] = []
    other: list[Any] = []
    layer = model.decoder.layers[1]
    handles = [listening(model).before(layer)(seen.append) for seen in (one, other)]
    for passes in (1, 2, 3):
        model(torch.ones(1, 2))
        assert (len(one), len(other)) == (passes, passes)
    handles[0].remove()
    model(torch.ones(1, 2))
    assert (len(one), len(other)) == (3, 4)
    handles[1].remove()


def test_a_pass_that_raises_ends_it_too_and_a_copy_of_the_model_tells_nobody(model) -> None:
    seen: list[Any] = []
    heard = listening(model).before(model.decoder.layers[0])(seen.append)
    with pytest.raises(ValueError, match="not finite"):
        model(torch.full((1, 2), torch.nan))
    assert not core.is_observing_tensor(KIND)
    copy.deepcopy(model)(torch.ones(1, 2))
    assert seen == []
    heard.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_what_a_layer_gives_is_what_the_next_one_is_given_and_the_last_one_is_hooked(model) -> None:
    seen: list[Any] = []
    given: list[Any] = []
    layers = model.decoder.layers
    layers[0].register_forward_hook(lambda module, args, output: given.append(output))
    observations = listening(model)
    heard = observations.after(layers[0])(seen.append)
    model(torch.ones(1, 2))
    heard.remove()
    assert [tensor is given[0] for tensor in seen] == [True]
    assert observations.after(layers[-1]) is None


@pytest.mark.parametrize(("tp", "shard", "told"), [(0, None, True), (1, None, False), (1, 0, True)])
def test_of_what_all_tensor_parallel_ranks_have_the_first_one_tells(model, tp, shard, told) -> None:
    for layer in model.decoder.layers:
        layer.config = type("Config", (), {"sequence_parallel": shard == 0})
    seen: list[Any] = []
    heard = listening(model, tp).contribution(model.decoder.layers[0])(seen.append)
    model(torch.ones(1, 2))
    heard.remove()
    assert [tensor is not None for tensor in seen] == [told]


def test_an_older_megatron_core_is_hooked(monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, "megatron.core.tensor_observation", raising=False)
    assert Observations.of([Model()], 0) is None


def test_what_another_stage_may_have_is_not_refused_on_this_one() -> None:
    class Own:
        def statistics_points(self, model: Any, optimizer: Any) -> MomentPoints:
            return MomentPoints(elsewhere=frozenset(("router_entropy",)))

    found = find_moments(Model(), None, ModelPoints((), {}, {}), Own())
    assert "router_entropy" not in found.unavailable
    assert {"router_similarity", "attention_entropy"} <= found.unavailable.keys()
