"""Copies from a device that the step does not wait for."""

from __future__ import annotations

from torch import Tensor, empty

__all__ = ["to_host"]


def to_host(data: Tensor) -> Tensor:
    """Start a copy into pinned memory. It is complete once an event that is recorded after it is."""
    host = empty(data.shape, dtype=data.dtype, pin_memory=True)
    return host.copy_(data, non_blocking=True)
