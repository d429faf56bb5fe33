"""The first forward pass of a model is watched: what it does decides where its tensors can be seen.

::

    points as modules tell ─▶ first pass, watched ─▶ points as seen ─▶ settings, hooks, announcement

Where nothing is compiled it is the training's own pass. Compiled code cannot be watched, so there the pass is
computed once more, before the training's own, by the interpreter, without gradients, with the random numbers
and the buffers put back afterwards. Nothing that goes wrong here reaches the training.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from .errors import describe_error
from .graph_probes import is_compiled
from .own_hooks import OwnHook
from .points import IPassWatch, ModelPoints

_COMPILED = "_compiled_call_impl"
_PLAIN = (Tensor, int, float, str, bool, torch.dtype, torch.device, type(None))
"""What a pass can be given a second time: it holds nothing that the first time has changed."""


class FirstPass:
    """Watches one forward pass of a model whose adapter wants to see one.

    Parameters
    ----------
    learned : callable
        Takes the flags and layers whose place was another one than supposed, once ``points`` are as seen; in
        the training thread, before anything else runs after the pass.
    apart : callable
        A context in which a pass is none of the training's, for whoever counts passes.
    """

    def __init__(
        self,
        points: ModelPoints,
        warn: Callable[[str], None],
        learned: Callable[[Collection[tuple[str, int]]], None],
        apart: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._points, self._warn, self._learned, self._apart = points, warn, learned, apart
        self._handles: list[Any] = []
        self._watch: IPassWatch | None = None
        self._left: IPassWatch | None = None
        """Of a pass that raised: its hooks are taken off before the next."""
        self._depth = 0
        self.fresh = False
        """Whether the points have changed since somebody has followed them."""

    def open(self) -> None:
        """Watch the next pass, unless one was watched. Safe twice."""
        if self._handles or self._points.watch is None:
            return
        compiled = is_compiled(self._points.roots)
        for root in self._points.roots:
            if getattr(root, _COMPILED, None) is not None:
                self._handles.append(_CompiledCall(root, self._looked_before))
            elif compiled:
                before = OwnHook(self._looked_before)
                self._handles.append(root.register_forward_pre_hook(before, prepend=True, with_kwargs=True))
            else:
                self._handles.append(root.register_forward_pre_hook(OwnHook(self._begins), prepend=True))
                after = OwnHook(self._ends)
                self._handles.append(root.register_forward_hook(after, prepend=True, always_call=True))

    def close(self) -> None:
        """Take the hooks off. Safe twice."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        left, self._left = self._left, None
        if left is not None:
            left.end()

    def _begins(self, module: nn.Module, args: Any) -> None:
        if self._watch is not None:
            # A model that calls itself.
            self._depth += 1
            return
        make = self._points.watch
        if make is None or torch.compiler.is_compiling():
            return
        try:
            left, self._left = self._left, None
            if left is not None:
                left.end()
            watch = make()
            watch.begin()
        except Exception as error:
            self._give_up(error)
        else:
            self._watch = watch

    def _ends(self, module: nn.Module, args: Any, output: Any) -> None:
        # Also called for a pass that raised, of which ``output`` is None: what it showed is incomplete.
        if self._depth:
            self._depth -= 1
            return
        watch, self._watch = self._watch, None
        if watch is None:
            return
        try:
            if output is None:
                # Hooks that are being called may not be taken off.
                watch.stop()
                self._left = watch
                return
            watch.end()
            seen = watch.finish()
            if watch.failed is not None:
                self._give_up(watch.failed)
                return
            self._points.learn(seen)
            changed = watch.changed
        except Exception as error:
            self._give_up(error)
            return
        self.close()
        self.fresh = True
        self._learned(changed)

    def _looked_before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Compute the pass once more before the training does, watched."""
        if self._watch is not None or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return
        if not all(isinstance(leaf, _PLAIN) for leaf in _pytree.tree_leaves((args, kwargs))):
            self._give_up("it is given objects that a pass may change, and its code is compiled")
            return
        output: Any = None
        try:
            with self._apart(), _put_back(module):
                self._begins(module, args)
                try:
                    output = module(*args, **kwargs)
                finally:
                    self._ends(module, args, output)
        except Exception as error:
            self._give_up(error)

    def _give_up(self, why: Exception | str) -> None:
        self.close()
        reason = why if isinstance(why, str) else describe_error(why)
        lost = self._points.give_up_watching(reason)
        self._warn(f"What the model does in a forward pass could not be watched: {reason}.")
        self.fresh = True
        self._learned(lost)


class _CompiledCall:
    """In place of what a module calls after ``module.compile()``, until it is removed."""

    def __init__(self, root: nn.Module, before: Callable[[nn.Module, Any, Any], None]) -> None:
        self._root, self._before = root, before
        self._compiled: Any = getattr(root, _COMPILED)
        self._called: Any = self._call
        setattr(root, _COMPILED, self._called)

    def _call(self, *args: Any, **kwargs: Any) -> Any:
        setattr(self._root, _COMPILED, None)
        try:
            self._before(self._root, args, kwargs)
        finally:
            setattr(self._root, _COMPILED, self._called)
        return self._compiled(*args, **kwargs)

    def remove(self) -> None:
        self._called = self._compiled
        setattr(self._root, _COMPILED, self._compiled)


@contextlib.contextmanager
def _put_back(module: nn.Module) -> Iterator[None]:
    """Leave, afterwards, random numbers and buffers as they were; inside, nothing runs compiled."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices), torch.no_grad(), torch.compiler.set_stance("force_eager"):
        try:
            yield
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
