"""Probes inside of compiled code, where no hook runs.

``torch.compile`` traces through the hooks that it meets, so a hook that is on a module before its code is compiled can leave an operator in the graph.
The operator does nothing but tell; what it tells, and whom, is looked up each time it runs. So flags, layers and compressors change without a recompile, and
what nobody asks for costs the call of an operator that returns at once.

::

    hook, while it is compiled       graph                                      each time that it runs
    placed on module n ───────────▶  seen(tensor, n, False) ──────────────────▶ GraphEnd n: its watchers
                                     backward pass: seen(gradient, n, True) ──▶ GraphEnd n: watchers of gradients

The operator is registered as one with effects that keep their order: no pass of the compiler drops it, runs it twice or moves it before another. Gradients come
from an ``autograd.Function`` which hands its tensor on as it is. An operator that changes a small state tensor would do as well in a single graph, but two
graphs that share the state cannot be backpropagated (``bench/compiled.py`` compares the two).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .errors import TracerError, said
from .own_hooks import KeptHooks, hooks_of
from .points import ModelPoints, Source

__all__ = ["GraphEnd", "GraphPass", "GraphProbes", "end_of", "is_compiled", "passes_of"]

Watcher = Callable[[Tensor], None]
_numbers = itertools.count(1)
_ends: dict[int, GraphEnd | GraphRoot] = {}
"""By number; until the probes are closed."""


def is_compiled(roots: Iterable[nn.Module]) -> bool:
    """Return whether ``torch.compile`` has been asked to compile one of the modules, or one inside of them; whether it has done so yet does not matter."""
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for root in roots
        for module in root.modules()
    )


def end_of(module: nn.Module, side: str, item: int = 0, keyword: str | None = None) -> GraphEnd | None:
    """Return the probe at one end of a module, where there is one."""
    hooks = hooks_of.get(module)
    return hooks.ends[side].get((item, keyword)) if isinstance(hooks, _GraphHooks) else None


def passes_of(root: nn.Module) -> GraphRoot | None:
    """Return what tells of the passes of a root whose own call is compiled, where there is such."""
    hooks = hooks_of.get(root)
    return hooks.root if isinstance(hooks, _GraphHooks) else None


class GraphEnd:
    """One tensor at the border of one module, and who wants it while compiled code runs.

    Attributes
    ----------
    values, gradients : list of callable
        Take the tensor, and what is backpropagated to it. It is the graph's own memory, which is used again: keep a copy.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.number = next(_numbers)
        self.values: list[Watcher] = []
        self.gradients: list[Watcher] = []
        self._warn = warn
        _ends[self.number] = self

    def watch(self, values: Watcher | None, gradients: Watcher | None) -> _Watch:
        """Tell of the tensor from now on, until what this returns is removed."""
        return _Watch([(self.values, values), (self.gradients, gradients)])

    def tell(self, tensor: Tensor, what: int) -> None:
        """Tell whoever watches. Never raises: an error is said, and the step goes on."""
        for watcher in self.gradients if what == _GRADIENT else self.values:
            try:
                watcher(tensor)
            except Exception as error:
                self._warn(f"A probe in compiled code failed: {said(error)}")


class GraphPass:
    """A forward pass of compiled code, in place of its output: nobody there can hook that."""

    def __init__(self) -> None:
        self.backpropagated: list[Callable[[], None]] = []


