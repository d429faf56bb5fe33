"""Errors of the room that has models write text."""

from __future__ import annotations

from ...protocol import MegalensError


class GenerationError(MegalensError):
    """A model cannot write text, a folder has none, or a generation failed; says why, and what to try."""
