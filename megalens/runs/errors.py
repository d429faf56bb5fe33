"""The one error class of the client room."""

from __future__ import annotations

from ..protocol import MegalensError

__all__ = ["ClientError"]


class ClientError(MegalensError, RuntimeError):
    """A run cannot be reached, read or asked that. The text says what was expected, what came and what to try.

    Parameters
    ----------
    message : str
        One to three sentences for a person.
    code : str
        Stable machine-readable reason: ``not-found``, ``unreadable``, ``version-mismatch``, ``bad-parameter``, ``unauthorized``,
        ``timeout``, ``disconnected``, ``recorded`` or ``closed``.
    field : str, optional
        The argument at fault.
    """

    def __init__(self, message: str, *, code: str = "not-found", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
