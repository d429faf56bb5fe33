"""Hooks: put on the model while a flag needs them, and taken off again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...protocol import layer_name
from ..graph_probes import ALL_ITEMS, end_of
from ..own_hooks import hook_after, hook_before
from ..passes import IPassSink, hook_passes
from ..points import FLAGS, FlagPoints, Source
from .batch import RowMeta, TensorReading
from .pieces import Cut
from .plan import FlagPlan, TracingPlan

_is_compiling = torch.compiler.is_compiling


class TensorProbe:
    """One hook for one flag, layer and source.

    Attributes
    ----------
    scope : int
        Number of the step or phase in which it last gave a tensor.
    metas : dict
        What its rows are of, by micro-batch, phase, pass and shape: made once, used again every step.
    readings : dict
        Prepared readings of tensors of the last one's layout, by micro-batch, phase, pass and ``rows``.
    cuts : dict
        What is done with this rank's piece of each part, by its shape.
    rows : tuple of int or None
        First two axes of its tensor in the current forward pass; None where the tensor has them itself.
    why, failed : str or None, int
        Why it did not fire when it was last reached and did not, and the ``scope`` of that.
    returned : int
        The ``scope`` in which a gradient of its tensor last came back.
    outside : int
        The ``scope`` in which it was last reached outside of the model's passes, or in one that is no
        training.
    graph : GraphEnd or None
        Its probe in compiled code.
    plain : bool
        Whether its tensor is taken in forward passes only, and as the module has it.
    rejected : bool
        Whether the first forward pass showed that its tensor is elsewhere.
    """

    __slots__ = (
        "cuts",
        "failed",
        "flag",
        "graph",
        "label",
        "layer",
        "metas",
        "outside",
        "plain",
        "readings",
        "rejected",
        "returned",
        "rows",
        "scope",
        "source",
        "why",
    )

    def __init__(self, flag: FlagPlan, layer: int, source: Source, alone: bool) -> None:
        self.flag = flag
        self.layer = layer
        self.source = source
        self.scope = self.failed = self.returned = self.outside = -1
        self.why: str | None = None
        self.rejected = False
        at = (source.item, source.keyword) if source.computed is None else (ALL_ITEMS, None)
        self.graph = end_of(source.module, source.side, *at)
        self.rows: tuple[int, int] | None = None
        self.metas: dict[Any, list[RowMeta]] = {}
        self.readings: dict[Any, TensorReading] = {}
        self.cuts: dict[Any, list[Cut]] = {}
        odd = source.computed, source.rows_of, source.sparse, source.sequence_first, source.like_ids
        self.plain = flag.forward and not flag.backward and not any(odd)
        part = "" if alone else f" {'/'.join(source.parts)}"
        self.label = f"{FLAGS[flag.name].title}, {layer_name(layer)}{part}"


class IProbeSink(IPassSink, Protocol):
    """Receives what the hooks see."""

    in_forward: bool
    in_backward: bool
    scope: int

    def add(self, probe: TensorProbe, tensor: Any) -> None: ...

    def gradient(self, probe: TensorProbe, gradient: Tensor) -> None:
        """Record what compiled code backpropagates to a probed tensor."""
        ...

    def recomputed(self, probe: TensorProbe, tensor: Any) -> None:
        """Look at a tensor that is computed again for the backward pass."""
        ...


def install_probes(
    roots: Sequence[nn.Module], points: Mapping[str, FlagPoints], plan: TracingPlan, sink: IProbeSink
) -> tuple[list[TensorProbe], Callable[[], None]]:
    """Put the hooks of ``plan`` on the model; return the probes and what takes all of them off."""
    probes: list[TensorProbe] = []

    def put_on() -> Iterator[Any]:
        for flag in plan.flags.values():
            for layer in flag.layers:
                sources = points[flag.name].layers[layer]
                probes.extend(TensorProbe(flag, layer, source, len(sources) == 1) for source in sources)
        for probe in probes:
            if isinstance(probe.source.module, torch.jit.ScriptModule):
                probe.why = "its module is a script (torch.jit), which takes no hooks"
                probe.failed = sys.maxsize
                continue
            if probe.source.rows_of is not None:
                yield from _hook_rows(probe, probe.source.rows_of)
            yield from _hooks(probe, sink)

    handles = hook_passes(roots, sink, put_on)

    def remove() -> None:
        for handle in handles:
            handle.remove()
        handles.clear()

    return probes, remove


def _hook_rows(probe: TensorProbe, module: nn.Module) -> Iterator[Any]:
    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if probe.flag.active and not _is_compiling():
            given = (value for value in (*args, *kwargs.values()) if isinstance(value, Tensor))
            shape = next((value.shape for value in given), ())
            probe.rows = (shape[0], shape[1]) if len(shape) > 2 else None

    if (graph := end_of(module, "input", ALL_ITEMS)) is not None:
        yield graph.watch(lambda given: before(module, *given))
    yield hook_before(module, before, with_kwargs=True)


def _hooks(probe: TensorProbe, sink: IProbeSink) -> Iterator[Any]:
    """Register one hook, and watch the probe in the graph where the module is compiled.

    While torch.compile traces through the hook, the hook does nothing and leaves nothing in the graph.
    """
    flag, source = probe.flag, probe.source
    item, keyword = source.item, source.keyword

    def see(tensor: Any) -> None:
        if sink.in_forward:
            sink.add(probe, tensor)
        elif flag.backward and sink.in_backward:
            sink.recomputed(probe, tensor)
        elif torch._C._current_graph_task_id() == -1:
            probe.outside = sink.scope

    def after(module: nn.Module, args: Any, output: Any) -> None:
        if not flag.active or _is_compiling():
            return
        if source.computed is not None:
            see(output)
        elif isinstance(output, Tensor):
            see(output if item == 0 else None)
        else:
            see(output[item] if isinstance(output, (tuple, list)) and len(output) > item else None)

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if not flag.active or _is_compiling():
            return
        if source.computed is not None:
            see((args, kwargs))
        elif keyword is not None and keyword in kwargs:
            see(kwargs[keyword])
        elif len(args) > item:
            see(args[item])
        else:
            see(next(iter(kwargs.values()), None))

    def gradient(tensor: Tensor) -> None:
        if flag.active:
            sink.gradient(probe, tensor)

    if probe.graph is not None:
        yield probe.graph.watch(
            lambda tensor: see(tensor) if flag.active else None, gradient if flag.backward else None
        )
    if source.side == "output":
        yield hook_after(source.module, after)
    else:
        yield hook_before(source.module, before, with_kwargs=True)
