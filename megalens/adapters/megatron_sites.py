"""Which modules of a Megatron-Core model are measured at their ends, and which of the tensor-parallel processes counts an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..tracer.moments.points import ResidualPoint, SitePoint
from .megatron_names import MegatronModule
from .megatron_ranks import MegatronRanks

__all__ = ["residual_points", "site_points"]


class _Cut(Enum):
    """What a tensor-parallel process has of a tensor."""

    PIECE = "a piece of its own"
    WHOLE = "the same as the others"
    SUMMAND = "a part of a sum, which no process has"


_PIECE, _WHOLE, _SUMMAND = _Cut.PIECE, _Cut.WHOLE, _Cut.SUMMAND


@dataclass(frozen=True)
class _Ends:
    """How a module's ends are laid out. A gradient is laid out like its tensor where it is None."""

    input: _Cut
    output: _Cut
    input_gradient: _Cut | None = None
    output_gradient: _Cut | None = None


def site_points(modules: Iterable[MegatronModule], ranks: MegatronRanks) -> Iterator[SitePoint]:
    """Give the linear layers, routers and embeddings of which this process counts an end.

    Of those that tensor parallelism cuts, a column-parallel layer gives pieces unless it gathers them, a row-parallel one takes pieces; sequence parallelism makes pieces of the other end. Each process counts
    its pieces, the first of the group what all have. What is only a part of a sum (where experts are tensor parallel, the output of their second layer and the gradient at the input of their first one) is
    no tensor of the model and not measured.
    """
    for at in modules:
        ends = _ends(at)
        if ends is None:
            continue
        rank, size = (ranks.expert_tp, ranks.expert_tp_size) if at.is_expert else (ranks.tp, ranks.tp_size)
        if size == 1:
            ends = _Ends(_PIECE, _PIECE)
        logits = at.name.split(".")[-1] == "output_layer"
        counts_input, counts_output = (_counts(end, rank) for end in (ends.input, ends.output))
        if not (counts_input or counts_output):
            continue
        yield SitePoint(
            at.name,
            at.module,
            counts_input=counts_input,
            counts_output=counts_output,
            logs_input=ends.input is not _SUMMAND,
            logs_output=ends.output is not _SUMMAND and not logits,
            logs_input_gradient=_differs(ends.input_gradient),
            logs_output_gradient=False if logits else _differs(ends.output_gradient),
        )


def residual_points(modules: Iterable[MegatronModule], ranks: MegatronRanks) -> Iterator[ResidualPoint]:
    """Give the outputs of this stage's layers, and the input of the model's first one. Those of multi-token prediction are left out."""
    for at in modules:
        stack, _, number = at.name.rpartition(".")
        layer_number = getattr(at.module, "layer_number", None)
        if not number.isdecimal() or not isinstance(layer_number, int) or "mtp" in at.name:
            continue
        if ranks.tp > 0 and not _sequence_parallel(at.module):
            continue
        if layer_number == 1:
            block = stack.rpartition(".")[0]
            yield ResidualPoint(f"{block}/input0" if block else "input0", at.module, "input")
        yield ResidualPoint(f"{at.name}/output0", at.module, "output")


def _counts(end: _Cut, rank: int) -> bool:
    # The gradient of a summand is whole: the first counts it.
    return end is _PIECE or rank == 0


def _differs(gradient: _Cut | None) -> bool | None:
    return None if gradient is None else gradient is not _SUMMAND


def _ends(at: MegatronModule) -> _Ends | None:
    """Return how a module's ends are laid out where tensor parallelism is on; None for modules that are no site."""
    module: Any = at.module
    # By name, so that neither Megatron-Core nor Transformer Engine is imported, and a subclass of one's own is found.
    kinds = {kind.__name__ for kind in type(module).__mro__}
    along = _PIECE if _sequence_parallel(module) else _WHOLE
    # Whose processes exchange nothing themselves: what is around them gathers what they take and sums what they give.
    alone = (
        at.is_expert
        or getattr(module, "explicit_expert_comm", False)
        or getattr(module, "parallel_mode", "") is None
    )
    if any("ColumnParallelLinearGathered" in kind for kind in kinds):
        return _Ends(along, along)
    if any("ColumnParallel" in kind for kind in kinds):
        output = _WHOLE if getattr(module, "gather_output", False) else _PIECE
        if alone:
            return _Ends(_WHOLE, output, input_gradient=_SUMMAND)
        unsummed = getattr(module, "disable_grad_reduce", False)
        return _Ends(along, output, input_gradient=_SUMMAND if unsummed else None)
    if any("RowParallel" in kind for kind in kinds):
        taken = _PIECE if getattr(module, "input_is_parallel", True) else _WHOLE
        return _Ends(taken, _SUMMAND, output_gradient=_WHOLE) if alone else _Ends(taken, along)
    if "VocabParallelEmbedding" in kinds:
        cut = _PIECE if getattr(module, "reduce_scatter_embeddings", False) else _WHOLE
        return _Ends(_WHOLE, cut)
    if kinds & {"Router", "TELinear"}:
        return _Ends(along, along)
    if kinds & {"Linear", "Embedding"}:
        marked = any(getattr(own, "sequence_parallel", False) for own in module.parameters(recurse=False))
        return _Ends(_PIECE, _PIECE) if marked else _Ends(_WHOLE, _WHOLE)
    return None


def _sequence_parallel(module: Any) -> bool:
    return bool(getattr(getattr(module, "config", None), "sequence_parallel", False))
