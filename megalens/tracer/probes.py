"""Hooks: put on the model while a flag needs them, and taken off again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .batch import RowMeta
from .config import FlagPlan, Plan
from .points import FlagPoints, Source

__all__ = ["IProbeSink", "Probe", "install_probes"]

_is_compiling = torch.compiler.is_compiling


class Probe:
    """One hook for one flag, layer and source.

    Attributes
    ----------
    scope : int
        Number of the step or phase in which it last gave a tensor.
    metas : dict
        What its rows are of, by micro-batch, phase and shape: made once, used again every step.
    """

    __slots__ = ("flag", "label", "layer", "metas", "scope", "source")

    def __init__(self, flag: FlagPlan, layer: int, source: Source, alone: bool) -> None:
        self.flag = flag
        self.layer = layer
        self.source = source
        self.scope = -1
        self.metas: dict[Any, list[RowMeta]] = {}
        part = "" if alone else f" {'/'.join(source.parts)}"
        self.label = f"{flag.name} layer {layer}{part}"


class IProbeSink(Protocol):
    """What the hooks call."""

    in_forward: bool

    def forward_begins(self) -> None:
        """Count a forward pass."""
        ...

    def forward_ends(self) -> None:
        """Note that a forward pass is over."""
        ...

    def add(self, probe: Probe, tensor: Any) -> None:
        """Keep what one probe saw."""
        ...


def install_probes(
    root: nn.Module, points: Mapping[str, FlagPoints], plan: Plan, sink: IProbeSink
) -> tuple[list[Probe], Callable[[], None]]:
    """Put the hooks of ``plan`` on the model.

    Returns
    -------
    probes : list of Probe
        One per hook on a trace point.
    remove : callable
        Takes all of them off.
    """
    probes: list[Probe] = []
    handles: list[Any] = []

    def begin(module: nn.Module, args: Any) -> None:
        if not _is_compiling():
            sink.forward_begins()

    def end(module: nn.Module, args: Any, output: Any) -> None:
        if not _is_compiling():
            sink.forward_ends()

    handles.append(root.register_forward_pre_hook(begin, prepend=True))
    for flag in plan.flags.values():
        for layer in flag.layers:
            sources = points[flag.name].layers[layer]
            for source in sources:
                probe = Probe(flag, layer, source, len(sources) == 1)
                probes.append(probe)
                handles.append(_hook(probe, sink))
    # Last, so that a flag on the root module itself is still inside of the pass.
    handles.append(root.register_forward_hook(end))

    def remove() -> None:
        for handle in handles:
            handle.remove()
        handles.clear()

    return probes, remove


def _hook(probe: Probe, sink: IProbeSink) -> Any:
    """Register one hook. While torch.compile traces through it, it does nothing: it leaves no trace in the graph and is reported as not fired."""
    flag, source = probe.flag, probe.source
    item, keyword = source.item, source.keyword

    def after(module: nn.Module, args: Any, output: Any) -> None:
        if _is_compiling() or not (flag.active and sink.in_forward):
            return
        if isinstance(output, Tensor):
            sink.add(probe, output if item == 0 else None)
        else:
            sink.add(
                probe, output[item] if isinstance(output, (tuple, list)) and len(output) > item else None
            )

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if _is_compiling() or not (flag.active and sink.in_forward):
            return
        if keyword is not None and keyword in kwargs:
            sink.add(probe, kwargs[keyword])
        elif len(args) > item:
            sink.add(probe, args[item])
        else:
            sink.add(probe, next(iter(kwargs.values()), None))

    if source.side == "output":
        return source.module.register_forward_hook(after)
    return source.module.register_forward_pre_hook(before, with_kwargs=True)
