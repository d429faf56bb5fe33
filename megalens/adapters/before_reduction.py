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
    # A torch may lack it.
    sharding = getattr(getattr(distributed, "fsdp", None), "FSDPModule", ())
    if any(isinstance(module, sharding) for module in modules):
        return BeforeReduction(_fully_sharded)
    replicas = [module for module in modules if isinstance(module, DistributedDataParallel)]
    if any(replica.gradient_as_bucket_view for replica in replicas):
        return BeforeReduction(functools.partial(_in_buckets, replicas), each_pass=True)
    return None


def stand_in(holder: Any, name: str, call: Callable[..., Any]) -> Stop:
    """Have ``call(function, *args)`` called in the place of a function of ``holder``; return what ends that.

    Whoever stands in after us keeps calling ours, which then does nothing more.
    """
    own, function = vars(holder).get(name), getattr(holder, name)
    active = True

    @functools.wraps(function)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return call(function, *args, **kwargs) if active else function(*args, **kwargs)

    def stop() -> None:
        nonlocal active
        active = False
        if vars(holder).get(name) is ours:
            if own is None:
                delattr(holder, name)
            else:
                setattr(holder, name, own)

    setattr(holder, name, ours)
    return stop


def _bucket_groups(chunk: Any) -> Iterator[Any]:
    """Give what Megatron-Core's DDP reduces together; it may lie below a wrapper."""
    while isinstance(chunk, nn.Module):
        for name in ("bucket_groups", "expert_parallel_bucket_groups"):
            for group in getattr(chunk, name, ()):
                if callable(getattr(group, "start_grad_sync", None)):
                    yield group
        chunk = getattr(chunk, "module", None)


def _megatron(groups: Sequence[Any], then: Then) -> Stop:
    """Stand in for the method that begins the reduction of these very groups."""

    def started(group: Any, start: Any, *args: Any, **kwargs: Any) -> Any:
        # Asked a second time for the first batch, it does nothing: the first answer is under way.
        if getattr(group, "grad_reduce_handle", None) is None:
            for parameter in (each for bucket in group.buckets for each in bucket.params_list):
                gradient = getattr(parameter, "main_grad", None)
                if gradient is not None:
                    then(parameter, gradient)
        return start(*args, **kwargs)

    return _all([stand_in(each, "start_grad_sync", functools.partial(started, each)) for each in groups])


def _in_buckets(replicas: Sequence[nn.Module], then: Then) -> Stop:
    """Call after each gradient is accumulated: DDP's own hooks come later."""
    parameters = dict.fromkeys(p for replica in replicas for p in replica.parameters() if p.requires_grad)
    handles = [
        parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda p: then(p, p.grad) if p.grad is not None else None
        )
        for parameter in parameters
    ]
    return _all([handle.remove for handle in handles])


def _all(stops: Sequence[Stop]) -> Stop:
    def stop() -> None:
        for each in stops:
            each()

    return stop


def _fully_sharded(then: Then) -> Stop:
    """Stand in for the function by which ``fully_shard`` reduces gradients, of any model."""
    # torch gives no hook there.
    from torch.distributed.fsdp._fully_shard import _fsdp_param_group as fsdp

    def reduced(
        reduce: Any, params: Sequence[Any], gradients: Sequence[Tensor], *args: Any, **kwargs: Any
    ) -> Any:
        for param, gradient in zip(params, gradients, strict=True):
            then(param.sharded_param, gradient)
        return reduce(params, gradients, *args, **kwargs)

    return stand_in(fsdp, "foreach_reduce", reduced)
