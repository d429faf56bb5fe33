"""Probes inside of compiled code, where no hook runs.

``torch.compile`` traces through the hooks that it meets, so a hook that is on a module before its code is
compiled can leave an operator in the graph. The operator does nothing but tell; what it tells, and whom, is
looked up each time it runs. So flags, layers and compressors change without a recompile, and what nobody asks
for costs the call of an operator that returns at once.

::

    hook, while it is compiled       graph                                         each time that it runs
    placed on module n ───────────▶  seen([tensor], n, end, VALUE) ──────────────▶ GraphEnd: its watchers
                                     backward pass: seen([gradient], …, GRADIENT) ▶ GraphEnd: its watchers

Gradients come from an ``autograd.Function`` which hands its tensor on as it is. An operator that changes a
small state tensor would do as well in a single graph, but two graphs that share the state cannot be
backpropagated (``bench/compiled.py`` compares the two).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .errors import TracerError, describe_error
from .graph_operator import (
    BEGINS,
    BEGINS_WITH_GRADIENTS,
    ENDS,
    GRADIENT,
    NO_TENSOR,
    ODD_OUTPUT,
    SUBCLASS,
    at_item,
    changed,
    compilations,
    define_operators,
    guard_hooks,
    listeners,
    release_hooks,
    report,
    report_all,
    report_end,
)
from .own_hooks import StableHooks, hooks_of
from .points import ModelPoints

ALL_ITEMS = -1
"""In place of an item: everything that a module is given or gives."""

_LOST = {
    NO_TENSOR: "compiled code has no tensor there",
    SUBCLASS: "the tensor is a DTensor or its like, of which operators in compiled code know nothing",
    ODD_OUTPUT: "the module gives a tuple of a class of its own",
}
_MOST_OPEN = 64
"""Passes that wait for their backward pass; of those of a pass that has none the oldest are forgotten."""


class GraphEnd:
    """One tensor at the border of one module, or all that it is given or gives, and its watchers.

    Parameters
    ----------
    collects : {'input', 'output'}, optional
        Whether it is all that the module is given, as ``(args, kwargs)``, or gives, with None for what is no
        tensor.

    Attributes
    ----------
    values, gradients : list of callable
        Take the tensor, and what is backpropagated to it. It is the graph's own memory, which is used again:
        keep a copy.
    ran : bool
        Whether code that has this probe ran so far.
    lost : str or None
        Why it has nothing to report, in words.
    slots : tuple or None
        Where the graph itself measures it: the device, and the slots of the tensor and of its gradient.
    """

    def __init__(self, warn: Callable[[str], None], collects: str | None = None) -> None:
        self.collects = collects
        self.values: list[Callable[[Any], None]] = []
        self.gradients: list[Callable[[Tensor], None]] = []
        self.ran = False
        self.lost: str | None = None
        self.slots: tuple[torch.device, int, int] | None = None
        self._warn = warn

    def watch(
        self, values: Callable[[Any], None] | None, gradients: Callable[[Tensor], None] | None = None
    ) -> _Watch:
        """Report the tensor from now on, until what this returns is removed."""
        return _Watch([(self.values, values), (self.gradients, gradients)])

    def hear(self, tensors: Sequence[Tensor], what: int, names: str) -> None:
        """Call the watchers. Never raises: an error is reported, and the step goes on."""
        self.ran, self.lost = True, _LOST.get(what)
        if self.lost is not None:
            return
        seen = tensors[0] if self.collects is None else self._collected(tensors, names)
        for watcher in self.gradients if what == GRADIENT else self.values:
            try:
                watcher(seen)
            except Exception as error:
                self._warn(f"A probe in compiled code failed: {describe_error(error)}")

    def _collected(self, tensors: Sequence[Tensor], names: str) -> Any:
        if not names:
            return tensors[0]
        args: list[Tensor | None] = []
        kwargs: dict[str, Tensor] = {}
        for name, tensor in zip(names.split(","), tensors, strict=True):
            if name.isdigit():
                args += [*[None] * (int(name) - len(args)), tensor]
            else:
                kwargs[name] = tensor
        return (args, kwargs) if self.collects == "input" else args or kwargs


class GraphPass:
    """A forward pass of compiled code, in place of its output, which cannot be hooked there."""

    def __init__(self) -> None:
        self.backpropagated: list[Callable[[], None]] = []


class GraphRoot:
    """The forward passes of a module that is itself called in compiled code.

    A backward pass is taken for that of the newest forward pass that has had none: so it is but in pipelines,
    whose stages are called as modules. ``begins`` are called in the gradient mode of the pass, ``ends`` take
    a :class:`GraphPass`.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.begins: list[Callable[[], None]] = []
        self.ends: list[Callable[[Any], None]] = []
        self._open: list[GraphPass] = []
        self._warn = warn

    def watch(self, begins: Callable[[], None], ends: Callable[[Any], None]) -> _Watch:
        return _Watch([(self.begins, begins), (self.ends, ends)])

    def hear(self, tensors: Sequence[Tensor], what: int, names: str) -> None:
        """Call the watchers. Never raises: an error is reported, and the step goes on."""
        try:
            if what in (BEGINS, BEGINS_WITH_GRADIENTS):
                with torch.set_grad_enabled(what == BEGINS_WITH_GRADIENTS):
                    for begins in self.begins:
                        begins()
            elif what == ENDS:
                done = GraphPass()
                for ends in self.ends:
                    ends(done)
                if done.backpropagated:
                    self._open = [*self._open[-_MOST_OPEN:], done]
            elif self._open:
                for call in self._open.pop().backpropagated:
                    call()
        except Exception as error:
            self._warn(f"A probe in compiled code failed: {describe_error(error)}")


