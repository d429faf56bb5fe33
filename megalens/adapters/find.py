"""Finds the adapter of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ..tracer import FLAGS, FlagPoints, ModelPoints, TracerError
from ..tracer.moments.points import MomentPoints
from .adapter import Adapter
from .megatron_core import MegatronAdapter
from .megatron_moments import megatron_moments
from .structure import GPT_TABLE, StructureAdapter
from .torch_moments import TorchMoments

ADAPTERS: tuple[Adapter | MegatronAdapter | StructureAdapter, ...] = (
    MegatronAdapter(),
    GPT_TABLE,
    # Other blocks of that kind have no such embedding.
    replace(GPT_TABLE, positions=None),
    StructureAdapter(),
)
"""The ready adapters, in the order in which they are tried."""

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
    """Return the ready adapter for ``model``, or the list of model chunks of a pipeline stage.

    Raises ``TracerError`` for a list of chunks that are not of Megatron-Core.
    """
    for adapter in ADAPTERS:
        takes = isinstance(adapter, MegatronAdapter) or isinstance(model, nn.Module)
        if takes and adapter.fits(model):  # type: ignore[arg-type]
            return adapter
    if isinstance(model, nn.Module):
        return ADAPTERS[-1]
    kinds = ", ".join(sorted({type(chunk).__name__ for chunk in model})) or "nothing"
    raise TracerError(
        f"A list of model chunks is traced where they are GPT models of Megatron-Core; this one holds "
        f"{kinds}."
    )


def find_points(model: nn.Module | Sequence[nn.Module], adapter: Any = None) -> ModelPoints:
    """Return what is supposed of ``model`` before its first forward pass, with what will watch that.

    ``adapter`` is the user's own, which the pass is to confirm. Nothing is known of a list of chunks that are
    not of Megatron-Core, with the reason. Raises ``TracerError`` for an adapter that does not fit.
    """
    try:
        adapter_of = adapter or find_adapter(model)
    except TracerError as error:
        chunks = (model,) if isinstance(model, nn.Module) else tuple(model)
        unknown = {flag: FlagPoints(reason=str(error)) for flag in FLAGS}
        return ModelPoints(chunks, {"name": type(chunks[0]).__name__, "layers": 0}, unknown)
    points: ModelPoints = adapter_of.points(model)  # type: ignore[arg-type]
    points.table = _points_table
    if adapter is not None and not isinstance(adapter, Adapter):
        # One of another kind answers for itself.
        points.told = points.watch is None
        return points
    points.told = adapter is not None
    if points.model.get("adapter") != MegatronAdapter.name:
        points.watch = lambda newest: _pass_watch(newest, adapter)
    return points


# What watches the first pass is loaded with that pass, not with the training side.
def _points_table(points: ModelPoints) -> list[Any]:
    from .watch_points import points_table

    return [*points_table(points)]


def _pass_watch(points: ModelPoints, adapter: Any) -> Any:
    from .watch import PassWatch

    return PassWatch(points, adapter)


def find_moments(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Any,
    points: ModelPoints,
    adapter: Any = None,
    *,
    every_module: bool = False,
) -> MomentPoints:
    """Return what there is to measure in ``model``; raises ``TracerError`` when that is unknown.

    ``adapter`` is the user's own, which is asked first where it has ``statistics_points``.
    """
    own = getattr(adapter, "statistics_points", None)
    plain = TorchMoments(points, every_module=every_module)
    found: MomentPoints | None = own(model, optimizer) if own is not None else None
    if found is None:
        found = megatron_moments(model, optimizer)
    if found is not None and every_module:
        raise TracerError("sites='all' is for models of plain PyTorch.")
    if found is None:
        if not isinstance(model, nn.Module):
            raise TracerError(
                "Statistics are logged of a torch.nn.Module, or of the model chunks of a Megatron-Core "
                "pipeline stage; these are neither."
            )
        found = plain.of(model)
    made = {point.stat for point in found.features} | found.elsewhere
    nowhere = {stat: reason for stat, reason in _NOWHERE.items() if stat not in made}
    return replace(found, unavailable={**nowhere, **found.unavailable})
