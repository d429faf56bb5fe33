"""The moment in a Megatron-Core step at which gradients are reduced, unscaled and finite, but unclipped."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from torch import Tensor

from .before_reduction import Stop, stand_in

_PREPARE = "prepare_grads"
_flat = chain.from_iterable


@dataclass(frozen=True)
class OptimizerParam:
    """What this process's optimizer has of a parameter: the whole, or ``part`` of it when flat.

    ``tensor`` are the weights that it updates; their ``grad`` (or ``decoupled_grad``) is the gradient that it
    applies. It is None where there is nothing. ``owned`` says that the data-parallel processes have different
    values or parameters, so that each counts its own; otherwise all have the same.
    """

    tensor: Tensor | None
    owned: bool = False
    part: slice | None = None

    def value(self) -> Tensor | None:
        """Return the weights, dequantised where Transformer Engine stores codes."""
        if self.tensor is None:
            return None
        if type(self.tensor).__module__.startswith("transformer_engine."):
            return self.tensor.dequantize()
        return self.tensor.detach()

    def gradient(self) -> Tensor | None:
        """Return the gradient, from Megatron's buffer where no optimizer of Megatron took it from there."""
        for name in ("decoupled_grad", "grad", "main_grad"):
            found: Tensor | None = getattr(self.tensor, name, None)
            if found is not None:
                return found
        return None


def leaf_optimizers(optimizer: Any) -> list[Any]:
    """Return the optimizers that a chained one or a list is made of, or the optimizer itself."""
    several = isinstance(optimizer, (list, tuple))
    chained = optimizer if several else getattr(optimizer, "chained_optimizers", None)
    if chained is None:
        return [] if optimizer is None else [optimizer]
    return [leaf for one in chained for leaf in leaf_optimizers(one)]


def optimizer_params(optimizer: Any) -> dict[int, OptimizerParam]:
    """Return what ``optimizer`` has, by the ``id`` of the model's parameter; frozen ones are absent."""
    lists = (getattr(optimizer, name, None) for name in ("dp_cp_params_list", "expt_dp_params_list"))
    # A layer-wise optimizer deals whole parameters out to the data-parallel processes: what this one did not
    # get, another holds.
    dealt = {id(parameter) for of_kind in lists if of_kind for one in of_kind for parameter in one}
    found = {key: OptimizerParam(None, owned=True) for key in dealt}
    for leaf in leaf_optimizers(optimizer):
        if getattr(leaf, "buffers", None) is not None and hasattr(leaf, "model_float16_groups"):
            found.update(_sharded(leaf))
            continue
        if hasattr(leaf, "fp32_from_float16_groups"):
            fp32 = [*_flat(leaf.fp32_from_fp32_groups)]
            parameters = [*_flat(leaf.float16_groups), *fp32]
            tensors = [*_flat(leaf.fp32_from_float16_groups), *fp32]
        else:
            groups = getattr(leaf, "param_groups", ())
            parameters = tensors = [parameter for group in groups for parameter in group["params"]]
        for parameter, tensor in zip(parameters, tensors, strict=True):
            found[id(parameter)] = OptimizerParam(tensor, owned=id(parameter) in dealt)
    return found


def _sharded(leaf: Any) -> Iterator[tuple[int, OptimizerParam]]:
    """Give what a distributed optimizer has: a flat piece of some parameters, nothing of others."""
    # Several instances of the optimizer hold the same; the first is counted.
    counts = not getattr(leaf, "distributed_optimizer_instance_id", 0)
    for buffer in leaf.buffers:
        for parameter in buffer.params:
            yield id(parameter), OptimizerParam(None, owned=True)
    if not counts:
        return
    groups = (
        (leaf.model_float16_groups, leaf.shard_fp32_from_float16_groups, leaf.shard_float16_groups),
        (leaf.model_fp32_groups, leaf.shard_fp32_groups, leaf.shard_fp32_groups),
    )
    for of_kind in groups:
        for parameter, main, own in zip(*map(_flat, of_kind), strict=True):
            # Where Transformer Engine's optimizer keeps the master weights to itself, the model's own are
            # what there is.
            tensor = own if main is None else main
            yield id(parameter), OptimizerParam(tensor, owned=True, part=_part(leaf, parameter))


def _part(leaf: Any, parameter: Any) -> slice | None:
    at = getattr(leaf, "model_param_gbuf_map", {}).get(parameter)
    if at is None:
        return None
    buffer, dtype, bucket = at
    values = leaf.gbuf_ranges[buffer][dtype][bucket]["param_map"][parameter]["param"]
    return slice(values.start, values.end)


def ready_moment(optimizer: Any) -> Callable[[Callable[[], None]], Stop] | None:
    """Return what calls a function whenever the gradients are ready, and gives back what stops that.

    Of Megatron-Core's optimizers it is when they have prepared gradients and found them finite, before they
    clip; one of torch's is called when the training has done all that it does to gradients. None for others.
    """
    first = optimizer[0] if isinstance(optimizer, (list, tuple)) and optimizer else optimizer
    if callable(getattr(first, _PREPARE, None)):
        return functools.partial(_when_prepared, first)
    if callable(getattr(first, "register_step_pre_hook", None)):
        return lambda then: first.register_step_pre_hook(lambda *_: then()).remove
    return None


def _when_prepared(optimizer: Any, then: Callable[[], None]) -> Stop:
    """Stand in for the method ``prepare_grads`` of this very optimizer.

    It returns what it always does: whether there was an infinite or undefined gradient, for which the step is
    skipped and ``then`` is not called. A chained optimizer asks all that it is made of, and the step is
    skipped where one of them says so; so only the outermost is replaced.
    """

    def prepared(prepare: Any, *args: Any, **kwargs: Any) -> Any:
        found_infinite = prepare(*args, **kwargs)
        if not found_infinite:
            then()
        return found_infinite

    return stand_in(optimizer, _PREPARE, prepared)
