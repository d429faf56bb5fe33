"""A stand-in for ``megatron.core.tensor_observation``, which no released Megatron-Core has: its public names, and what is known of what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor

__all__ = [
    "capture_tensor_observations",
    "is_observing_tensor",
    "observe_layer_residuals",
    "observe_tensor",
    "suspend_tensor_observations",
]

Callback = Callable[[object, str, str, Tensor, "int | None"], None]
# One observer at a time, with the kinds it asked for: a scope inside of another replaces it.
_observer: ContextVar[tuple[Callback, frozenset[str]] | None] = ContextVar("observer", default=None)


@contextmanager
def capture_tensor_observations(observer: Callback, source_kinds: frozenset[str]) -> Iterator[None]:
    with _as_it_was(_observer.set((observer, source_kinds))):
        yield


@contextmanager
def suspend_tensor_observations() -> Iterator[None]:
    with _as_it_was(_observer.set(None)):
        yield


@contextmanager
def _as_it_was(token: Any) -> Iterator[None]:
    try:
        yield
    finally:
        _observer.reset(token)


def is_observing_tensor(source_kind: str) -> bool:
    now = _observer.get()
    return now is not None and source_kind in now[1]


def observe_tensor(
    owner: object, name: str, source_kind: str, tensor: Tensor, *, tp_shard_dim: int | None = None
) -> None:
    now = _observer.get()
    if now is not None and source_kind in now[1]:
        now[0](owner, name, source_kind, tensor, tp_shard_dim)


def observe_layer_residuals(layer: Any, accumulator: Tensor, output: Tensor) -> None:
    cut = 0 if getattr(getattr(layer, "config", None), "sequence_parallel", False) else None
    for kind in ("residual_accumulator", "residual_contribution"):
        if is_observing_tensor(kind):
            added = kind == "residual_contribution"
            tensor = output.detach() - accumulator.detach() if added else accumulator
            observe_tensor(layer, kind, kind, tensor, tp_shard_dim=cut)