class _Watch:
    def __init__(self, added: Sequence[tuple[list[Any], Any]]) -> None:
        self._added = [(watchers, watcher) for watchers, watcher in added if watcher is not None]
        for watchers, watcher in self._added:
            watchers.append(watcher)

    def remove(self) -> None:
        """Watch no more. Safe twice."""
        added, self._added = self._added, []
        for watchers, watcher in added:
            watchers.remove(watcher)


_numbers = itertools.count(1)


def is_compiled(roots: Iterable[nn.Module]) -> bool:
    """Return whether ``torch.compile`` has been asked to compile one of the modules or one inside of them.

    Whether it has done so yet does not matter.
    """
    return next(compiled_in(roots), None) is not None


def compiled_in(roots: Iterable[nn.Module]) -> Iterator[nn.Module]:
    """Give the modules that ``torch.compile`` has been asked to compile."""
    for root in roots:
        for module in root.modules():
            forward = module.__dict__.get("forward")
            if (
                hasattr(module, "_orig_mod")
                or getattr(module, "_compiled_call_impl", None) is not None
                or hasattr(forward, "_torchdynamo_orig_callable")
            ):
                yield module


def end_of(module: nn.Module, side: str, item: int = 0, keyword: str | None = None) -> GraphEnd | None:
    hooks = hooks_of.get(module)
    if not isinstance(hooks, _GraphHooks) or (item, keyword) not in hooks.ends[side]:
        return None
    end: GraphEnd = hooks.heard[hooks.ends[side][item, keyword]]
    return end


def passes_of(root: nn.Module) -> GraphRoot | None:
    """Return what follows the passes of a root whose own call is compiled."""
    hooks = hooks_of.get(root)
    return hooks.heard[hooks.root] if isinstance(hooks, _GraphHooks) and hooks.root is not None else None


def changes_of(module: nn.Module) -> list[Any] | None:
    """Return the list of what changes a module's output in compiled code; None where nothing can."""
    hooks = hooks_of.get(module)
    return hooks.changes if isinstance(hooks, _GraphHooks) and hooks.changeable else None


class ITotals(Protocol):
    """What measures in the graph itself, for code that no Python follows."""

    def reserve(self, module: nn.Module, ends: int) -> tuple[torch.device, int, Tensor]: ...

    def leave(self, tensor: Tensor, first: Tensor, end: int) -> Tensor: ...


