"""The moment at which a process's own gradients are complete, before their data-parallel reduction.

It is known with Megatron-Core's DDP, with ``fully_shard``, and with torch's DDP where gradients lie in its
buckets.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ..tracer.moments.points import BeforeReduction

_START = "start_grad_sync"
_REDUCE = "foreach_reduce"
Stop = Callable[[], None]
Then = Callable[[nn.Parameter, Tensor], None]


def before_reduction(chunks: Sequence[nn.Module]) -> BeforeReduction | None:
    """Return the moment; None where none of these reduces gradients.

    What is called then must not raise. Under ``fully_shard`` a gradient is that of the complete parameter.
    """
    groups = [group for chunk in chunks for group in _bucket_groups(chunk)]
    if groups:
        return BeforeReduction(functools.partial(_megatron, groups))
    modules = [module for chunk in chunks for module in chunk.modules()]
    if any(isinstance(module, _sharding()) for module in modules):
        return BeforeReduction(_fully_sharded)
    replicas = [module for module in modules if isinstance(module, DistributedDataParallel)]
    if any(replica.gradient_as_bucket_view for replica in replicas):
        return BeforeReduction(functools.partial(_in_buckets, replicas), each_pass=True)
    return None


def _sharding() -> tuple[type, ...]:
    """Return what ``fully_shard`` makes of a module; nothing with a torch that lacks it."""
    kind = getattr(getattr(distributed, "fsdp", None), "FSDPModule", None)
    return () if kind is None else (kind,)


def _bucket_groups(chunk: Any) -> Iterator[Any]:
    """Give what Megatron-Core's DDP reduces together; it may lie below a wrapper."""
    while isinstance(chunk, nn.Module):
        for name in ("bucket_groups", "expert_parallel_bucket_groups"):
            for group in getattr(chunk, name, ()):
                if callable(getattr(group, _START, None)):
                    yield group
        chunk = getattr(chunk, "module", None)


def _megatron(groups: Sequence[Any], then: Then) -> Stop:
    """Replace, on each of these very groups, the method that begins their reduction."""
    stops = [_replaced(group, then) for group in groups]

    def stop() -> None:
        for each in stops:
            each()

    return stop


def _replaced(group: Any, then: Then) -> Stop:
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


def _in_buckets(replicas: Sequence[nn.Module], then: Then) -> Stop:
    """Call after each gradient is accumulated: DDP's own hooks come later."""
    parameters = dict.fromkeys(p for replica in replicas for p in replica.parameters() if p.requires_grad)
    handles = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda p: then(p, p.grad) if p.grad is not None else None
        )
        for parameter in parameters
    ]

    def stop() -> None:
        for handle in handles:
            handle.remove()

    return stop


def _fully_sharded(then: Then) -> Stop:
    """Replace the function by which ``fully_shard`` reduces gradients, of any model."""
    # torch gives no hook there.
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp

    reduce = getattr(fsdp, _REDUCE)
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
        if getattr(fsdp, _REDUCE) is reduced:
            setattr(fsdp, _REDUCE, reduce)

    setattr(fsdp, _REDUCE, reduced)
    return stop
