"""Finding the adapter of a model, or saying what to fill in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ..tracer import ModelPoints, TracerError
from ..tracer.moments.points import MomentPoints
from .adapter import Adapter
from .megatron_core import MegatronAdapter
from .megatron_moments import MegatronMoments
from .plain_torch import GPT_TABLE
from .sketch import sketch
from .structure import StructureAdapter
from .torch_moments import TorchMoments
from .unwrap import unwrapped

__all__ = ["ADAPTERS", "find_adapter", "find_moments"]

ADAPTERS: tuple[Adapter | MegatronAdapter | StructureAdapter, ...] = (
    MegatronAdapter(),
    GPT_TABLE,
    # Other blocks of that kind have no such embedding.
    replace(GPT_TABLE, positions=None),
    StructureAdapter(),
)
"""The ready adapters, in the order in which they are tried."""
_LINES = 60
_NOWHERE = {
    **dict.fromkeys(
        ("attention_entropy", "attention_max"),
        "In this model neither attention probabilities nor queries and keys of one shape were found.",
    ),
    **dict.fromkeys(
        ("router_entropy", "router_similarity"), "In this model no router of a mixture of experts was found."
    ),
}


def find_adapter(model: nn.Module | Sequence[nn.Module]) -> Adapter | MegatronAdapter | StructureAdapter:
    """Return the ready adapter that fits ``model``, or the list of model chunks of a pipeline stage.

    Raises
    ------
    TracerError
        When none does, with the model's module names and the table to fill in.
    """
    for adapter in ADAPTERS:
        if isinstance(adapter, MegatronAdapter):
            if adapter.fits(model):
                return adapter
        elif isinstance(model, nn.Module) and adapter.fits(model):
            return adapter
    if not isinstance(model, nn.Module):
        kinds = ", ".join(sorted({type(chunk).__name__ for chunk in model})) or "nothing"
        raise TracerError(
            f"A list of model chunks is traced where they are GPT models of Megatron-Core; this one holds {kinds}."
        )
    lines = list(_outline(model, 1))
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"  … and {len(lines) - _LINES} more"]
    names = "\n".join(lines) or "  (no submodules)"
    raise TracerError(
        f"Megalens does not know where the trace points of {type(model).__name__} are: its structure does not tell. Its modules are:\n"
        f"{names}\n"
        "Pass where they are as megalens.trace(model, adapter=adapter). This is what can be told; fill in the comments as far as the model has such modules:\n"
        f"{sketch(unwrapped(model))}"
    )


def find_moments(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Any,
    points: ModelPoints,
    adapter: Any = None,
    *,
    every_module: bool = False,
) -> MomentPoints:
    """Return what there is to measure in ``model``.

    Parameters
    ----------
    model, optimizer
        As :func:`megalens.log_statistics` takes them.
    points : ModelPoints
        Where the layers are and where this process stands.
    adapter : optional
        One of the user's own, which is asked first where it has ``statistics_points``.
    every_module : bool
        As for :class:`TorchMoments`.

    Raises
    ------
    TracerError
        When nobody knows.
    """
    own = [adapter] if hasattr(adapter, "statistics_points") else []
    plain = TorchMoments(points, every_module=every_module)
    for each in (*own, MegatronMoments(), plain):
        found: MomentPoints | None = each.statistics_points(model, optimizer)
        if found is not None:
            if every_module and each is not plain:
                raise TracerError("sites='all' is for models of plain PyTorch.")
            made = {point.stat for point in found.features}
            nowhere = {stat: reason for stat, reason in _NOWHERE.items() if stat not in made}
            return replace(found, unavailable={**nowhere, **found.unavailable})
    raise TracerError(
        "Statistics are logged of a torch.nn.Module, or of the model chunks of a Megatron-Core pipeline stage; these are neither."
    )


def _outline(module: nn.Module, depth: int) -> Iterator[str]:
    """Give the module tree indented; of a list of like modules only the first is opened."""
    children = list(module.named_children())
    index = 0
    while index < len(children):
        name, child = children[index]
        last = index
        if name.isdecimal():
            while last + 1 < len(children) and type(children[last + 1][1]) is type(child):
                last += 1
        label = name if last == index else f"{name} to {children[last][0]}"
        yield f"{'  ' * depth}{label}: {type(child).__name__}"
        yield from _outline(child, depth + 1)
        index = last + 1
