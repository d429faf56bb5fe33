"""Hooks on modules: what goes in and out, and the gradients that come back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from ...graph_probes import ALL_ITEMS, end_of, passes_of
from ...own_hooks import Observed, hook_after, hook_before, remove_all
from ...passes import at_each_backward, in_transform
from .. import measure, measure_natively
from ..casts import Casts, held
from ..graph_totals import TotalSlots
from ..part import COLUMNS, TYPES, NameList
from ..points import FeaturePoint, ResidualPoint, SitePoint
from .values import counted_here, first_tensor, half_precision, local_values, measurable

_TYPE_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in TYPES}


@dataclass(frozen=True)
class End:
    """What is measured at one end of a module.

    Attributes
    ----------
    at : int
        Index of its name in this process's list.
    forward, backward : str or None
        Statistic of the values, and of their gradient; None is neither.
    counted : bool
        Whether this process counts plain tensors here; a ``DTensor`` says so itself.
    own : bool
        Whether the gradient is that of this module alone, not of everything that takes the same tensor.
    of : callable, optional
        Makes what is measured of the module's output.
    module : torch.nn.Module, optional
        Whose end it is, where casts are computed.
    """

    at: int
    forward: str | None
    backward: str | None
    counted: bool
    own: bool = False
    of: Callable[[Any], Tensor | None] | None = None
    module: nn.Module | None = None


@dataclass
class MomentProbe:
    """One module with its ends, as they are due in this step."""

    module: nn.Module
    input: End | None
    output: End | None
    observed: Observed | None = None
    """What tells of its one end, instead of hooks."""
    reached: bool = False
    """Whether it was called in this step."""
    counts: bool = False
    """Whether the call that is going on is counted."""
    unseen: int = 0
    """Calls without a graph that checkpointing will compute again with one."""


_Slots: TypeAlias = tuple[TotalSlots, Sequence[tuple[str, int]]]
"""Slots of a device, with the statistic and the index of a name of each."""


class _MeasuredThere(NamedTuple):
    """What compiled code measures by itself of some probes."""

    probes: Sequence[MomentProbe]
    slots: Sequence[_Slots]
    itself: frozenset[int]
    """By ``id``, the probes of which it measures an end."""


def _measured_there(probes: Sequence[MomentProbe], due: frozenset[str]) -> _MeasuredThere:
    slots: dict[torch.device, list[tuple[int, str, int]]] = {}
    itself = set()
    for probe in probes:
        for side, end in (("input", probe.input), ("output", probe.output)):
            graph = None if end is None else end_of(probe.module, side)
            if end is None or graph is None or graph.slots is None:
                continue
            itself.add(id(probe))
            device, value, gradient = graph.slots
            for stat, slot in ((end.forward, value), (end.backward, gradient)):
                # Where casts are due, ends are looked at whose own figures are not.
                if stat in due and end.counted:
                    slots.setdefault(device, []).append((slot, stat, end.at))
    return _MeasuredThere(
        probes,
        [
            (TotalSlots(device, [slot for slot, _, _ in of]), [(stat, at) for _, stat, at in of])
            for device, of in slots.items()
        ],
        frozenset(itself),
    )


class Sites:
    """Measures at modules while a step is logged; at other times there is no hook.

    A forward pass is counted once, whatever is run twice. Checkpointing that computes the first time without
    a graph is counted when it computes again, in the backward pass; checkpointing that builds the graph the
    first time is counted then. What is computed without a graph from the model's own call down is evaluation,
    and so is a pass in evaluation mode until it is backpropagated.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    keep : callable
        Takes a statistic, the index of a name, and a row float64 ``[1, 11]`` on the device, which is written
        anew after the next :meth:`begin`.
    spent : callable
        Calls a function so that neither its time nor an error of its own is the training's.
    noted : callable, optional
        Takes the index of a name and the type of its numbers, such as ``bfloat16``, whenever it is measured.
    casts : Casts, optional
        Computes what casts to fewer bits lose, in steps in which that is due.
    """

    def __init__(
        self,
        roots: Sequence[nn.Module],
        keep: Callable[[str, int, Tensor], None],
        spent: Callable[[Callable[[], None]], None],
        noted: Callable[[int, str], None] | None = None,
        casts: Casts | None = None,
    ) -> None:
        self._casts, self._due = casts, frozenset[str]()
        self._roots = tuple(roots)
        self._keep = keep
        self._noted = noted
        self._spent = spent
        self._handles: list[Any] = []
        self._probes: Sequence[MomentProbe] = ()
        self._scope = 0
        self._trains = True
        self._last: tuple[weakref.ref[Tensor], int, Tensor] | None = None
        self._rows: list[Tensor] = []
        self._used = 0
        self._enabled: Sequence[_Slots] = ()
        """What compiled code measures by itself in this step."""
        self._there: dict[int, _MeasuredThere] = {}
        self._waiting: list[tuple[str, int, Tensor]] | None = None
        """What a pass in evaluation mode has given so far, while the model is in it."""
        self.paused = False
        self.fired = False
        self.left_out = 0
        """Passes of this step that were no training, so far."""
        self.transformed = False
        """Whether anything was called inside of ``torch.func``."""
        self.half = False
        """Whether the model runs in half precision, which asks for a loss scale."""

    def begin(self, probes: Sequence[MomentProbe], due: frozenset[str]) -> None:
        """Put hooks on for a step in which the statistics ``due`` are logged."""
        self.end()
        self._due = due
        self._trains, self.fired, self.half = True, False, False
        self._waiting, self.left_out = None, 0
        if self._used > len(self._rows):
            more = torch.empty((self._used - len(self._rows), COLUMNS), dtype=torch.float64)
            self._rows += torch.split(more, 1)
        self._used = 0
        self._handles = [hook_before(root, self._root_called, prepend=True) for root in self._roots]
        self._probes = probes
        itself = self._begin_there(probes)
        for probe in probes:
            probe.unseen = 0
            probe.counts = False
            # Nothing tells of a pass that is replayed.
            probe.reached = id(probe) in itself
            end = probe.input or probe.output
            if probe.observed is not None and end is not None:
                self._handles.append(probe.observed(self._value_watcher(probe, end)))
                continue
            # Before the hooks of parallel styles on the way in, and after them on the way out: the tensors as
            # the model has them.
            self._handles.append(
                hook_before(probe.module, self._going_in(probe), prepend=True, with_kwargs=True)
            )
            if probe.output is not None:
                self._handles.append(hook_after(probe.module, self._coming_out(probe)))
            self._handles += self._in_graph(probe)
        for root in self._roots:
            if (passes := passes_of(root)) is not None:
                called, left = partial(self._root_called, root, ()), partial(self._root_left, root, ())
                self._handles.append(passes.watch(called, left))
        self._handles += [hook_after(root, self._root_left) for root in self._roots]

    def take(self) -> None:
        """Hand over what compiled code has measured by itself in this step."""
        enabled, self._enabled = self._enabled, ()
        for slots, of in enabled:
            rows = slots.take()
            # On a GPU only the host that reads it knows what was not computed.
            counted = rows[:, 0].gt(0).tolist() if rows.is_cpu else [True] * len(of)
            self.fired = True
            for (stat, at), row, has in zip(of, rows[:, None], counted, strict=True):
                if has:
                    self._keep(stat, at, row)

    def _begin_there(self, probes: Sequence[MomentProbe]) -> Collection[int]:
        """Enable what compiled code measures by itself; return the ids of its probes."""
        found = self._there.get(id(probes))
        if found is None or found.probes is not probes:
            found = self._there[id(probes)] = _measured_there(probes, self._due)
        self._enabled = found.slots
        for slots, _ in found.slots:
            slots.begin()
        return found.itself

    def unreached(self) -> list[tuple[int, nn.Module]]:
        """Return the index of a name at each module that was not called in this step, and the module."""
        ends = ((probe, probe.input or probe.output) for probe in self._probes if not probe.reached)
        return [(end.at, probe.module) for probe, end in ends if end is not None]

    def end(self) -> None:
        """Take every hook off. Safe twice."""
        self._scope += 1
        self._last = None
        remove_all(self._handles)
        # Of a step that was given up.
        enabled, self._enabled = self._enabled, ()
        for slots, _ in enabled:
            slots.take()

    def _root_called(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_compiling() or self.paused:
            return
        self._trains = torch.is_grad_enabled()
        self.half = self.half or half_precision()
        self._waiting = [] if self._trains and not module.training else None
        self.left_out += not self._trains or self._waiting is not None

    def _root_left(self, module: nn.Module, args: Any, output: Any) -> None:
        if torch.compiler.is_compiling() or self.paused:
            return
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return
        scope = self._scope

        def proved() -> None:
            nonlocal waiting
            rows, waiting = waiting, None
            if rows is not None and scope == self._scope:
                self.left_out -= 1
                for row in rows:
                    self._keep(*row)

        at_each_backward(output, proved)

    def _counts(self, probe: MomentProbe) -> bool:
        if self.paused:
            return False
        if in_transform():
            self.transformed = True
            return False
        recomputing = torch._C._current_graph_task_id() != -1
        if torch.is_grad_enabled():
            if not recomputing:
                return True
            if probe.unseen:
                probe.unseen -= 1
                return True
        elif self._trains and not recomputing:
            probe.unseen += 1
        return False

    def _going_in(self, probe: MomentProbe) -> Callable[..., Any]:
        def going_in(module: nn.Module, args: Any, kwargs: Any) -> Any:
            # What is compiled into a graph would stay there after this step.
            if torch.compiler.is_compiling():
                return None
            probe.reached = True
            probe.counts = self._counts(probe)
            if not probe.counts or probe.input is None:
                return None
            found: list[Any] = [None]

            def look() -> None:
                found[0] = self._look_in(probe.input, args, kwargs)  # type: ignore[arg-type]

            self._spent(look)
            return found[0]

        return going_in

    def _coming_out(self, probe: MomentProbe) -> Callable[..., Any]:
        def coming_out(module: nn.Module, args: Any, output: Any) -> None:
            if probe.counts and not torch.compiler.is_compiling():
                self._spent(lambda: self._look_out(probe.output, output))  # type: ignore[arg-type]

        return coming_out

    def _in_graph(self, probe: MomentProbe) -> Iterator[Any]:
        """Watch a module's ends in compiled code, where no hook of it runs."""
        for side, end in (("input", probe.input), ("output", probe.output)):
            graph = None if end is None else end_of(probe.module, side, 0 if end.of is None else ALL_ITEMS)
            if graph is not None and end is not None:
                yield graph.watch(
                    self._value_watcher(probe, end), self._gradient_watcher(end) if end.backward else None
                )

    def _value_watcher(self, probe: MomentProbe, end: End) -> Callable[[Any], None]:
        def watch(seen: Any) -> None:
            probe.reached = True
            # In a backward pass it is computed again.
            computed_again = torch._C._current_graph_task_id() != -1 or torch.compiler.is_compiling()
            if not self.paused and self._trains and not computed_again:
                self._spent(lambda: self._look_out(end, seen))

        return watch

    def _gradient_watcher(self, end: End) -> Callable[[Tensor], None]:
        return lambda gradient: None if self.paused else self._spent(lambda: self._gradient(end, gradient))

    def _look_in(self, end: End, args: Any, kwargs: Any) -> Any:
        name, tensor = _first_input(args, kwargs)
        if tensor is None or self._is_held(end, tensor) or not measurable(tensor):
            return None
        self._values(end, tensor)
        if end.backward is None or not tensor.requires_grad:
            return None
        if not end.own:
            self._await(end, tensor)
            return None
        # A view of its own: the gradient that comes to it is this module's and nobody else's.
        alias = tensor.view_as(tensor)
        self._await(end, alias)
        if name is None:
            return (alias, *args[1:]), kwargs
        return args, {**kwargs, name: alias}

    def _look_out(self, end: End, output: Any) -> None:
        tensor = first_tensor(output) if end.of is None else made_of(end.of, output)
        if tensor is None or self._is_held(end, tensor) or not measurable(tensor):
            return
        self._values(end, tensor)
        # What compiled code tells is no part of a graph.
        if end.backward is not None and tensor.requires_grad and torch.is_grad_enabled():
            self._await(end, tensor)

    def _values(self, end: End, tensor: Tensor) -> None:
        self.fired = True
        if end.forward is not None:
            self._keep_all(self._rows_of(end, end.forward, tensor))

    def _keep_all(self, rows: Iterator[tuple[str, int, Tensor]]) -> None:
        for row in rows:
            if self._waiting is None:
                self._keep(*row)
            else:
                self._waiting.append(row)

    def _is_held(self, end: End, tensor: Tensor) -> bool:
        """Take what a tensor of float8 numbers tells, and return whether it is one."""
        if self._casts is None or "precision" not in self._due or end.module is None or held(tensor) is None:
            return False
        if end.forward is not None and end.counted:
            self._keep_all(self._casts.rows(end.forward, end.at, tensor))
        return True

    def _rows_of(self, end: End, stat: str, tensor: Tensor) -> Iterator[tuple[str, int, Tensor]]:
        """Give statistic, name and row of all that is due of a tensor and counted here."""
        if stat in self._due and (row := self._measured(end, tensor)) is not None:
            yield stat, end.at, row
        if self._casts is not None and "precision" in self._due and end.module is not None:
            values = self._counted(end, tensor)
            if values is not None:
                yield from self._casts.rows(stat, end.at, values, end.module)

    def _await(self, end: End, tensor: Tensor) -> None:
        scope = self._scope

        def arrived(gradient: Tensor) -> None:
            if scope == self._scope:
                self._spent(lambda: self._gradient(end, gradient))

        tensor.register_hook(arrived)  # type: ignore[no-untyped-call]

    def _gradient(self, end: End, gradient: Tensor) -> None:
        if end.backward is not None:
            for row in self._rows_of(end, end.backward, gradient):
                self._keep(*row)

    def _counted(self, end: End, tensor: Tensor) -> Tensor | None:
        """Return the values of a tensor that this process counts; None where it counts none."""
        counted = counted_here(tensor)
        if not (end.counted if counted is None else counted):
            return None
        return local_values(tensor)

    def _measured(self, end: End, tensor: Tensor) -> Tensor | None:
        """Return a row ``[1, 11]``; None where this process does not count the values."""
        values = self._counted(end, tensor)
        if values is None or not measurable(values):
            return None
        if self._noted is not None:
            self._noted(end.at, _TYPE_NAMES[values.dtype])
        # Queries, keys and values are made of one tensor: the same object, unchanged, is measured once.
        last = self._last
        if last is not None and last[0]() is values and last[1] == values._version:
            return last[2]
        row = measure_natively([values], self._next_row()) if values.is_cpu else None
        if row is None:
            row = measure([values])
        self._last = (weakref.ref(values), values._version, row)
        return row

    def _next_row(self) -> Tensor | None:
        """Return memory for a row until the next step begins; None where the last step had fewer.

        What is allocated in a forward pass and outlives it lies between the activations, and keeps the
        allocator from giving their memory out again in one piece: a step of the demo model then has the
        system clear two thirds more pages.
        """
        at, self._used = self._used, self._used + 1
        return self._rows[at] if at < len(self._rows) else None


