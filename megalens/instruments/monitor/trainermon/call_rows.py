"""Hooks that measure modules' inputs and outputs, gradients, parameters and optimizer state of a process."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ....tracer.collectives import CollectiveHooks, Done, tensors_of
from ....tracer.moments import measure
from ....tracer.moments.hooks.values import local_values
from ....tracer.own_hooks import remove_all
from .readings import FeatureHooks, FeatureRows, gradient_of, reporting

GradientHook = Callable[[Tensor | None], None]
Reduction = Callable[[Callable[[nn.Parameter, Tensor], None]], Callable[[], None]]

_EPS = 1e-8
_MOST_STACKS = 1000
_OURS = str(Path(__file__).parents[3])
_LEFT_OUT = re.compile(r"torch[/\\]nn[/\\]modules[/\\]module\.py|[/\\](multiprocessing|debugpy)[/\\]")


class CollectiveCalls:
    """Hooks for ``cc_distribution``. Nothing waits for the device.

    ``lines`` are patterns of which one has to be found in the stack of a call, ``path[line]   function``
    joined by ``;``; None is every call. ``before``: the tensors are also measured before the call.
    ``only_stacks``: nothing is measured, and ``stacks`` gets the stacks of each operation, innermost frame
    first. ``failed`` takes an exception of ours, which the training does not see.
    """

    def __init__(
        self, lines: Sequence[str], *, before: bool, only_stacks: bool, failed: Callable[[Exception], None]
    ) -> None:
        self._lines = [re.compile(line) for line in lines]
        self._before, self._only_stacks, self._failed = before, only_stacks, failed
        self.stacks: dict[str, list[list[str]]] = {}
        self._rows = CallRows()
        self._hooks = CollectiveHooks(self._called)
        self._hooks.begin()

    @reporting
    def _called(self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Done | None:
        if self._lines or self._only_stacks:
            frames = _frames()
            stack = ";".join(frames)
            if self._lines and not any(line.search(stack) for line in self._lines):
                return None
            if self._only_stacks:
                known = self.stacks.setdefault(operation, [])
                if frames not in known and len(known) < _MOST_STACKS:
                    known.append(frames)
                return None
        found = [tensors for each in (*args, *kwargs.values()) if (tensors := tensors_of(each))]
        if self._before:
            self._look(operation, "pre", found)
        return lambda _: self._look(operation, "post", found)

    @reporting
    def _look(self, operation: str, when: str, found: Sequence[Sequence[Tensor]]) -> None:
        for number, tensors in enumerate(found):
            value = (
                tensors[0] if len(tensors) == 1 else torch.cat([each.detach().flatten() for each in tensors])
            )
            self._rows.add((0, f"{operation}.{when}_{number}", None), value, _EPS)

    def take(self) -> CallRows:
        """Return the rows of all calls since the last time, several of one name."""
        rows, self._rows = self._rows, CallRows()
        return rows

    def close(self) -> None:
        """Restore the functions. Safe twice."""
        self._hooks.end()


def _frames() -> list[str]:
    """Return the call stack, innermost first, as ``path[line]   function``."""
    found, frame = [], inspect.currentframe()
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_OURS) and not _LEFT_OUT.search(path):
            found.append(f"{path}[{frame.f_lineno}]   {frame.f_code.co_name}")
        frame = frame.f_back
    return found


@dataclass
class CallRows:
    """The measurements of one kind in one step, in the order of the lines.

    ``labels`` are chunk of the model, name, and micro-batch (None where the kind has none); ``about`` is
    shape and dtype, None without a tensor; ``rows`` are of :func:`~megalens.tracer.moments.measure`, float64
    on the tensor's device; ``calls`` are indices among all measurements of the step in time order, or -1.
    """

    labels: list[tuple[int, str, int | None]] = field(default_factory=list)
    about: list[tuple[tuple[int, ...], torch.dtype] | None] = field(default_factory=list)
    rows: list[Tensor | None] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    def add(
        self, label: tuple[int, str, int | None], value: Tensor | None, eps: float, call: int = -1
    ) -> None:
        self.calls.append(call)
        self.labels.append(label)
        self.about.append(None if value is None else (tuple(value.shape), value.dtype))
        self.rows.append(None if value is None else measured(value, eps))


@dataclass(frozen=True)
class StackedRows:
    """The same with the rows of each device as one float64 tensor ``[n, 11]``, so that they are copied
    together.

    ``at`` has table and row of each line.
    """

    labels: list[tuple[int, str, int | None]]
    about: list[tuple[tuple[int, ...], torch.dtype] | None]
    calls: list[int]
    tables: list[Tensor]
    at: list[tuple[int, int] | None]

    @classmethod
    def of(cls, rows: CallRows) -> StackedRows:
        """Stack them; waits for nothing."""
        devices: dict[torch.device, list[Tensor]] = {}
        at: list[tuple[int, int] | None] = []
        for row in rows.rows:
            if row is None:
                at.append(None)
            else:
                together = devices.setdefault(row.device, [])
                at.append(([*devices].index(row.device), len(together)))
                together.append(row)
        return cls(rows.labels, rows.about, rows.calls, [torch.stack(each) for each in devices.values()], at)

    def numbers(self) -> list[list[float] | None]:
        """Return the row of each line; None without a tensor. Waits for the device."""
        tables = [table.tolist() for table in self.tables]
        return [None if at is None else tables[at[0]][at[1]] for at in self.at]


def measured(value: Tensor, eps: float) -> Tensor:
    """Return the row of a tensor, in float64: six decimals of it are written."""
    with torch.no_grad():
        here = local_values(value.detach())
        # Partial sums over processes are no values of their own.
        return measure([(value.new_empty(0) if here is None else here).to(torch.float64)], eps=eps)[0]


class CallCollector:
    """Installs hooks and stores the rows of the current step, in the training thread and without a device
    sync.

    ``chunks`` are of a virtual pipeline, ``micro_batches`` the calls of a module that make a step; values
    below ``eps`` count as zeros. ``named`` maps a module's or parameter's name to the written one. ``failed``
    takes an exception of a hook, which the training does not see.
    """

    def __init__(
        self,
        chunks: Sequence[nn.Module],
        micro_batches: int,
        eps: float,
        named: Callable[[str], str],
        failed: Callable[[Exception], None],
    ) -> None:
        self._chunks, self._micro_batches, self._eps = chunks, micro_batches, eps
        self._named, self._failed = named, failed
        self._handles: list[Any] = []
        self._stops: list[Callable[[], None]] = []
        # Nodes of autograd live as long as a reference to them.
        self._nodes: list[Any] = []
        # By chunk and module, then by micro-batch: modules in the order in which they were done first.
        self._forward: dict[tuple[int, str], dict[int, CallRows]] = {}
        self._backward: dict[tuple[int, str, int], CallRows] = {}
        self._gradients: dict[tuple[int, str, int | None], CallRows] = {}
        self._calls: dict[tuple[str, int, str], int] = {}
        self._measured = 0
        self._features: FeatureHooks | None = None
        self.on = True

    # Hooks.

    def watch_modules(self, wanted: Callable[[int, str], bool], *, forward: bool, backward: bool) -> None:
        """Measure inputs and outputs of modules, and the gradients there."""
        for chunk, model in enumerate(self._chunks):
            for name, module in model.named_modules():
                if not wanted(chunk, name):
                    continue
                key = (chunk, self._named(name))
                if forward:
                    hook = partial(self._after_forward, key)
                    self._handles.append(module.register_forward_hook(hook, with_kwargs=True))
                if backward:
                    self._handles.append(
                        module.register_full_backward_hook(partial(self._after_backward, key))
                    )

    def watch_gradients(
        self, wanted: Callable[[int, str], bool], *, each: bool, reduction: Reduction | None = None
    ) -> None:
        """Measure gradients before their reduction: of the last micro-batch, or after ``each``.

        ``wanted`` takes chunk and name of a parameter. ``reduction`` takes a function, calls it with each
        parameter and its gradient before the reduction, and returns what ends that, where autograd's hooks
        would come too late.
        """
        hooks: dict[Tensor, GradientHook] = {}
        for chunk, name, parameter in self.parameters(wanted):
            once = not each and reduction is not None
            hook = partial(self._gradient_came, (chunk, name), each, once)
            if reduction is not None and not (each and hasattr(parameter, "main_grad")):
                hooks[parameter] = hook
            elif hasattr(parameter, "main_grad"):
                # Megatron-Core adds the gradient to main_grad in a hook of this node, after the parameters'
                # hooks.
                node: Any = parameter.expand_as(parameter).grad_fn
                node = node.next_functions[0][0]
                self._nodes.append(node)
                self._handles.append(node.register_hook(lambda *_, p=parameter, h=hook: h(gradient_of(p))))
            else:
                self._handles.append(
                    parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                        lambda p, h=hook: h(gradient_of(p))
                    )
                )
        if hooks and reduction is not None:

            def then(parameter: nn.Parameter, gradient: Tensor) -> None:
                if parameter in hooks:
                    hooks[parameter](gradient)

            self._stops.append(reduction(then))

    def watch_features(self, targets: Mapping[str, Sequence[str]], order: str) -> None:
        self._features = FeatureHooks(
            self._chunks,
            targets,
            order,
            micro=self._micro,
            last=lambda micro: micro == self._micro_batches - 1,
            named=self._named,
            failed=self._failed,
        )

    def parameters(self, wanted: Callable[[int, str], bool]) -> Iterator[tuple[int, str, nn.Parameter]]:
        """Yield the trained parameters: chunk, written name and parameter."""
        for chunk, model in enumerate(self._chunks):
            names = [
                name for name, each in model.named_parameters() if each.requires_grad and wanted(chunk, name)
            ]
            written = [self._named(name) for name in names]
            parameters = dict(model.named_parameters())
            for name, short in zip(names, written, strict=True):
                # Ambiguous names are not shortened.
                yield chunk, short if written.count(short) == 1 else name, parameters[name]

    @reporting
    def _after_forward(
        self, key: tuple[int, str], module: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any
    ) -> None:
        # Recomputation by checkpointing is no call of its own.
        if not self.on or not module.training or torch._C._current_graph_task_id() != -1:
            return
        micro = self._micro("forward", key)
        rows = CallRows()
        inputs = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
        self._ends(rows, key, micro, "input", inputs)
        if not isinstance(output, Mapping):
            self._ends(rows, key, micro, "output", output)
        self._forward.setdefault(key, {})[micro] = rows

    @reporting
    def _after_backward(self, key: tuple[int, str], module: nn.Module, given: Any, output: Any) -> None:
        if self.on:
            micro = self._micro("backward", key)
            rows = CallRows()
            self._ends(rows, key, micro, "input", given)
            self._ends(rows, key, micro, "output", output)
            self._backward[(*key, micro)] = rows

    @reporting
    def _gradient_came(self, key: tuple[int, str], each: bool, once: bool, gradient: Tensor | None) -> None:
        """Take a gradient; ``once``: it comes when all micro-batches are done, not after each."""
        if not self.on:
            return
        micro = self._micro("gradient", key)
        if each or once or micro == self._micro_batches - 1:
            at = (*key, micro if each else None)
            rows = self._gradients[at] = CallRows()
            rows.add(at, gradient, self._eps, self._next())

    def _ends(self, rows: CallRows, key: tuple[int, str], micro: int, end: str, values: Any) -> None:
        several = list(values) if isinstance(values, (tuple, list)) else [values]
        chunk, name = key
        for number, value in enumerate(several):
            which = end if len(several) == 1 else f"{end}_{number}"
            found = value if isinstance(value, Tensor) else None
            rows.add((chunk, f"{name}.{which}", micro), found, self._eps, self._next())

    def _next(self) -> int:
        self._measured += 1
        return self._measured - 1

    def _micro(self, what: str, owner: tuple[int, str]) -> int:
        key = (what, *owner)
        calls = self._calls[key] = self._calls.get(key, 0) + 1
        return (calls - 1) % self._micro_batches

    # At the end of a step.

    def of_parameters(
        self,
        wanted: Callable[[int, str], bool],
        value: Callable[[nn.Parameter], Tensor | None],
        *,
        numbered: bool = True,
    ) -> CallRows:
        """Measure a value of each parameter now, None is left out; ``numbered``: with call indices."""
        rows = CallRows()
        for chunk, name, parameter in self.parameters(wanted):
            found = value(parameter)
            if found is not None:
                rows.add((chunk, name, None), found, self._eps, self._next() if numbered else -1)
        return rows

    def begin(self) -> None:
        """Start counting the calls of the next step."""
        self._measured = 0

    def take(self) -> dict[str, CallRows | FeatureRows]:
        """Return the measurements of the step by kind of file, and forget them."""
        activations = [rows for of in self._forward.values() for _, rows in sorted(of.items())]
        found = {
            "actv": _joined(activations),
            "actv_grad": _joined(self._backward.values()),
            "grad_unreduced": _joined(self._gradients.values()),
        }
        self._forward, self._backward, self._gradients, self._calls = {}, {}, {}, {}
        features = {} if self._features is None else self._features.take()
        return {**{kind: rows for kind, rows in found.items() if rows.labels}, **features}

    def close(self) -> None:
        """Remove every hook. Safe twice."""
        remove_all(self._handles)
        for stop in self._stops:
            stop()
        self._stops, self._nodes = [], []
        if self._features is not None:
            self._features.close()


def _joined(several: Iterable[CallRows]) -> CallRows:
    joined = CallRows()
    for each in several:
        joined.labels += each.labels
        joined.about += each.about
        joined.rows += each.rows
        joined.calls += each.calls
    return joined
