"""The one error class of the tracer room."""

from __future__ import annotations

__all__ = ["TracerError"]


class TracerError(RuntimeError):
    """Tracing cannot start: what was expected, what came, what to try.

    Raised only where a person calls the tracer to set it up. Nothing of the tracer raises into a training step.
    """