class GraphRoot:
    """The forward passes of a module that is itself called in compiled code.

    A backward pass is taken for that of the newest forward pass that has had none: so it is but in pipelines, whose stages are called as modules.

    Attributes
    ----------
    begins : list of callable
        Told of each forward pass, in the gradient mode in which the module was called.
    ends : list of callable
        Take a :class:`GraphPass`.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self.number = next(_numbers)
        self.begins: list[Callable[[], None]] = []
        self.ends: list[Callable[[Any], None]] = []
        self._open: list[GraphPass] = []
        self._warn = warn
        _ends[self.number] = self

    def watch(self, begins: Callable[[], None], ends: Callable[[Any], None]) -> _Watch:
        """Tell of passes from now on, until what this returns is removed."""
        return _Watch([(self.begins, begins), (self.ends, ends)])

    def tell(self, tensor: Tensor, what: int) -> None:
        """Tell whoever watches. Never raises: an error is said, and the step goes on."""
        try:
            if what in (_BEGINS, _BEGINS_WITH_GRADIENTS):
                with torch.set_grad_enabled(what == _BEGINS_WITH_GRADIENTS):
                    for begins in self.begins:
                        begins()
            elif what == _ENDS:
                done = GraphPass()
                for ends in self.ends:
                    ends(done)
                if done.backpropagated:
                    self._open = [*self._open[-_MOST_OPEN:], done]
            elif self._open:
                for call in self._open.pop().backpropagated:
                    call()
        except Exception as error:
            self._warn(f"A probe in compiled code failed: {said(error)}")


class _Watch:
    """Somebody who watches."""

    def __init__(self, added: Sequence[tuple[list[Any], Any]]) -> None:
        self._added = [(watchers, watcher) for watchers, watcher in added if watcher is not None]
        for watchers, watcher in self._added:
            watchers.append(watcher)

    def remove(self) -> None:
        """Watch no more. Safe twice."""
        added, self._added = self._added, []
        for watchers, watcher in added:
            watchers.remove(watcher)


class GraphProbes:
    """Hooks that leave probes in code which is compiled from now on; in code that is not compiled they do nothing.

    Parameters
    ----------
    points : ModelPoints
        The model: each of its trace points that is a tensor as the module has it gets a probe.
    warn : callable
        Takes a sentence for the user.

    Raises
    ------
    TracerError
        When this version of torch has no operators with effects.
    """

    def __init__(self, points: ModelPoints, warn: Callable[[str], None]) -> None:
        _operator()
        self._warn = warn
        self._modules: set[nn.Module] = set()
        for source in _sources(points):
            self.place(source.module, source.side, source.item, source.keyword)
        # Those of a module that is called as such are seen by ordinary hooks.
        for root in points.roots:
            if not hasattr(root, "_orig_mod"):
                hooks = self._hooks(root)
                hooks.root = hooks.root or GraphRoot(self._warn)

    def place(self, module: nn.Module, side: str, item: int = 0, keyword: str | None = None) -> None:
        """Place a probe at one end of a module, of a tensor as :class:`Source` says it; once."""
        ends = self._hooks(module).ends[side]
        if (item, keyword) not in ends:
            ends[item, keyword] = GraphEnd(self._warn)

    def _hooks(self, module: nn.Module) -> _GraphHooks:
        found = hooks_of.get(module)
        if not isinstance(found, _GraphHooks):
            found = hooks_of[module] = _GraphHooks(module)
        if module not in self._modules:
            self._modules.add(module)
            found.users += 1
        return found

    def close(self) -> None:
        """Take the hooks off, and tell of nothing more; what has been compiled keeps operators that do nothing. Safe twice."""
        modules, self._modules = self._modules, set()
        for module in modules:
            hooks = hooks_of[module]
            assert isinstance(hooks, _GraphHooks)
            hooks.users -= 1
            if not hooks.users:
                del hooks_of[module]
                hooks.remove()


class _GraphHooks(KeptHooks):
    """The hooks of one module, which leave its probes in code that is compiled."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.ends: dict[str, dict[tuple[int, str | None], GraphEnd]] = {"input": {}, "output": {}}
        self.root: GraphRoot | None = None
        self.users = 0
        """Tracers that have probes here."""

    def remove(self) -> None:
        """Take the hooks off; the probes tell of nothing more."""
        super().remove()
        for end in (self.root, *self.ends["input"].values(), *self.ends["output"].values()):
            if end is not None:
                _ends.pop(end.number, None)

    def called(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Tell of the pass that begins, and of what the module is given."""
        if not torch.compiler.is_compiling():
            return super().called(module, args, kwargs)
        if torch.compiler.is_exporting():
            # What is exported for another program has no probes in it.
            return None
        if self.root is not None:
            tensor = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
            if tensor is not None:
                what = _BEGINS_WITH_GRADIENTS if torch.is_grad_enabled() else _BEGINS
                torch.ops.megalens.seen(tensor, self.root.number, what)
        for (item, keyword), end in self.ends["input"].items():
            if keyword not in kwargs and len(args) > item:
                args = _through(args, item, end.number)
            elif kwargs:
                name = keyword if keyword in kwargs else next(iter(kwargs))
                kwargs = {**kwargs, name: _through(kwargs[name], 0, end.number)}
        return args, kwargs

    def returned(self, module: nn.Module, args: Any, output: Any) -> Any:
        """Tell of what the module gives, and of the pass that ends."""
        if not torch.compiler.is_compiling():
            return super().returned(module, args, output)
        if torch.compiler.is_exporting():
            return None
        for (item, _), end in self.ends["output"].items():
            output = _through(output, item, end.number)
        return output if self.root is None else _ended(output, self.root.number)


_VALUE, _GRADIENT, _BEGINS, _BEGINS_WITH_GRADIENTS, _ENDS, _BACKPROPAGATED = range(6)
_MOST_OPEN = 64
"""Passes that wait for their backward pass; of those of a pass that has none the oldest are forgotten."""


def _sources(points: ModelPoints) -> Iterator[Source]:
    for flag in points.flags.values():
        for sources in flag.layers.values():
            yield from (source for source in sources if source.computed is None and source.rows_of is None)


def _through(output: Any, item: int, number: int) -> Any:
    """Have the graph tell of one tensor of a module's output; return the output with the tensor that the graph goes on with."""
    several = isinstance(output, (tuple, list))
    tensor = (output[item] if len(output) > item else None) if several else output if item == 0 else None
    if not isinstance(tensor, Tensor):
        return output
    new = _told(tensor, number, _VALUE, _GRADIENT)
    return _with(output, item, new) if several else new


def _ended(output: Any, number: int) -> Any:
    """Have the graph tell of the end of a pass, and of the gradient of the first tensor of its output that can have one; return the output that the graph goes on with."""
    if isinstance(output, Tensor):
        return _told(output, number, _ENDS, _BACKPROPAGATED)
    keys: list[Any] = list(output) if isinstance(output, dict) else []
    if isinstance(output, (tuple, list)):
        keys = list(range(len(output)))
    tensors = [key for key in keys if isinstance(output[key], Tensor)]
    if not tensors:
        return output
    key = next((key for key in tensors if output[key].requires_grad), tensors[0])
    return _with(output, key, _told(output[key], number, _ENDS, _BACKPROPAGATED))


def _told(tensor: Tensor, number: int, value: int, gradient: int) -> Tensor:
    if torch.is_grad_enabled() and tensor.requires_grad:
        return _Seen.apply(tensor, number, value, gradient)  # type: ignore[no-any-return, no-untyped-call]
    torch.ops.megalens.seen(tensor, number, value)
    return tensor


def _with(output: Any, key: Any, new: Tensor) -> Any:
    if isinstance(output, dict):
        # In place, so that it stays the class that it is.
        output[key] = new
        return output
    made = [*output[:key], new, *output[key + 1 :]]
    # A named tuple takes its members one by one.
    return type(output)(*made) if hasattr(output, "_fields") else type(output)(made)


class _Seen(torch.autograd.Function):
    """Hands a tensor on as it is, and has the graph tell of it and of its gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, number: int, value: int, gradient: int) -> Tensor:
        ctx.told = number, gradient
        torch.ops.megalens.seen(tensor, number, value)
        # A view made here could not be changed in place by the model; this is the same memory and no view.
        same: Tensor = torch.ops.aten._unsafe_view(tensor, tensor.shape)
        return same

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        torch.ops.megalens.seen(gradient, *ctx.told)
        return gradient, None, None, None


def _run(tensor: Tensor, number: int, what: int) -> None:
    end = _ends.get(number)
    if end is not None:
        end.tell(tensor, what)


@functools.cache
def _operator() -> Any:
    """Define the operator ``megalens::seen``, once for the process."""
    try:
        from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
    except ImportError as error:
        raise TracerError(
            f"Compiled models are traced with torch 2.13 or later, got {torch.__version__}. Trace the model uncompiled."
        ) from error
    library: Any = torch.library.Library("megalens", "FRAGMENT")  # type: ignore[no-untyped-call]
    # A captured CUDA graph would run it once and never again.
    library.define("seen(Tensor tensor, int number, int what) -> ()", tags=(torch.Tag.cudagraph_unsafe,))
    library.impl("seen", _run, "CompositeExplicitAutograd")
    torch.library.register_fake("megalens::seen", lambda tensor, number, what: None, lib=library)
    _register_effectful_op(torch.ops.megalens.seen.default, _EffectType.ORDERED)
    return library
