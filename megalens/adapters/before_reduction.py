"""The moment at which a process's own gradients are whole, and not yet reduced over data-parallel processes: with Megatron-Core's DDP and with ``fully_shard``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, nn
from torch.distributed import fsdp

__all__ = ["before_reduction"]

_START = "start_grad_sync"
_REDUCE = "foreach_reduce"
Stop = Callable[[], None]
Then = Callable[[nn.Parameter, Tensor], None]


def before_reduction(chunks: Sequence[nn.Module]) -> Callable[[Then], Stop] | None:
    """Return what takes a function to call with each parameter and this process's gradient of it, right before these are reduced, and gives back what stops that; None where neither reduces them.

    The function must not raise. Under ``fully_shard`` a gradient is that of the whole parameter.
    """
    groups = [group for chunk in chunks for group in _bucket_groups(chunk)]
    if groups:
        return functools.partial(_megatron, groups)
    if any(isinstance(module, fsdp.FSDPModule) for chunk in chunks for module in chunk.modules()):
        return _fully_sharded
    return None


def _bucket_groups(chunk: Any) -> Iterator[Any]:
    """Give what Megatron-Core's DDP reduces together; it may lie below what wraps it."""
    while isinstance(chunk, nn.Module):
        for name in ("bucket_groups", "expert_parallel_bucket_groups"):
            for group in getattr(chunk, name, ()):
                if callable(getattr(group, _START, None)):
                    yield group
        chunk = getattr(chunk, "module", None)


def _megatron(groups: Sequence[Any], then: Then) -> Stop:
    """Stand in for the method of each of these very groups that begins their reduction."""
    stops = [_stand_in(group, then) for group in groups]

    def stop() -> None:
        for each in stops:
            each()

    return stop


def _stand_in(group: Any, then: Then) -> Stop:
    start = getattr(group, _START)
    active = True

    @functools.wraps(start)
    def started(*args: Any, **kwargs: Any) -> Any:
        # Asked a second time for the first batch, it does nothing: the first answer is under way.
        if active and getattr(group, "grad_reduce_handle", None) is None:
            for bucket in group.buckets:
                for parameter in bucket.params_list:
                    gradient = getattr(parameter, "main_grad", None)
                    if gradient is not None:
                        then(parameter, gradient)
        return start(*args, **kwargs)

    def stop() -> None:
        nonlocal active
        active = False
        if vars(group).get(_START) is started:
            delattr(group, _START)

    setattr(group, _START, started)
    return stop


def _fully_sharded(then: Then) -> Stop:
    """Stand in for the function by which ``fully_shard`` reduces gradients, whoever's they are."""
    # torch gives no hook there.
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as place

    reduce = getattr(place, _REDUCE)
    active = True

    @functools.wraps(reduce)
    def reduced(params: Sequence[Any], gradients: Sequence[Tensor], *args: Any, **kwargs: Any) -> Any:
        if active:
            for param, gradient in zip(params, gradients, strict=True):
                then(param.sharded_param, gradient)
        return reduce(params, gradients, *args, **kwargs)

    def stop() -> None:
        nonlocal active
        active = False
        if getattr(place, _REDUCE) is reduced:
            setattr(place, _REDUCE, reduce)

    setattr(place, _REDUCE, reduced)
    return stop
