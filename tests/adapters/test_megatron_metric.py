"""Moments as a tensor metric of Megatron-LM, by stand-ins of its classes, against numpy."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import pytest
import tensor_metrics as core
import torch

from megalens.adapters import moments_metric
from megalens.tracer import TracerError

EXPECTED = {
    "mean": np.mean,
    "rms": lambda values: math.sqrt(np.square(values).mean()),
    "std": np.std,
    "skewness": lambda values: ((values - values.mean()) ** 3).mean() / values.std() ** 3,
    "kurtosis": lambda values: ((values - values.mean()) ** 4).mean() / values.std() ** 4,
}


@pytest.fixture(autouse=True)
def framework(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "megatron.training.tensor_metrics.core", core)


def value(data: np.ndarray, name: str, **placements: Any) -> Any:
    relations = tuple(core.RankRelation(axis, placement) for axis, placement in placements.items())
    return core.MetricTensor(torch.from_numpy(data), (core.MetricSite(name, "wgrad"),), relations)


@pytest.mark.parametrize("reading", EXPECTED)
def test_a_layer_has_the_reading_of_all_its_values_however_they_lie_over_ranks(reading: str) -> None:
    metric = moments_metric("wgrad", reading)
    random = np.random.default_rng(0)
    cut, whole, owned = (random.normal(0.3, scale, 4000) ** 3 for scale in (1.0, 2.0, 0.5))
    other = random.normal(5, 1, 100)
    ranks = []
    for tp, dp in ((0, 0), (1, 0), (0, 1), (1, 1)):
        first = slice(2000 * tp + 1000 * dp, 2000 * tp + 1000 * (dp + 1))
        mine = owned if dp == 1 else owned[:0]
        values = [
            value(cut[first], "decoder.layers.3.mlp.weight", tp=core.Shard(0), dp=core.Shard(None)),
            value(whole, "decoder.layers.3.norm.weight", tp=core.Replica(), dp=core.Replica()),
            value(mine, "decoder.layers.3.mlp.bias", tp=core.Replica(), dp=core.Owned(1)),
            value(other, "embedding.weight", tp=core.Replica()),
        ]
        ranks.append(({"tp": tp, "dp": dp}, values))
    of_layer = np.concatenate([cut, whole, owned])
    for found in core.completed(core, metric, ranks):
        assert found == pytest.approx(
            {
                "decoder.layers.3": EXPECTED[reading](of_layer),
                "embedding.weight": EXPECTED[reading](other),
            },
            rel=1e-9,
        )
    assert (metric.name, metric.source_kinds) == (f"megalens-wgrad-{reading}", frozenset(("wgrad",)))


def test_a_value_that_is_not_finite_makes_its_layer_nan() -> None:
    values = [
        value(np.array([1.0, np.inf]), "decoder.layers.0.weight"),
        value(np.array([1.0, 2.0]), "decoder.layers.1.weight"),
    ]
    (found,) = core.completed(core, moments_metric("wgrad", "mean"), [({}, values)])
    assert math.isnan(found["decoder.layers.0"])
    assert found["decoder.layers.1"] == 1.5


def test_what_cannot_be_is_said(monkeypatch) -> None:
    with pytest.raises(TracerError, match="mean, rms, std, skewness, kurtosis, got 'median'"):
        moments_metric("wgrad", "median")
    monkeypatch.setitem(sys.modules, "megatron.training.tensor_metrics.core", None)
    with pytest.raises(TracerError, match="need a Megatron-LM that has"):
        moments_metric("wgrad")
