"""What the functions of the reduction language compute. Everything works on float32 tiles ``[..., tiles, width]``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ELEMENTWISE", "REDUCERS", "Reducer"]


@dataclass(frozen=True)
class Reducer:
    """A function that makes one number of each tile.

    Attributes
    ----------
    compute : callable
        Takes tiles ``[..., width]`` and the parameter, gives ``[...]``.
    parameter : str, optional
        Name of its one number, such as ``q`` of ``quantile``.
    default : float, optional
        That number when it is not given; it must be given where this is None.
    check : callable, optional
        Says in words which numbers are allowed when this one is not.
    """

    compute: Callable[[Tensor, float], Tensor]
    parameter: str | None = None
    default: float | None = None
    check: Callable[[float], str | None] = lambda value: None


def _variance(data: Tensor) -> Tensor:
    # One value has none; times 0 keeps NaN and turns infinity into it, and torch does not warn where there is no tile at all.
    return (data * 0).sum(-1) if data.shape[-1] == 1 else data.var(-1, correction=0)


def _between_0_and_1(value: float) -> str | None:
    return None if 0 <= value <= 1 else "a number from 0 to 1"


def _positive(value: float) -> str | None:
    return None if value > 0 else "a number above 0"


# Of the population, as in the statistics of whole tensors; a median of an even number of values is the lower middle one, as torch's is.
REDUCERS: Mapping[str, Reducer] = {
    "mean": Reducer(lambda data, _: data.mean(-1)),
    "sum": Reducer(lambda data, _: data.sum(-1)),
    "min": Reducer(lambda data, _: data.amin(-1)),
    "max": Reducer(lambda data, _: data.amax(-1)),
    "std": Reducer(lambda data, _: _variance(data).sqrt()),
    "var": Reducer(lambda data, _: _variance(data)),
    "median": Reducer(lambda data, _: data.median(-1).values),
    "rms": Reducer(lambda data, _: torch.linalg.vector_norm(data, 2, -1) / math.sqrt(data.shape[-1])),
    "norm": Reducer(lambda data, p: torch.linalg.vector_norm(data, p, -1), "p", 2.0, _positive),
    "quantile": Reducer(lambda data, q: torch.quantile(data, q, -1), "q", None, _between_0_and_1),
}

ELEMENTWISE: Mapping[str, Callable[[Tensor], Tensor]] = {
    "abs": torch.abs,
    "sqrt": torch.sqrt,
    "log": torch.log,
    "exp": torch.exp,
}
