"""Hooks: put on the model while a flag needs them, and taken off again.

What is done with one traced tensor of any flag: its piece, positions, moments and compression error.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from ...protocol import Peaks, layer_name
from ..coordinates import plain_tensor, to_host
from ..graph_probes import ALL_ITEMS, end_of
from ..moments import TYPES, measure, measure_each
from ..own_hooks import hook_after, hook_before, remove_all
from ..passes import IPassSink, hook_passes
from ..points import FLAGS, FlagPoints, Shards, Source
from .batch import RowMeta, TensorReading, unknown_moments
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

    return probes, partial(remove_all, hook_passes(roots, sink, put_on))


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

    While torch.compile traces through the hook, the hook does nothing and leaves nothing in the graph. A
    framework that tells of the tensor tells nothing in compiled code, and of no gradient.
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

    hooked = flag.backward or (probe.graph is not None and FLAGS[flag.name].gradient)
    if source.observed is not None and not hooked:
        yield source.observed(lambda tensor: see(tensor) if flag.active and not _is_compiling() else None)
        return
    if probe.graph is not None:
        yield probe.graph.watch(
            lambda tensor: see(tensor) if flag.active else None, gradient if flag.backward else None
        )
    if source.side == "output":
        yield hook_after(source.module, after)
    else:
        yield hook_before(source.module, before, with_kwargs=True)


_MEASURED_VALUES = 1 << 20


@dataclass(frozen=True, eq=False)
class Window:
    """Positions to take of every tensor of a pass, by sample.

    Attributes
    ----------
    positions : torch.Tensor
        int64 ``[B, n]``: the positions to report, in order.
    keys : torch.Tensor or None
        int64 ``[B, k]``: the keys to report of attention; all, as they are, when None.
    """

    positions: Tensor
    keys: Tensor | None = None

    def of(self, data: Tensor) -> Tensor:
        """Return ``[B, n, *]`` of ``[B, S, *]``; of attention probabilities ``[B, heads, n, k]``."""
        if data.ndim != 4:
            return data.take_along_dim(self.positions.view(*self.positions.shape, *[1] * (data.ndim - 2)), 1)
        data = data.take_along_dim(self.positions[:, None, :, None], 2)
        return data if self.keys is None else data.take_along_dim(self.keys[:, None, None, :], 3)


def local_piece(data: Tensor) -> tuple[Tensor, Shards | None]:
    """Return this rank's piece of a DTensor, and along what it is cut; any other tensor, and None."""
    placements = getattr(data, "placements", None)
    if placements is None:
        return plain_tensor(data), None
    axes = data.ndim
    local: Tensor = data.to_local()  # type: ignore[attr-defined]
    cut = [placement.dim % axes for placement in placements if placement.is_shard()]
    if not cut or cut == [0]:
        return local, "none"
    if cut[-1] == axes - 1:
        return local, "features"
    return local, "heads" if axes == 4 else "sequence"


def in_rows(tensor: Tensor, rows: tuple[int, int] | None, parts: tuple[str, ...] = ()) -> Tensor:
    """Return a tensor with the axes ``rows`` (batch, sequence) first, where its other axes hold as many.

    Of keys and values that latent attention makes of all it has cached, ``[B, 1, keys, *]``, those that are
    new.
    """
    if rows is not None and parts == ("k", "v") and tensor.ndim == 4:
        tensor = tensor[:, :, -rows[1] :]
    if rows is None or tensor.ndim == 3 or math.prod(tensor.shape[:-1]) != math.prod(rows):
        return tensor
    return tensor.reshape(*rows, tensor.shape[-1])


def shape_of(view: Tensor, axes: int) -> tuple[int, ...]:
    """Return the shape that a part has with so many axes, the groups of the last one together."""
    return (*view.shape[: axes - 1], math.prod(view.shape[axes - 1 :]))


def errors_of(
    probe: TensorProbe, parts: Sequence[Tensor], outputs: Sequence[Tensor], cuts: Sequence[Cut]
) -> list[Tensor]:
    """Return how much the compressor loses of each part; of a piece what adds up over the pieces."""
    return [
        _error_of(probe, *_head(part, output), cut)
        for part, output, cut in zip(parts, outputs, cuts, strict=True)
    ]


def _error_of(probe: TensorProbe, part: Tensor, output: Tensor, cut: Cut) -> Tensor:
    if cut.join is None:
        return probe.flag.error(part, output, probe.layer)
    if cut.error is None:
        return probe.flag.error.squares(part, None)
    return cut.error.squares(part, output, probe.layer)


def _head(part: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
    """Return the head of a large tensor and of its stored values: measuring all would take seconds."""
    if part.numel() <= _MEASURED_VALUES or part.ndim < 3:
        return part, output
    count = max(1, _MEASURED_VALUES // part[0, 0].numel())
    part, output = part[:1, :count], output[:1, :count]
    if part.numel() <= _MEASURED_VALUES or part.ndim != 4:
        return part, output
    # Of one head some queries: complete blocks of them, where they are cut into blocks.
    side = Peaks(output.shape[2]).side(part.shape[2])
    blocks = max(1, _MEASURED_VALUES // (part.shape[3] * side))
    return part[:, :, : blocks * side], output[:, :, :blocks]


def moments_of_each(data: Tensor) -> np.ndarray:
    """Return :func:`moments_of` of ``data[0]``, ``data[1]`` and so on, on the CPU, in the calling thread."""
    if not data.is_floating_point():
        return unknown_moments(len(data))
    return measure_each(data if data.dtype in TYPES else data.float()).numpy()


def moments_of(parts: Sequence[Tensor]) -> np.ndarray:
    """Measure the parts of a tensor; float64 ``[parts, 11]`` as ``Row.moments``, perhaps still copying."""
    if not parts[0].is_floating_point():
        return unknown_moments(len(parts))
    rows = measure([part if part.dtype in TYPES else part.float() for part in parts])
    return (to_host(rows) if rows.is_cuda else rows).numpy()
