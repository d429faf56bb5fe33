"""What hears of compiled code while it runs, and who wants to be told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .errors import said
from .graph_operator import BEGINS, BEGINS_WITH_GRADIENTS, ENDS, GRADIENT, NO_TENSOR, ODD_OUTPUT, SUBCLASS

__all__ = ["GraphEnd", "GraphPass", "GraphRoot"]

_LOST = {
    NO_TENSOR: "compiled code has no tensor there",
    SUBCLASS: "the tensor is a DTensor or its like, of which operators in compiled code know nothing",
    ODD_OUTPUT: "the module gives a tuple of a class of its own",
}
_MOST_OPEN = 64
"""Passes that wait for their backward pass; of those of a pass that has none the oldest are forgotten."""


class GraphEnd:
    """One tensor at the border of one module, or all that it is given or gives, and who wants it while compiled code runs.

    Parameters
    ----------
    warn : callable
        Takes a sentence for the user.
    whole : {'input', 'output'}, optional
        Whether it is all that the module is given, as ``(args, kwargs)``, or gives, with None for what is no tensor.

    Attributes
    ----------
    values, gradients : list of callable
        Take the tensor, and what is backpropagated to it. It is the graph's own memory, which is used again: keep a copy.
    told : bool
        Whether code that has this probe ran so far.
    lost : str or None
        Why it has nothing to tell, in words.
    """

    def __init__(self, warn: Callable[[str], None], whole: str | None = None) -> None:
        self.whole = whole
        self.values: list[Callable[[Any], None]] = []
        self.gradients: list[Callable[[Tensor], None]] = []
        self.told = False
        self.lost: str | None = None
        self._warn = warn

    def watch(
        self, values: Callable[[Any], None] | None, gradients: Callable[[Tensor], None] | None = None
    ) -> _Watch:
        """Tell of the tensor from now on, until what this returns is removed."""
        return _Watch([(self.values, values), (self.gradients, gradients)])

    def hear(self, tensors: Sequence[Tensor], what: int, names: str) -> None:
        """Tell whoever watches. Never raises: an error is said, and the step goes on."""
        self.told, self.lost = True, _LOST.get(what)
        if self.lost is not None:
            return
        seen = tensors[0] if self.whole is None else self._whole(tensors, names)
        for watcher in self.gradients if what == GRADIENT else self.values:
            try:
                watcher(seen)
            except Exception as error:
                self._warn(f"A probe in compiled code failed: {said(error)}")

    def _whole(self, tensors: Sequence[Tensor], names: str) -> Any:
        if not names:
            return tensors[0]
        args: list[Tensor | None] = []
        kwargs: dict[str, Tensor] = {}
        for name, tensor in zip(names.split(","), tensors, strict=True):
            if name.isdigit():
                args += [*[None] * (int(name) - len(args)), tensor]
            else:
                kwargs[name] = tensor
        return (args, kwargs) if self.whole == "input" else args or kwargs


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
        self.begins: list[Callable[[], None]] = []
        self.ends: list[Callable[[Any], None]] = []
        self._open: list[GraphPass] = []
        self._warn = warn

    def watch(self, begins: Callable[[], None], ends: Callable[[Any], None]) -> _Watch:
        """Tell of passes from now on, until what this returns is removed."""
        return _Watch([(self.begins, begins), (self.ends, ends)])

    def hear(self, tensors: Sequence[Tensor], what: int, names: str) -> None:
        """Tell whoever watches. Never raises: an error is said, and the step goes on."""
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