def probes_of(
    sites: Sequence[SitePoint],
    residuals: Sequence[ResidualPoint],
    features: Sequence[FeaturePoint],
    names: NameList,
    due: frozenset[str],
    cast: Collection[str] = (),
) -> list[MomentProbe]:
    """Return what is hooked in a step in which the statistics ``due`` are logged.

    ``cast`` are those of tensors whose casts are computed where ``precision`` is due.
    """
    probes: list[MomentProbe] = []
    casts = cast if "precision" in due else ()
    values = "activation" if "activation" in due or "activation" in casts else None
    gradients = "dgrad" if "dgrad" in due or "dgrad" in casts else None
    if values or gradients:
        for site in sites:
            ends: list[End | None] = []
            for which in ("input", "output"):
                logs = getattr(site, f"logs_{which}")
                back = getattr(site, f"logs_{which}_gradient")
                forward = values if logs else None
                backward = gradients if (logs if back is None else back) else None
                counted = getattr(site, f"counts_{which}")
                end = _end(f"{site.name}/{which}0", names, forward, backward, counted, own=which == "input")
                ends.append(end and replace(end, module=site.module if casts else None))
            if any(ends):
                probes.append(MomentProbe(site.module, ends[0], ends[1]))
    values = "residual" if "residual" in due else None
    gradients = "residual_dgrad" if "residual_dgrad" in due else None
    for point in residuals if values or gradients else ():
        end = _end(point.name, names, values, gradients, point.counted)
        hooked = gradients or end_of(point.module, point.end, 0) is not None
        probes.append(
            MomentProbe(
                point.module,
                end if point.end == "input" else None,
                end if point.end == "output" else None,
                None if hooked else point.observed,
            )
        )
    for feature in features:
        if feature.stat in due and isinstance(feature.source, nn.Module):
            made = End(names.index(feature.name), feature.stat, None, feature.counted, of=feature.of)
            probes.append(MomentProbe(feature.source, None, made, feature.observed))
    return probes


def made_of(of: Callable[[Any], Tensor | None], given: Any) -> Tensor | None:
    """Return what a feature makes of a tensor, in the precision that it asks for and without a graph."""
    off = [torch.autocast(kind, enabled=False) for kind in ("cpu", "cuda")]
    with torch.inference_mode(False), torch.no_grad(), off[0], off[1]:
        return of(given)


def _end(
    name: str,
    names: NameList,
    forward: str | None,
    backward: str | None,
    counted: bool,
    own: bool = False,
) -> End | None:
    if forward is None and backward is None:
        return None
    return End(names.index(name), forward, backward, counted, own)


def _first_input(args: Any, kwargs: Any) -> tuple[str | None, Tensor | None]:
    """Return the first positional argument; else the only tensor by keyword, or the hidden states."""
    if args:
        return None, args[0] if isinstance(args[0], Tensor) else None
    hidden = kwargs.get("hidden_states")
    if isinstance(hidden, Tensor):
        return "hidden_states", hidden
    tensors = [(name, value) for name, value in kwargs.items() if isinstance(value, Tensor)]
    return tensors[0] if len(tensors) == 1 else (None, None)
