"""Which processes draw the same numbers: those that hold the same tensor, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..place import Place
from ..points import ModelPoints, Source

__all__ = ["SAME_TENSOR", "owner_of_weight", "piece_of_output", "replica_of_output", "replica_of_weight"]

SAME_TENSOR = {"calculation": "MLP2_mat_mul", "system": "HiddenStates"}
"""By site the flag that shows what is perturbed there."""


def replica_of_output(place: Place) -> tuple[object, ...]:
    """Return what tells apart the processes that compute on different samples, or on different parts of a sequence: both count as replicas."""
    return ("data", place.dp)


def piece_of_output(points: ModelPoints, site: str, layer: int) -> Callable[[Tensor], tuple[object, ...]]:
    """Return a function of a site's tensor that tells apart the tensor-parallel processes where each holds another piece of it.

    The trace point of the same tensor knows whether it is cut, as under sequence parallelism.
    """
    place = points.place
    flag = points.flags.get(SAME_TENSOR[site])
    sources = flag.layers.get(layer, ()) if flag is not None else ()
    if place.tp_size == 1 or not sources:
        return lambda tensor: ()
    source: Source = sources[0]

    def piece(tensor: Tensor) -> tuple[object, ...]:
        shards: Any = source.shards
        if callable(shards):
            shards = shards(tensor.detach().transpose(0, 1) if source.sequence_first else tensor.detach())
        return () if shards == "none" else ("piece", place.tp)

    return piece


def replica_of_weight(weight: Any, place: Place) -> tuple[object, ...]:
    """Return what tells apart the processes that hold different pieces of a weight, by the marks that Megatron-Core puts on it.

    Data-parallel replicas hold the same weight and must perturb it alike. (A DTensor knows by itself how it is cut.)
    """
    cut: tuple[object, ...] = ()
    if place.tp_size > 1 and getattr(weight, "tensor_model_parallel", False):
        cut += ("piece", place.tp)
    if place.ep_size > 1 and getattr(weight, "allreduce", True) is False:
        # Expert-parallel groups are made of neighbouring data-parallel replicas.
        cut += ("experts", place.dp % place.ep_size)
    return cut


def owner_of_weight(points: ModelPoints) -> Callable[[nn.Module], tuple[int, int] | None]:
    """Return a function that gives layer and number of the first module that holds the same weight: what is stored once is perturbed alike wherever it is used."""
    owners: dict[int, tuple[int, int]] = {}
    for layer in sorted(points.sites["weight"].layers):
        for number, module in enumerate(points.sites["weight"].layers[layer]):
            owners.setdefault(id(module._parameters.get("weight")), (layer, number))
    return lambda module: owners.get(id(module._parameters.get("weight")))
