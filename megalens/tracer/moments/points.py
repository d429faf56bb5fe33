"""What an adapter says to the statistics logger: tensors, their names, and which are counted here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from ..graph_probes import ALL_ITEMS
from ..own_hooks import Observed


@dataclass(frozen=True)
class ParamPoint:
    """A parameter, or the part of it that lies here.

    Attributes
    ----------
    name : str
        Canonical: global layer and expert indices, the same in every layout. Every process that holds a part
        gives the same name.
    parameter : torch.nn.Parameter
        The parameter itself.
    counted : bool
        Whether this process's values are to be counted. Each value of the whole tensor is counted by exactly
        one process: of replicas and of tied copies one counts, of shards every holder counts its own.
    value : callable
        Gives the local values to measure (of a ``DTensor`` the local shard; the fp32 master weights where
        there are some), or None where this process has none. Called after the optimizer's step.
    gradient : callable
        Gives the local gradient in the same way, reduced over data-parallel processes, or None. Called before
        clipping.
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
    counts_input, counts_output : bool
        Whether this process counts that end. Data- and context-parallel processes each count their own; of
        tensor-parallel ones each where the end is cut over them, else the first; None of both is no site.
    logs_input, logs_output : bool
        Whether that end is measured at all (logits are not).
    logs_input_gradient, logs_output_gradient : bool or None
        The same for the gradient there, where it differs; None: as above. An end may be complete while its
        gradient is a part of a sum over processes, and the other way round: what is such a part is not
        measured.
    """

    name: str
    module: nn.Module
    counts_input: bool = True
    counts_output: bool = True
    logs_input: bool = True
    logs_output: bool = True
    logs_input_gradient: bool | None = None
    logs_output_gradient: bool | None = None


@dataclass(frozen=True)
class ResidualPoint:
    """The residual stream at one ``end`` (``input`` or ``output``) of a layer.

    Its canonical name is such as ``decoder/input0`` or ``decoder.layers.3/output0``. ``observed`` is where
    the framework itself tells of it, which is listened to instead of a hook while no gradient is asked for.
    """

    name: str
    module: nn.Module
    end: str
    counted: bool = True
    observed: Observed | None = None


@dataclass(frozen=True)
class FeaturePoint:
    """Numbers made of what a module gives, or of a parameter.

    ``source`` is the module, or what gives the parameter. ``of`` makes the tensor that is measured of the
    module's output or of the parameter, without a graph; None where there is nothing this time. With
    ``observed`` it is made of what the framework tells of the module instead.
    """

    stat: str
    name: str
    source: nn.Module | Callable[[], Tensor | None]
    of: Callable[[Any], Tensor | None]
    counted: bool = True
    observed: Observed | None = None


@dataclass(frozen=True)
class BeforeReduction:
    """The moment right before a process's own gradients are reduced.

    Attributes
    ----------
    begin : callable
        Is given what to call then with each parameter and its gradient, and returns what ends that.
    each_pass : bool
        Whether it comes in each backward pass, with what has been accumulated so far, also in those that
        reduce nothing.
    """

    begin: Callable[[Callable[[nn.Parameter, Tensor], None]], Callable[[], None]]
    each_pass: bool = False


@dataclass(frozen=True)
class MomentPoints:
    """Everything of one process.

    Attributes
    ----------
    params, sites, residuals, features : sequence
        What there is. Points that are not counted may be left out or be there with ``counted=False``.
    stage : int
        Pipeline stage of this process; -1 where there are none.
    unavailable : mapping
        By statistic (``param``, …): why this model cannot have it. Asking for it is refused with these words.
    elsewhere : frozenset of str
        Statistics of which other pipeline stages may have points where this one has none.
    left_out : str or None
        What of the model cannot be measured while the rest is, as a sentence for the user.
    gradients_ready : callable or None
        Where the gradients are ready (reduced, unscaled, not clipped) at another moment than right before
        ``optimizer.step``: is given what to call at that moment, and returns what takes it away again. It
        does not call in a step that is skipped because of infinite gradients.
    loss_scale : callable or None
        Gives the factor by which the loss is multiplied in the step that is going on, as a number or a tensor
        on the device; asked before the backward pass. None where the optimizer does not say.
    before_reduction : BeforeReduction or None
        Where a process's own gradients are to be had at one moment only, right before they are reduced.
    held : sequence
        Name, and what gives numbers and scale, of each tensor of a module that holds numbers of float8.
    """

    params: Sequence[ParamPoint] = field(default_factory=tuple)
    sites: Sequence[SitePoint] = field(default_factory=tuple)
    residuals: Sequence[ResidualPoint] = field(default_factory=tuple)
    features: Sequence[FeaturePoint] = field(default_factory=tuple)
    stage: int = -1
    unavailable: Mapping[str, str] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    left_out: str | None = None
    gradients_ready: Callable[[Callable[[], None]], Callable[[], None]] | None = None
    loss_scale: Callable[[], float | Tensor] | None = None
    before_reduction: BeforeReduction | None = None
    held: Sequence[tuple[str, Callable[[], tuple[Tensor, Tensor | None] | None]]] = field(
        default_factory=tuple
    )

    def captured(self) -> MomentPoints:
        """Return what code can measure that CUDA graphs replay: nothing that is made in Python."""
        why = "What it is made of is made in Python, which runs for no code that CUDA graphs replay."
        made = {each.stat for each in self.features if isinstance(each.source, nn.Module)}
        return replace(
            self,
            features=tuple(each for each in self.features if not isinstance(each.source, nn.Module)),
            unavailable={**self.unavailable, **dict.fromkeys(made, why)},
        )

    def ends(self) -> Iterator[tuple[nn.Module, str, int]]:
        """Give every end of a module that is measured, as probes in compiled code are placed."""
        for site in self.sites:
            for side, logs in (("input", site.logs_input), ("output", site.logs_output)):
                if logs:
                    yield site.module, side, 0
        yield from ((point.module, point.end, 0) for point in self.residuals)
        for feature in self.features:
            if isinstance(feature.source, nn.Module) and feature.observed is None:
                yield feature.source, "output", ALL_ITEMS
