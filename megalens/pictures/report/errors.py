"""The one error class of the report room."""

from __future__ import annotations

from ...protocol import MegalensError

__all__ = ["ReportError"]


class ReportError(MegalensError, ValueError):
    """A report cannot be made as it was asked for.

    Parameters
    ----------
    message : str
        What was expected, what came, what to try.
    view : str, optional
        Which view is at fault, such as ``views[1]``.
    field : str, optional
        Dotted path of the option at fault, such as ``views[1].statistic``.
    """

    def __init__(self, message: str, *, view: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.view = view
        self.field = field
