"""Stands before the functions of ``torch.distributed`` that move tensors between processes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, distributed

__all__ = ["COLLECTIVES", "CollectiveHooks", "tensors_of"]

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

Done = Callable[[], None]
Called = Callable[[str, tuple[Any, ...], dict[str, Any]], Done | None]


class CollectiveHooks:
    """Calls a function before each collective, and what that returned once the results are there: after the call, or after ``wait()`` on what an asynchronous one gave.

    Names that were imported from ``torch.distributed`` before are not seen, neither is what DDP reduces in C++, nor results of a coalescing manager.

    Parameters
    ----------
    called : callable
        Takes the operation's name, its arguments and its keyword arguments. Must not raise.
    operations : sequence of str
        Which functions.
    """

    def __init__(self, called: Called, operations: Sequence[str] = COLLECTIVES) -> None:
        self._called, self._operations = called, operations
        # Functions that somebody kept from an ended session only call torch's.
        self._session: object | None = None
        self._before: list[tuple[Any, str, Any, Any]] = []
        self._pending: WeakKeyDictionary[Any, list[Done]] = WeakKeyDictionary()

    def begin(self) -> None:
        """Stand before the functions."""
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
                self._replace(module, operation, own, ours)
        for method in ("__new__", "__init__"):
            own = getattr(distributed.P2POp, method)
            self._replace(distributed.P2POp, method, own, _with_torchs_own(own))
        wait = distributed.Work.wait
        self._replace(distributed.Work, "wait", wait, self._waited(wait))

    def end(self) -> None:
        """Give the functions back, but for those that somebody else has replaced meanwhile. Safe twice."""
        self._session = None
        before, self._before = self._before, []
        for place, name, own, ours in reversed(before):
            if getattr(place, name) is ours:
                setattr(place, name, own)
        self._pending.clear()

    def _replace(self, place: Any, name: str, own: Any, ours: Any) -> None:
        if getattr(place, name, None) is own:
            setattr(place, name, ours)
            self._before.append((place, name, own, ours))

    def _seen(self, operation: str, own: Callable[..., Any], session: object) -> Callable[..., Any]:
        @functools.wraps(own)
        def seen(*args: Any, **kwargs: Any) -> Any:
            if self._session is not session or torch.compiler.is_compiling():
                return own(*args, **kwargs)
            done = self._called(operation, args, kwargs)
            work = own(*args, **kwargs)
            if done is not None:
                self._follow(work, done)
            return work

        return seen

    def _follow(self, work: Any, done: Done) -> None:
        """Call ``done`` when the results are there."""
        works = [each for each in (work if isinstance(work, list) else [work]) if hasattr(each, "wait")]
        if works:
            remaining = len(works)

            def one() -> None:
                nonlocal remaining
                remaining -= 1
                if remaining == 0:
                    done()

            for each in works:
                self._pending.setdefault(each, []).append(one)
        # What is waited for inside gives nothing back, or the sender's rank.
        elif (work is None or isinstance(work, int)) and not _is_coalesced():
            done()

    def _waited(self, own: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(own)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = own(work, *args, **kwargs)
            for done in self._pending.pop(work, ()):
                done()
            return result

        return wait


def tensors_of(argument: Any, *, sent: bool = True, received: bool = True) -> list[Tensor]:
    """Return the tensors of an argument: itself, those of a list, and those that a list of ``P2POp`` sends or receives."""
    found = []
    for each in argument if isinstance(argument, (list, tuple)) else (argument,):
        if isinstance(each, distributed.P2POp):
            if sent if each.op.__name__ == "isend" else received:
                found.append(each.tensor)
        elif isinstance(each, Tensor):
            found.append(each)
    return found


def _with_torchs_own(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of ``P2POp`` that is given torch's ``isend`` where a script gives the one before it."""

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
