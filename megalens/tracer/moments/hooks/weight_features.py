"""What is made of parameters before a step: largest singular values, stable ranks, and how alike a router's experts are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from .. import measure
from ..features import PowerIteration
from ..joining.part import MeasuredRows, NameList
from ..points import FeaturePoint, ParamPoint
from .sites import made_of

__all__ = ["WeightFeatures"]

_NORMS = ("kernel_norm", "stable_rank")


class WeightFeatures:
    """Measures what is made of parameters that lie here whole.

    Parameters
    ----------
    params : sequence of ParamPoint
        Those that this process counts.
    features : sequence of FeaturePoint
        Those whose source is no module are of parameters.
    names : NameList
        Gives the place of each name.
    """

    def __init__(
        self, params: Sequence[ParamPoint], features: Sequence[FeaturePoint], names: NameList
    ) -> None:
        self._weights = [(point, PowerIteration()) for point in params if _is_whole(point)]
        self._features = [
            (each, each.source) for each in features if not isinstance(each.source, torch.nn.Module)
        ]
        self._names = names

    def measure(self, due: Collection[str]) -> dict[str, MeasuredRows]:
        """Return what is due, by statistic."""
        found: dict[str, list[tuple[str, Tensor]]] = {}
        norms = [stat for stat in _NORMS if stat in due]
        for point, iteration in self._weights if norms else ():
            value = point.value()
            if value is None or value.ndim != 2 or not value.numel():
                continue
            made = made_of(lambda each: torch.stack(iteration(each)), value)  # noqa: B023
            for at, stat in enumerate(_NORMS):
                if stat in due and made is not None:
                    found.setdefault(stat, []).append((point.name, made[at]))
        for feature, give in self._features:
            value = give() if feature.stat in due and feature.counted else None
            tensor = None if value is None else made_of(feature.of, value)
            if tensor is not None:
                found.setdefault(feature.stat, []).append((feature.name, tensor))
        return {stat: self._rows(stat, given) for stat, given in found.items()}

    def _rows(self, stat: str, given: Sequence[tuple[str, Tensor]]) -> MeasuredRows:
        part = MeasuredRows(stat)
        by_device: dict[torch.device, list[tuple[str, Tensor]]] = {}
        for name, tensor in given:
            by_device.setdefault(tensor.device, []).append((name, tensor))
        for here in by_device.values():
            part.add([self._names.place(name) for name, _ in here], measure([each for _, each in here]))
        return part


def _is_whole(point: ParamPoint) -> bool:
    """Return whether a weight is not a piece of one, as of tensor parallelism or ``fully_shard``."""
    parameter = point.parameter
    return (
        parameter.ndim >= 2
        and not hasattr(parameter, "placements")
        and not getattr(parameter, "tensor_model_parallel", False)
    )
