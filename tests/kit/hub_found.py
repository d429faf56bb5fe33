"""Waiting for a tracer's hub, so that a job of two steps is not over before."""

from __future__ import annotations

from megalens.tracer import Tracer
from megalens.tracer.sending.producer import Producer

__all__ = ["hub_found"]


def hub_found(tracer: Tracer) -> None:
    """Return once a process that sends rows has found the hub; at once in the others."""
    worker = tracer._coordinator.worker
    assert not isinstance(worker, Producer) or worker.connected.wait(30)
