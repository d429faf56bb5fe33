"""Collectives and messages as spans: group, peer, bytes, and how long the rank waited in them."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

from ...protocol.ranges import join_numbers, ranges_text
from ...tracer.collectives import COLLECTIVES, CollectiveHooks, Done, Replaced, tensors_of
from ...tracer.passes import after_backward
from .noted_span import Span

_OPERATIONS = (*COLLECTIVES, "all_gather_single", "reduce_scatter_single", "barrier")
_FUNCTIONAL = (
    *("all_reduce", "broadcast", "permute_tensor", "all_to_all_single"),
    *("all_gather_tensor", "all_gather_single", "reduce_scatter_tensor", "reduce_scatter_single"),
)
_ROOTS = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
"""Name of the argument with the root."""
_COALESCED, _BUFFERS = "_broadcast_coalesced", "broadcast_buffers"
"""DDP broadcasts its buffers to all replicas with this before a forward pass."""
_SENDS, _RECEIVES = ("send", "isend"), ("recv", "irecv")
_REDUCTION = "reduce_gradients"
"""DDP reduces in C++, bucket by bucket, during the backward pass; the rank waits from its end on."""


class CommunicationHooks:
    """Wraps the functions of ``torch.distributed`` while steps are timed.

    ``keep`` takes a span and must not raise; ``failed`` takes an exception of ours, which the training does
    not see.
    """

    def __init__(
        self, keep: Callable[[Span], None], failed: Callable[[Exception], None], clock: Callable[[], int]
    ) -> None:
        self._keep, self._failed, self._clock = keep, failed, clock
        self._sequences: Counter[tuple[Any, ...]] = Counter()
        self._groups: dict[str, str] = {}
        self._hooks = CollectiveHooks(self._called, _OPERATIONS, outermost=True, clock=clock)
        self._replaced = Replaced()
        # Results of functional collectives before their wait, by data address.
        self._results: dict[int, Done] = {}
        # Replicas whose backward pass reduces, with the group's text and the bytes.
        self._reducing: dict[int, tuple[str, int]] = {}
        self._replica_bytes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
        self._open = False
        self._resolve: Callable[[Any, str], Any]

    def begin(self) -> None:
        """Wrap the functions, in a job of several processes. Safe twice."""
        if self._open or not (distributed.is_available() and distributed.is_initialized()):
            return
        # Only then: the import takes its time.
        from torch.distributed import _functional_collectives as functional

        self._open = True
        self._hooks.begin()
        self._replace(DistributedDataParallel, "forward", self._replica)
        if hasattr(distributed, _COALESCED):
            self._replace(distributed, _COALESCED, self._buffers)
        self._resolve = functional._resolve_group
        for name in _FUNCTIONAL:
            if hasattr(functional, name):
                self._replace(functional, name, functools.partial(self._functional, name))
        self._replace(functional, "wait_tensor", self._waited)

    def end(self) -> None:
        """Restore the functions. Safe twice."""
        self._open = False
        self._hooks.end()
        self._replaced.end()
        self._results.clear()
        self._reducing.clear()

    def forget(self) -> None:
        """Drop what was begun in an earlier step."""
        self._results.clear()
        self._reducing.clear()

    def backward_ended(self, began: int) -> None:
        """Time DDP's wait after a backward pass; call it once all gradients exist, before DDP's callback."""
        reducing, self._reducing = self._reducing, {}
        for group, nbytes in reducing.values():
            # Behind DDP's own callback, which is queued before this runs.
            after_backward(functools.partial(self._reduced, group, nbytes, began, self._clock()))

    def _reduced(self, group: str, nbytes: int, began: int, since: int) -> None:
        now, number = self._clock(), self._number(_REDUCTION, group)
        waited = now - since
        span = Span(
            "collective", began, now, _REDUCTION, blocked=waited, bytes=nbytes, group=group, sequence=number
        )
        self._keep(span)

    def _called(
        self, operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Done | Sequence[Done] | None:
        try:
            if operation == "batch_isend_irecv":
                given = args[0] if args else kwargs["p2p_op_list"]
                return [self._message(op.op.__name__, op.tensor, op.peer, op.group) for op in given]
            if operation in _SENDS or operation in _RECEIVES:
                return self._message(
                    operation,
                    *_message_of(operation, args, kwargs, "src" if operation in _RECEIVES else "dst"),
                )
            group = self._group(_argument(getattr(distributed, operation), args, kwargs, "group"))
            nbytes = max((_bytes(tensors_of(each)) for each in (*args, *kwargs.values())), default=0)
            root = _root(operation, args, kwargs)
            return self._span("collective", operation, nbytes, group=group, peer=root, key=(operation, group))
        except Exception as error:
            self._failed(error)
            return None

    def _message(self, operation: str, tensor: Tensor, peer: int | None, group: Any) -> Done:
        kind = "send" if operation in _SENDS else "receive"
        other = -1 if peer is None else int(peer)
        return self._span(
            kind, operation, _bytes([tensor]), group=self._group(group), peer=other, key=(kind, other)
        )

    def _span(
        self, kind: str, name: str, nbytes: int, *, group: str, peer: int = -1, key: tuple[Any, ...]
    ) -> Done:
        number, began = self._number(*key), self._clock()

        def done(since: int) -> None:
            now = self._clock()
            blocked = now - (since or began)
            span = Span(
                kind, began, now, name, blocked=blocked, bytes=nbytes, group=group, peer=peer, sequence=number
            )
            self._keep(span)

        return done

    def _number(self, *key: Any) -> int:
        number = self._sequences[key]
        self._sequences[key] += 1
        return number

    def _group(self, group: Any) -> str:
        name = str(getattr(group, "group_name", ""))
        text = self._groups.get(name)
        if text is None:
            ranks = (
                range(distributed.get_world_size())
                if group is None
                else distributed.get_process_group_ranks(group)
            )
            text = self._groups[name] = ranges_text(join_numbers(ranks))
        return text

    # Functional collectives, as of DTensor, and DDP.

    def _replace(
        self, module: Any, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]
    ) -> None:
        own = getattr(module, name)
        self._replaced.put(module, name, functools.wraps(own)(make(own)))

    def _functional(self, name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def called(*args: Any, **kwargs: Any) -> Any:
            if not self._open or torch.compiler.is_compiling():
                return own(*args, **kwargs)
            done = None
            try:
                given = (_argument(own, args, kwargs, each) for each in ("group", "tag"))
                text = self._group(self._resolve(*(each or "" for each in given)))
                done = self._span(
                    "collective", name, _bytes(tensors_of(args[0])), group=text, key=(name, text)
                )
            except Exception as error:
                self._failed(error)
            result = own(*args, **kwargs)
            if done is not None:
                self._results[getattr(result, "elem", result).data_ptr()] = done
            return result

        return called

    def _waited(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def wait_tensor(tensor: Any) -> Any:
            done = self._results.pop(tensor.data_ptr(), None) if self._results else None
            began = self._clock()
            result = own(tensor)
            if done is not None:
                done(began)
            return result

        return wait_tensor

    def _buffers(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def broadcast(group: Any, tensors: Any, size: int, root: int = 0) -> Any:
            done = None
            try:
                text = self._group(group)
                first = distributed.get_global_rank(group, root)
                key = (_BUFFERS, text)
                done = self._span("collective", _BUFFERS, _bytes(tensors), group=text, peer=first, key=key)
            except Exception as error:
                self._failed(error)
            result = own(group, tensors, size, root)
            if done is not None:
                done(0)
            return result

        return broadcast

    def _replica(self, own: Callable[..., Any]) -> Callable[..., Any]:
        def forward(replica: Any, *args: Any, **kwargs: Any) -> Any:
            if self._open and not torch.compiler.is_compiling() and torch.is_grad_enabled():
                try:
                    if replica.require_backward_grad_sync:
                        nbytes = self._replica_bytes.get(replica)
                        if nbytes is None:
                            # Cached: a walk over all modules takes longer than everything else of a pass.
                            nbytes = _bytes([p for p in replica.parameters() if p.requires_grad])
                            self._replica_bytes[replica] = nbytes
                        self._reducing[id(replica)] = (self._group(replica.process_group), nbytes)
                    else:
                        self._reducing.pop(id(replica), None)
                except Exception as error:
                    self._failed(error)
            return own(replica, *args, **kwargs)

        return forward


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


@functools.cache
def _parameter_index(function: Any, name: str) -> int:
    parameters = list(inspect.signature(function).parameters)
    return parameters.index(name) if name in parameters else -1


def _argument(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str) -> Any:
    at = _parameter_index(inspect.unwrap(function), name)
    return args[at] if 0 <= at < len(args) else kwargs.get(name)


def _root(operation: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the global rank from which a collective comes or to which it goes; -1 where it has none."""
    name = _ROOTS.get(operation)
    if name is None:
        return -1
    function = getattr(distributed, operation)
    root, local, group = (
        _argument(function, args, kwargs, each) for each in (name, f"group_{name}", "group")
    )
    if root is None and local is not None:
        root = _global_rank(group, local)
    # Without either these begin or end at rank 0.
    return 0 if root is None else int(root)


def _global_rank(group: Any, local: int) -> int:
    world: Any = distributed.group.WORLD
    return distributed.get_global_rank(world if group is None else group, local)


def _message_of(
    operation: str, args: tuple[Any, ...], kwargs: dict[str, Any], end: str
) -> tuple[Tensor, int | None, Any]:
    """Return tensor, global rank of the peer where it is known, and group of a message."""
    function = getattr(distributed, operation)
    tensor, peer, group, local = (
        _argument(function, args, kwargs, name) for name in ("tensor", end, "group", f"group_{end}")
    )
    if peer is None and local is not None:
        peer = _global_rank(group, local)
    return tensor, peer, group
