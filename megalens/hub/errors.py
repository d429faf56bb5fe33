"""The one error class of the hub room."""

from __future__ import annotations

from ..protocol import MegalensError

__all__ = ["HubError"]


class HubError(MegalensError, RuntimeError):
    """The hub cannot do what it was asked. The text is one sentence or two for a person."""
