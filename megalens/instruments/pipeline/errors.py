"""The one error class of the pipeline room."""

from __future__ import annotations

from .stages.errors import StageError

__all__ = ["PipelineError"]


class PipelineError(StageError):
    """A pipeline cannot run, or cannot go on.

    Of a plan :attr:`code` is ``missing``, ``doubled``, ``unknown``, ``misplaced``, ``order``, ``cycle`` or ``shape``.
    """
