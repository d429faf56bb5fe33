"""How ``parallelize_module`` lays a module's output out over the tensor-parallel ranks."""

from __future__ import annotations

import functools
from typing import Any

from torch import nn

from ..tracer import Shards

__all__ = ["output_shards"]


def output_shards(*modules: nn.Module | None) -> Shards:
    """Return how the output of the first of ``modules`` that says so is cut; ``none`` where no one does.

    A parallel style turns what its module gives into a plain tensor, and the layout is then known to the style alone, which keeps it in the hook that it puts on
    the module. Tensors that are still distributed when they are seen tell it themselves, and come before this.
    """
    for module in modules:
        placement = None if module is None else _declared(module)
        if placement is None:
            continue
        if not placement.is_shard() or placement.dim == 0:
            return "none"
        return "sequence" if placement.dim == 1 else "features"
    return "none"


def _declared(module: nn.Module) -> Any | None:
    for hook in reversed(list(module._forward_hooks.values())):
        for cell in getattr(hook, "__closure__", None) or ():
            held = cell.cell_contents
            # Of ColwiseParallel, RowwiseParallel and SequenceParallel; of PrepareModuleOutput.
            layouts = (
                held.args[0]
                if isinstance(held, functools.partial) and held.args
                else getattr(held, "desired_output_layouts", None)
            )
            first = layouts[0] if isinstance(layouts, (tuple, list)) and layouts else layouts
            if hasattr(first, "is_shard"):
                return first
    return None