class GraphProbes:
    """Hooks that leave probes in code which is compiled from now on; elsewhere they do nothing.

    Code that was compiled before is compiled once more when it is called next: it may be that of these
    modules, or of others of their class, whose graphs torch would use for these. With ``perturbs`` outputs
    can be perturbed, and each site costs a copy of its tensor in every pass. With ``totals`` probes tell
    nobody: the graph measures by itself, so that a CUDA graph can replay it.

    Raises
    ------
    TracerError
        When this version of torch has no operators with effects; with ``totals``, where another tracer has
        probes in the model.
    """

    def __init__(
        self,
        points: ModelPoints,
        warn: Callable[[str], None],
        *,
        perturbs: bool = False,
        totals: ITotals | None = None,
    ) -> None:
        define_operators()
        self._warn = warn
        self.totals = totals
        self._modules: set[nn.Module] = set()
        self._compilations: set[Any] = set()
        compilations.append(self._compilations)
        self.place_all(points)
        for name, site in points.sites.items() if perturbs else ():
            # Weights are read as they are.
            for module in itertools.chain.from_iterable(site.layers.values()) if name != "weight" else ():
                self._hooks(module).changeable = True
        # Those of a module that is called as such are seen by ordinary hooks.
        for root in points.roots:
            if not hasattr(root, "_orig_mod") and totals is None:
                hooks = self._hooks(root)
                if hooks.root is None:
                    hooks.root = hooks.add(GraphRoot(self._warn))
        self.compiles_anew = guard_hooks(id(self))
        """Whether there was compiled code already."""

    @property
    def compiled(self) -> tuple[int, int]:
        """How often code with probes was compiled so far, and how many of these times anew."""
        found = [each for each in self._compilations.copy() if each is not None]
        return len(found), len(found) - len({each.frame_id for each in found})

    def place_all(self, points: ModelPoints) -> None:
        """Place a probe wherever a flag can be seen; where there are some already, once.

        Where the graph measures by itself no flag can be: there, these modules have hooks for who watches a
        pass.
        """
        for flag in points.flags.values():
            for source in itertools.chain.from_iterable(flag.layers.values()):
                if self.totals is not None:
                    self._hooks(source.module)
                    continue
                item = source.item if source.computed is None else ALL_ITEMS
                self.place(source.module, source.side, item, source.keyword if item != ALL_ITEMS else None)
                if source.rows_of is not None:
                    self.place(source.rows_of, "input", ALL_ITEMS)

    def place(self, module: nn.Module, side: str, item: int = 0, keyword: str | None = None) -> None:
        """Place a probe at one end of a module, of one tensor or of all there (``ALL_ITEMS``); once."""
        hooks = self._hooks(module)
        if self.totals is not None and (item == ALL_ITEMS or hooks.first is not None):
            # What is made of several tensors is made in Python, and slots are taken once.
            return
        if (item, keyword) not in hooks.ends[side]:
            end = GraphEnd(self._warn, side if item == ALL_ITEMS else None)
            hooks.ends[side][item, keyword] = hooks.add(end)

    def measured(self) -> None:
        """Take slots for what was placed, once all is; before the model is compiled."""
        totals = self.totals
        for module in () if totals is None else self._modules:
            hooks = hooks_of[module]
            assert isinstance(hooks, _GraphHooks)
            if hooks.users > 1:
                raise TracerError(
                    "Another tracer has probes in this model. With compiled='captured' there is one: give "
                    "log_statistics the tracer, or close the other."
                )
            if hooks.first is None:
                assert totals is not None
                device, first, hooks.first = totals.reserve(module, len(hooks.heard))
                hooks.leave = totals.leave
                for at, end in enumerate(hooks.heard):
                    end.slots = device, first + 2 * at, first + 2 * at + 1

    def _hooks(self, module: nn.Module) -> _GraphHooks:
        found = hooks_of.get(module)
        if not isinstance(found, _GraphHooks):
            found = hooks_of[module] = _GraphHooks(module)
        if module not in self._modules:
            self._modules.add(module)
            found.users += 1
        return found

    def close(self) -> None:
        """Take the hooks off. Safe twice.

        Code is compiled once more, without probes, when it is called next.
        """
        compilations[:] = [each for each in compilations if each is not self._compilations]
        release_hooks(id(self))
        modules, self._modules = self._modules, set()
        for module in modules:
            hooks = hooks_of[module]
            assert isinstance(hooks, _GraphHooks)
            hooks.users -= 1
            if not hooks.users:
                del hooks_of[module]
                hooks.remove()


