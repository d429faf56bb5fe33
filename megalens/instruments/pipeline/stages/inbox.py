"""Messages that wait for the operation that needs them.

A step's data, cut into micro-batches.
"""

from __future__ import annotations

import threading
from collections import deque
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
    loss_fn: Callable[[Any, Any], Tensor] | None,
    error: type[StageError],
    args_spec: Any = None,
    kwargs_spec: Any = None,
    scale: bool = True,
    keep_outputs: bool = False,
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


Key = tuple[str, int, int]
"""``F`` (activations), ``B`` (a gradient) or ``S`` (summed weight gradients), virtual stage, micro-batch."""

Spec = tuple[Any, ...]
"""Dtype, shape, and whether it takes a gradient, of each tensor of a message."""


class Arrival(NamedTuple):
    """An arrived message: tensors, or None where there is no gradient.

    Times are ns of ``perf_counter_ns``: when the receive was posted and when it was done; 0 from the same
    rank.
    """

    tensors: tuple[Tensor | None, ...]
    peer: int = -1
    posted: int = 0
    arrived: int = 0
    sequence: int = -1
    works: tuple[Any, ...] = ()


class Inbox:
    """Messages by key. The threads of the links put them in; the training thread takes them out.

    ``lock`` guards all of it, and what links share with their threads. The training thread waits on
    ``changed``, which is notified of every message and failure; ``draining`` says that it waits until
    everything is sent. ``arrivals`` are keys that came from other ranks since a dynamic order last looked.
    Without ``training`` nothing takes a gradient. ``failure`` is the global rank whose link failed first, and
    its error.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.changed = threading.Condition(self.lock)
        self.draining = False
        self.filed: dict[Key, Arrival] = {}
        self.arrivals: deque[Key] = deque()
        self._specs: dict[bool, dict[tuple[str, int], Spec]] = {True: {}, False: {}}
        self.training = True
        self.failure: tuple[int, BaseException] | None = None

    @property
    def specs(self) -> dict[tuple[str, int], Spec]:
        """By letter and virtual stage, the specs of its messages in such steps."""
        return self._specs[self.training]

    def put(self, key: Key, message: Arrival) -> None:
        with self.changed:
            self.filed[key] = message
            self.arrivals.append(key)
            self.changed.notify()

    def fail(self, peer: int, error: BaseException) -> None:
        """Note that a link failed; the first failure stays."""
        with self.changed:
            if self.failure is None:
                self.failure = peer, error
            self.changed.notify()


def shapes_text(spec: Spec) -> str:
    return ", ".join(
        f"{str(dtype).removeprefix('torch.')}[{', '.join(map(str, shape))}]" for dtype, shape, _ in spec
    )
