"""Errors of the room that has models write text."""

from __future__ import annotations

from ...protocol import MegalensError

__all__ = ["GenerationError"]


class GenerationError(MegalensError):
    """A model that cannot be asked to write text, a folder that holds none, or a generation that could not go on; says why, and what to try."""
