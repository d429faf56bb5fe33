"""The one error class of the split room."""

from __future__ import annotations

from typing import Any

from ..stages.errors import StageError

__all__ = ["SplitError"]


class SplitError(StageError):
    """A training with forward and backward processes cannot run, or cannot go on.

    Parameters
    ----------
    message : str
        One or two sentences for a person.
    code : str
        As of every :class:`StageError`; and ``diverged``, where a forward and a backward process have different weights.
    field : str, optional
        The argument, or the model's parameter, that is at fault.
    role : str, optional
        Of the process that says so: ``forward`` or ``backward``.
    **more
        As of every :class:`StageError`.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "refused",
        field: str | None = None,
        role: str | None = None,
        **more: Any,
    ) -> None:
        super().__init__(message, code=code, **more)
        self.field, self.role = field, role
