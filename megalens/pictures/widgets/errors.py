"""The one error class of the widgets room."""

from __future__ import annotations

from ...protocol import MegalensError

__all__ = ["WidgetError"]


class WidgetError(MegalensError, ValueError):
    """An argument of a view is not what the view takes.

    Parameters
    ----------
    message : str
        What was expected, what came, what to try.
    field : str
        The argument at fault.
    """

    def __init__(self, message: str, field: str) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
