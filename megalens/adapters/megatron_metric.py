"""Moments as a tensor metric of Megatron-LM, for its own observer to schedule, reduce and write."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..protocol import parse_name
from ..tracer import TracerError
from ..tracer.moments import TYPES, measure

__all__ = ["moments_metric"]

_CORE = "megatron.training.tensor_metrics.core"

# Of the means of the values' first four powers.
_READINGS: Mapping[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "mean": lambda m1, m2, m3, m4: m1,
    "rms": lambda m1, m2, m3, m4: m2.sqrt(),
    "std": lambda m1, m2, m3, m4: _variance(m1, m2).sqrt(),
    "skewness": lambda m1, m2, m3, m4: (m3 - 3 * m1 * m2 + 2 * m1**3) / _variance(m1, m2) ** 1.5,
    "kurtosis": lambda m1, m2, m3, m4: (
        (m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4) / _variance(m1, m2) ** 2
    ),
}


def moments_metric(kind: str, reading: str = "kurtosis") -> Any:
    """Return a ``TensorMetric`` of Megatron-LM that gives a reading of each layer's values.

    Parameters
    ----------
    kind : str
        Of the tensors: ``parameter``, ``wgrad``, ``residual_accumulator``, ``residual_contribution``,
        ``router_logits`` or ``output_logits``.
    reading : str
        ``mean``, ``rms``, ``std``, ``skewness`` or ``kurtosis`` (3 for a normal distribution), of all values
        of a layer over all micro-batches and ranks; NaN where one of them is not finite. What is in no layer
        is by its own name.

    Raises
    ------
    TracerError
        Where Megatron-LM has no tensor metrics, or for another reading.
    """
    if reading not in _READINGS:
        raise TracerError(f"reading must be one of {', '.join(_READINGS)}, got {reading!r:.50}.")
    try:
        core: Any = importlib.import_module(_CORE)
    except ImportError as error:
        raise TracerError(
            f"Tensor metrics need a Megatron-LM that has {_CORE}; here it cannot be imported: {error}."
        ) from error

    class Moments(core.TensorMetric):  # type: ignore[misc]
        name = f"megalens-{kind.replace('_', '-')}-{reading}"
        source_kinds = frozenset((kind,))

        def prepare(self, values: Sequence[Any]) -> list[Any]:
            return [value.with_tensor(_raw_sums(value.tensor)) for value in values]

        def start(self, values: Sequence[Any]) -> list[Any]:
            layers: dict[str, list[Any]] = {}
            for value in values:
                layers.setdefault(_label(value.sites[0].name), []).append(value)
            return [self._go_on(label, several, None) for label, several in layers.items()]

        def resume(self, values: Sequence[Any], continuation: Any) -> Any:
            return self._go_on(continuation[0], values, continuation[1])

        def _go_on(self, label: str, values: Sequence[Any], done: Tensor | None) -> Any:
            """Add over one more axis of ranks what lies in pieces there, each value by itself."""
            requests = []
            for value in values:
                axis = next(
                    (
                        each.axis
                        for each in value.rank_relations
                        if not isinstance(each.placement, core.Replica)
                    ),
                    None,
                )
                if axis is not None:
                    requests.append(core.CollectiveRequest(value, axis, core.AllReduce()))
                else:
                    done = value.tensor if done is None else done + value.tensor
            if requests:
                return core.CollectiveStage(tuple(requests), (label, done))
            assert done is not None
            return core.MetricResult(_READINGS[reading](*(done[1:] / done[0])), label)

    return Moments()


def _label(name: str) -> str:
    found = parse_name(name)
    return name if found.layer is None else f"{found.stack}.{found.layer}"


def _raw_sums(tensor: Tensor) -> Tensor:
    """Return count and sums of the first four powers, float64 ``[5]``: they add up over tensors and ranks."""
    if not tensor.numel():
        return torch.zeros(5, dtype=torch.float64, device=tensor.device)
    row = measure([tensor if tensor.dtype in TYPES else tensor.float()])[0]
    n, mean, m2, m3, m4 = row[:5]
    sums = (
        n,
        n * mean,
        m2 + n * mean**2,
        m3 + 3 * mean * m2 + n * mean**3,
        m4 + 4 * mean * m3 + 6 * mean**2 * m2 + n * mean**4,
    )
    # Not finite: NaN and infinities are counted apart.
    return torch.stack(sums).masked_fill(row[7:9].sum() > 0, torch.nan)


def _variance(m1: Tensor, m2: Tensor) -> Tensor:
    return (m2 - m1**2).clamp(min=0)
