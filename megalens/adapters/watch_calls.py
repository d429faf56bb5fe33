"""Calls of modules in a watched pass, and the tensors at their borders."""

from __future__ import annotations

from torch import Tensor, nn

from .watch_flow import Flow
from .watch_trail import Made, Trail


class Call:
    """One call of a module: what was known of the tensors that it was given, and of those that it gave."""

    __slots__ = ("gave", "given", "module", "number", "parent", "products")

    def __init__(self, module: nn.Module, parent: Call | None, number: int) -> None:
        self.module, self.parent, self.number = module, parent, number
        self.given: list[Seen] = []
        self.gave: list[Seen] = []
        self.products: list[Made] = []

    def inside(self, outer: Call) -> bool:
        """Return whether this call happened within ``outer``, or is it."""
        call: Call | None = self
        while call is not None:
            if call is outer:
                return True
            call = call.parent
        return False


class Seen:
    """One tensor at the border of a module."""

    __slots__ = ("item", "key", "keyword", "shape", "trail")

    def __init__(self, flow: Flow, tensor: Tensor, item: int, keyword: str | None = None) -> None:
        self.item, self.keyword = item, keyword
        self.trail: Trail | None = flow.of(tensor)
        self.key = flow.key(tensor)
        self.shape = tuple(tensor.shape)
