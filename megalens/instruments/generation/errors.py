"""Errors of the generation lab."""

from __future__ import annotations

from ...protocol import MegalensError


class GenerationError(MegalensError):
    """A model cannot write text, a folder has none, or a generation failed; says why, and what to try."""