class _GraphHooks(StableHooks):
    """The hooks of one module, which leave its probes in code that is compiled.

    Attributes
    ----------
    number : torch.Tensor
        Of the module, int64 ``[]``: an input of the graph, so that modules of one class share theirs.
    ends : dict
        By side, item and keyword the index in ``heard``.
    heard : list
        What the graph reports to.
    root : int or None
        Index in ``heard`` of what follows passes.
    changeable : bool
        Whether the output can be perturbed.
    changes : list
        What perturbs it: objects with ``change``. Not looked at while code is compiled, which would be
        compiled anew with another number of them.
    users : int
        Tracers that have probes here.
    first : torch.Tensor or None
        Where the graph measures by itself, the first slot, as an input of it; ``leave`` leaves what does.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.number = torch.tensor(next(_numbers), device="cpu")
        self.ends: dict[str, dict[tuple[int, str | None], int]] = {"input": {}, "output": {}}
        self.heard: list[Any] = []
        self.root: int | None = None
        self.changeable = False
        self.changes: list[Any] = []
        self.users = 0
        self.first: Tensor | None = None
        self.leave: Callable[[Tensor, Tensor, int], Tensor] | None = None
        listeners[int(self.number)] = self

    def add(self, heard: GraphEnd | GraphRoot) -> int:
        """Have the graph report to it, too; return its index."""
        self.heard.append(heard)
        return len(self.heard) - 1

    def remove(self) -> None:
        super().remove()
        listeners.pop(int(self.number), None)

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Leave probes of the pass that begins, and of what the module is given."""
        if not torch.compiler.is_compiling():
            return super().called(module, args, kwargs)
        if torch.compiler.is_exporting():
            # What is exported for another program has no probes in it.
            return None
        if self.first is not None:
            for (item, keyword), end in self.ends["input"].items():
                if keyword not in kwargs and len(args) > item:
                    args = self._measured(args, item, end)
                elif kwargs:
                    name = keyword if keyword in kwargs else next(iter(kwargs))
                    kwargs = {**kwargs, name: self._measured(kwargs[name], 0, end)}
            return args, kwargs
        if self.root is not None:
            what = BEGINS_WITH_GRADIENTS if torch.is_grad_enabled() else BEGINS
            torch.ops.megalens.seen([], self.number, self.root, what, "")
        for (item, keyword), end in self.ends["input"].items():
            if item == ALL_ITEMS:
                report_all(args, kwargs, self.number, end)
            elif keyword not in kwargs and len(args) > item:
                args = report(args, item, self.number, end)
            elif kwargs:
                name = keyword if keyword in kwargs else next(iter(kwargs))
                kwargs = {**kwargs, name: report(kwargs[name], 0, self.number, end)}
        return args, kwargs

    def returned(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Change the output where it is perturbed; leave probes of it and of the end of the pass."""
        if not torch.compiler.is_compiling():
            return super().returned(module, args, output)
        if torch.compiler.is_exporting():
            return None
        if self.first is not None:
            for (item, _), end in self.ends["output"].items():
                output = self._measured(output, item, end)
            return output
        if self.changeable:
            output = changed(output, self.number)
        for (item, _), end in self.ends["output"].items():
            if item != ALL_ITEMS:
                output = report(output, item, self.number, end)
            elif isinstance(output, dict):
                report_all((), output, self.number, end)
            elif isinstance(output, (Tensor, tuple, list)):
                report_all(output, {}, self.number, end)
        return output if self.root is None else report_end(output, self.number, self.root)

    def _measured(self, given: Any, item: int, end: int) -> Any:
        first, leave = self.first, self.leave
        if first is None or leave is None:
            return given
        return at_item(given, item, lambda tensor: leave(tensor, first, end))[0]

    def change(self, tensor: Tensor) -> Tensor:
        for each in self.changes:
            tensor = each.change(tensor)
        return tensor

    def change_gradient(self, gradient: Tensor, tensor: Tensor) -> Tensor:
        """Return what is backpropagated to an output by way of the perturbations."""
        if not self.changes:
            return gradient
        with torch.enable_grad():
            given = tensor.detach().requires_grad_()
            new = given
            for each in self.changes:
                new = each.change(new, recomputed=True)
        return gradient if new is given else torch.autograd.grad(new, given, gradient)[0]
