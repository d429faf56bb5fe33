"""The one error class of the dialects room."""

from __future__ import annotations

__all__ = ["DialectError"]


class DialectError(Exception):
    """A foreign hub cannot be reached, is not what it was said to be, or refused what it was asked.

    Parameters
    ----------
    code : str
        ``unreachable``, ``dialect``, ``refused`` or ``bad-parameter``.
    message : str
        One or two sentences for a person.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
