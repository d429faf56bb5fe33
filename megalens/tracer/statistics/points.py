"""What an adapter tells the statistics logger of a model: which tensors there are, what they are called, and which of them this process counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn

__all__ = ["IStatisticsAdapter", "ParamPoint", "ResidualPoint", "SitePoint", "StatisticsPoints"]


@dataclass(frozen=True)
class ParamPoint:
    """A parameter, or the part of it that lies here.

    Attributes
    ----------
    name : str
        Canonical: global layer and expert indices, the same in every layout. Every process that holds a part gives the same name.
    parameter : torch.nn.Parameter
        The parameter itself.
    counted : bool
        Whether this process's values are to be counted. Each value of the whole tensor is counted by exactly one process: of replicas and of tied
        copies one counts, of shards every holder counts its own.
    value : callable
        Gives the local values to measure (of a ``DTensor`` the local shard; the fp32 master weights where there are some), or None where this process has none.
        Called after the optimizer's step.
    gradient : callable
        Gives the local gradient in the same way, reduced over data-parallel processes, or None. Called before clipping.
    """

    name: str
    parameter: nn.Parameter
    counted: bool
    value: Callable[[], Tensor | None]
    gradient: Callable[[], Tensor | None]


@dataclass(frozen=True)
class SitePoint:
    """A module of which the first positional input and the first output are measured.

    Attributes
    ----------
    name : str
        Canonical name of the module; the tensors are ``<name>/input0`` and ``<name>/output0``.
    module : torch.nn.Module
        The module.
    counts_input, counts_output : bool
        Whether this process counts that end. Data- and context-parallel processes each count their own; of tensor-parallel ones each where the
        end is cut over them, else the first; None of both is no site.
    logs_input, logs_output : bool
        Whether that end is measured at all (logits are not).
    """

    name: str
    module: nn.Module
    counts_input: bool = True
    counts_output: bool = True
    logs_input: bool = True
    logs_output: bool = True


@dataclass(frozen=True)
class ResidualPoint:
    """The residual stream at one end of a layer.

    Attributes
    ----------
    name : str
        Canonical, such as ``decoder/input0`` or ``decoder.layers.3/output0``.
    module : torch.nn.Module
        The layer.
    end : str
        ``input`` or ``output``.
    counted : bool
        As for a site.
    """

    name: str
    module: nn.Module
    end: str
    counted: bool = True


@dataclass(frozen=True)
class StatisticsPoints:
    """Everything of one process.

    Attributes
    ----------
    params, sites, residuals : sequence
        What there is. Points that are not counted may be left out or be there with ``counted=False``.
    stage : int
        Pipeline stage of this process; -1 where there are none.
    """

    params: Sequence[ParamPoint] = field(default_factory=tuple)
    sites: Sequence[SitePoint] = field(default_factory=tuple)
    residuals: Sequence[ResidualPoint] = field(default_factory=tuple)
    stage: int = -1


class IStatisticsAdapter(Protocol):
    """Finds the points of a model."""

    def statistics_points(
        self, model: nn.Module | Sequence[nn.Module], optimizer: Any
    ) -> StatisticsPoints | None:
        """Return the points, or None where the model is not of this kind."""
