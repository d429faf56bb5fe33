"""Wraps the functions of ``torch.distributed`` that move tensors between processes."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed

COLLECTIVES = (
    *("send", "recv", "isend", "irecv", "batch_isend_irecv", "broadcast", "all_reduce", "reduce"),
    *("scatter", "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor"),
    *(
        "all_gather",
        "gather",
        "_all_gather_base",
        "all_gather_into_tensor",
        "all_to_all",
        "all_to_all_single",
    ),
)
"""Functions that can be stood before; what a version of torch does not have is passed over."""

_IDENTIFIED = ("isend", "irecv")
"""torch tells these two apart by ``is``, so that its own module has to keep them."""

Done = Callable[[int], None]
"""Takes the time from when on the caller waited in ``wait()``, ns; 0 where the call itself waited."""

Called = Callable[[str, tuple[Any, ...], dict[str, Any]], Done | Sequence[Done] | None]


class Replaced:
    """Functions and methods of others in whose place ours are called, until they are put back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any, Any]] = []

    def __bool__(self) -> bool:
        return bool(self._before)

    def put(self, owner: Any, name: str, ours: Any) -> None:
        self._before.append((owner, name, getattr(owner, name), ours))
        setattr(owner, name, ours)

    def end(self) -> None:
        """Restore all, but for what somebody else has replaced meanwhile. Safe twice."""
        before, self._before = self._before, []
        for owner, name, own, ours in reversed(before):
            if getattr(owner, name) is ours:
                setattr(owner, name, own)


class CollectiveHooks:
    """Calls a function before each collective, and what that returned once the results are there: after the
    call, or after ``wait()`` on what an asynchronous one or its coalescing manager gave.

    Names that were imported from ``torch.distributed`` before are not seen, neither is what DDP reduces in
    C++.

    Parameters
    ----------
    called : callable
        Takes the operation's name, its arguments and its keyword arguments, and returns what is to be called;
        for ``batch_isend_irecv`` also one for each message. Must not raise.
    outermost : bool
        Whether calls that one of these functions makes of another are left out.
    """

    def __init__(
        self,
        called: Called,
        operations: Sequence[str] = COLLECTIVES,
        *,
        outermost: bool = False,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._called, self._operations, self._clock = called, operations, clock
        self._outermost, self._inside = outermost, threading.local()
        # Functions that a script stored in an ended session only call torch's.
        self._session: object | None = None
        self._replaced = Replaced()
        self._pending: WeakKeyDictionary[Any, list[Done]] = WeakKeyDictionary()
        # Of calls inside a coalescing manager, until its own work is known.
        self._coalesced: list[Done] = []

    def begin(self) -> None:
        """Wrap the functions."""
        self.end()
        if not distributed.is_available():
            return
        self._session = session = object()
        for operation in self._operations:
            own = getattr(distributed, operation, None)
            if own is None:
                continue
            ours = self._seen(operation, own, session)
            for module in (distributed, distributed.distributed_c10d):
                if module is distributed.distributed_c10d and operation in _IDENTIFIED:
                    continue
                if getattr(module, operation, None) is own:
                    self._replaced.put(module, operation, ours)
        for method in ("__new__", "__init__"):
            own = getattr(distributed.P2POp, method)
            self._replaced.put(distributed.P2POp, method, _with_torchs_own(own))
        manager = getattr(distributed.distributed_c10d, "_CoalescingManager", None)
        if manager is not None:
            self._replaced.put(manager, "append", self._appended(manager.append))
        self._replaced.put(distributed.Work, "wait", self._waited(distributed.Work.wait))

    def end(self) -> None:
        """Restore the functions, but for those that somebody else has replaced meanwhile. Safe twice."""
        self._session = None
        self._replaced.end()
        self._pending.clear()
        self._coalesced.clear()

    def _seen(self, operation: str, own: Callable[..., Any], session: object) -> Callable[..., Any]:
        @functools.wraps(own)
        def seen(*args: Any, **kwargs: Any) -> Any:
            inside = self._outermost and getattr(self._inside, "call", False)
            if inside or self._session is not session or torch.compiler.is_compiling():
                return own(*args, **kwargs)
            done = self._called(operation, args, kwargs)
            self._inside.call = True
            try:
                work = own(*args, **kwargs)
            finally:
                self._inside.call = False
            if done is not None:
                self._follow(work, done)
            return work

        return seen

    def _follow(self, work: Any, done: Done | Sequence[Done]) -> None:
        """Call ``done`` when the results are there."""
        works = [each for each in (work if isinstance(work, list) else [work]) if hasattr(each, "wait")]
        several = [done] if callable(done) else list(done)
        if _is_coalesced():
            self._coalesced += several
        elif not works:
            # What is waited for inside gives nothing back, or the sender's rank.
            if work is None or isinstance(work, int):
                _call(several, 0)
        elif len(several) == len(works):
            for each, one in zip(works, several, strict=True):
                self._pending.setdefault(each, []).append(one)
        else:
            remaining, since = len(works), 0

            def last(began: int) -> None:
                nonlocal remaining, since
                remaining, since = remaining - 1, since or began
                if remaining == 0:
                    _call(several, since)

            for each in works:
                self._pending.setdefault(each, []).append(last)

    def _waited(self, own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            result = own(work, *args, **kwargs)
            several = self._pending.pop(work, None)
            if several is None and self._coalesced and not _is_coalesced():
                # A manager that is not asynchronous waits for its own work when it is left.
                several, self._coalesced = self._coalesced, []
            _call(several or (), began)
            return result

        return wait

    def _appended(self, own: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the method by which a manager is given the work of the calls inside."""

        @functools.wraps(own)
        def append(manager: Any, work: Any, *args: Any, **kwargs: Any) -> Any:
            if self._coalesced and hasattr(work, "wait"):
                self._pending.setdefault(work, []).extend(self._coalesced)
                self._coalesced = []
            return own(manager, work, *args, **kwargs)

        return append


def _call(several: Iterable[Done], since: int) -> None:
    for done in several:
        done(since)


def tensors_of(argument: Any, *, sent: bool = True, received: bool = True) -> list[Tensor]:
    """Return the tensors of an argument: itself, those of a list, those that a list of ``P2POp`` moves."""
    found = []
    for each in argument if isinstance(argument, (list, tuple)) else (argument,):
        if isinstance(each, distributed.P2POp):
            if sent if each.op.__name__ == "isend" else received:
                found.append(each.tensor)
        elif isinstance(each, Tensor):
            found.append(each)
    return found


def _with_torchs_own(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of ``P2POp`` that is given torch's ``isend`` where a script passes the wrapper."""

    @functools.wraps(method)
    def replaced(self: Any, op: Any, *args: Any, **kwargs: Any) -> Any:
        return method(self, _torchs_own(op), *args, **kwargs)

    return replaced


def _torchs_own(function: Any) -> Any:
    known = [getattr(distributed.distributed_c10d, name) for name in _IDENTIFIED]
    while function not in known and hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function


def _is_coalesced() -> bool:
    # Calls inside a coalescing manager are only noted: their results come at its end.
    return bool(getattr(getattr(distributed.distributed_c10d, "_world", None), "pg_coalesce_state", None))
