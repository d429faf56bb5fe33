"""A step's data, cut into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.distributed.pipelining.microbatch import split_args_kwargs_into_chunks
from torch.utils._pytree import tree_leaves

from ..errors import StageError


class StepBatch(NamedTuple):
    """A step's data on this rank, by micro-batch."""

    args: Sequence[tuple[Any, ...]]
    kwargs: Sequence[dict[str, Any]]
    loss: Callable[[Any, int], Tensor] | None
    """Computes the loss of an output and the micro-batch's number."""
    scale: float
    """Weight of each micro-batch's loss."""
    keep_outputs: bool


def cut_batch(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    target: Any,
    micro_batches: int,
    *,
    args_spec: Any,
    kwargs_spec: Any,
    loss_fn: Callable[[Any, Any], Tensor] | None,
    scale: bool,
    keep_outputs: bool,
    error: type[StageError],
) -> StepBatch:
    """Return a step's data by micro-batch.

    Tensors are cut along their first dimension, or as ``args_spec`` and ``kwargs_spec`` say in torch's terms;
    the rest is repeated. ``target`` is None where this rank computes no loss. ``scale``: the gradient is that
    of the mean of the losses, not of their sum. Raises ``error`` with the code ``shape`` when something
    cannot be cut into equal parts.
    """
    if args_spec is None:
        _check(args, "The batch", micro_batches, error)
    if kwargs_spec is None:
        _check(kwargs, "A keyword argument", micro_batches, error)
    _check(target, "target", micro_batches, error)
    if args or kwargs:
        cut_args, cut_kwargs = split_args_kwargs_into_chunks(
            args, dict(kwargs), micro_batches, args_spec, kwargs_spec
        )
    else:
        cut_args, cut_kwargs = [()] * micro_batches, [{}] * micro_batches
    loss = None
    if loss_fn is not None and target is not None:
        targets, _ = split_args_kwargs_into_chunks((target,), None, micro_batches)

        def loss(output: Any, number: int) -> Tensor:
            return loss_fn(output, targets[number][0])

    return StepBatch(cut_args, cut_kwargs, loss, 1 / micro_batches if scale else 1.0, keep_outputs)


def _check(given: Any, what: str, micro_batches: int, error: type[StageError]) -> None:
    for each in tree_leaves(given):
        if isinstance(each, Tensor) and (each.dim() == 0 or each.size(0) % micro_batches):
            got = f"{each.size(0)} samples" if each.dim() else "a tensor without dimensions"
            raise error(
                f"{what} must divide into {micro_batches} equal micro-batches, got {got}: give as many "
                f"samples as a multiple of {micro_batches}, or another number of micro-batches.",
                code="shape",
            )
