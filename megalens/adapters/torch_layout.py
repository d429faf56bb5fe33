"""How ``parallelize_module`` lays a module's input and output out over the tensor-parallel ranks."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from ..tracer import Shards

__all__ = ["cuts_input", "cuts_output", "input_shards", "output_shards"]


def output_shards(*modules: nn.Module | None) -> Shards:
    """Return how the output of the first of ``modules`` that says so is cut; ``none`` where no one does.

    A parallel style turns what its module gives into a plain tensor, and the layout is then known to the style alone, which keeps it in the hook that it puts on
    the module. Tensors that are still distributed when they are seen tell it themselves, and come before this.
    """
    for module in modules:
        placement = None if module is None else _output(module)
        if placement is not None:
            return _shards(placement)
    return "none"


def input_shards(module: nn.Module) -> Shards:
    """Return how what is given to a module is cut, before its parallel style takes it: so compiled code has it."""
    placement = _input(module)
    return "none" if placement is None else _shards(placement)


def cuts_output(module: nn.Module) -> bool:
    """Return whether the parallel style of ``module`` leaves each rank a piece of its output, along any axis."""
    placement = _output(module)
    return placement is not None and bool(placement.is_shard())


def cuts_input(module: nn.Module) -> bool | None:
    """Return whether each rank has a piece of what is given to ``module``, before its parallel style takes it; None where no style says so."""
    placement = _input(module)
    return None if placement is None else bool(placement.is_shard())


def _shards(placement: Any) -> Shards:
    if not placement.is_shard() or placement.dim == 0:
        return "none"
    return "sequence" if placement.dim == 1 else "features"


def _input(module: nn.Module) -> Any | None:
    return _declared(module._forward_pre_hooks.values(), ("input_layouts", "input_kwarg_layouts"))


def _output(module: nn.Module) -> Any | None:
    # Of ColwiseParallel, RowwiseParallel and SequenceParallel; of PrepareModuleOutput.
    return _declared(reversed(list(module._forward_hooks.values())), ("desired_output_layouts",))


def _declared(hooks: Iterable[Any], names: Sequence[str]) -> Any | None:
    for hook in hooks:
        for cell in getattr(hook, "__closure__", None) or ():
            held = cell.cell_contents
            found: list[Any] = (
                [held.args[0]]
                if isinstance(held, functools.partial) and held.args
                else [getattr(held, name, None) for name in names]
            )
            for layouts in found:
                placement = _first(layouts)
                if placement is not None:
                    return placement
    return None


def _first(layouts: Any) -> Any | None:
    if isinstance(layouts, dict):
        layouts = tuple(layouts.values())
    first = layouts[0] if isinstance(layouts, (tuple, list)) and layouts else layouts
    return first if hasattr(first, "is_shard") else None
