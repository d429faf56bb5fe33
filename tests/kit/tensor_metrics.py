"""A stand-in for ``megatron.training.tensor_metrics.core``: what is known of the classes that metrics are made of, and a job of several ranks that adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "AllReduce",
    "CollectiveRequest",
    "CollectiveStage",
    "MetricResult",
    "MetricSite",
    "MetricTensor",
    "Owned",
    "RankRelation",
    "Replica",
    "Shard",
    "TensorMetric",
    "completed",
]


@dataclass(frozen=True)
class MetricSite:
    name: str
    kind: str


@dataclass(frozen=True)
class Replica:
    pass


@dataclass(frozen=True)
class Shard:
    dim: int | None


@dataclass(frozen=True)
class Owned:
    rank: int


@dataclass(frozen=True)
class RankRelation:
    axis: str
    placement: Any


@dataclass(frozen=True)
class MetricTensor:
    tensor: Tensor
    sites: tuple[MetricSite, ...]
    rank_relations: tuple[RankRelation, ...] = ()

    def with_tensor(self, tensor: Tensor) -> MetricTensor:
        return replace(self, tensor=tensor)


@dataclass(frozen=True)
class AllReduce:
    op: Any = torch.distributed.ReduceOp.SUM


@dataclass(frozen=True)
class CollectiveRequest:
    value: Any
    axis: str
    collective: Any


@dataclass(frozen=True)
class CollectiveStage:
    requests: tuple[Any, ...]
    continuation: Any


@dataclass(frozen=True)
class MetricResult:
    tensor: Tensor
    label: str = "global"


@dataclass
class TensorMetric:
    name: str = field(default="", init=False)
    source_kinds: frozenset[str] = field(default=frozenset(), init=False)


def completed(
    core: Any, metric: Any, ranks: Sequence[tuple[dict[str, int], list[Any]]]
) -> list[dict[str, float]]:
    """Return what a metric gives on each rank, which is there with its place by axis and its values; ranks that differ in one axis add there."""
    places = [place for place, _ in ranks]
    steps = [list(metric.start(metric.prepare(values))) for _, values in ranks]
    found: list[dict[str, float]] = [{} for _ in ranks]
    for together in zip(*steps, strict=True):
        while isinstance(together[0], core.CollectiveStage):
            asked = [[(each.axis, each.value) for each in step.requests] for step in together]
            together = tuple(
                metric.resume(
                    [_added(core, places, asked, at, each) for each in range(len(asked[at]))],
                    step.continuation,
                )
                for at, step in enumerate(together)
            )
        for mine, result in zip(found, together, strict=True):
            assert result.label not in mine
            mine[result.label] = float(result.tensor)
    return found


def _added(core: Any, places: Sequence[dict[str, int]], asked: Sequence[Any], at: int, each: int) -> Any:
    axis, value = asked[at][each]
    others = {name: place for name, place in places[at].items() if name != axis}
    group = [
        asked[rank][each][1].tensor
        for rank, place in enumerate(places)
        if {name: number for name, number in place.items() if name != axis} == others
    ]
    relations = tuple(
        core.RankRelation(relation.axis, core.Replica()) if relation.axis == axis else relation
        for relation in value.rank_relations
    )
    return replace(value, tensor=torch.stack(group).sum(0), rank_relations=relations)
