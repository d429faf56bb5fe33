"""The one error class of the dialects room."""

from __future__ import annotations

from ...protocol import MegalensError, shown_text

__all__ = ["DialectError"]


class DialectError(MegalensError):
    """A foreign hub cannot be reached, is not what it was said to be, or refused what it was asked.

    Parameters
    ----------
    code : str
        ``unreachable``, ``dialect``, ``refused`` or ``bad-parameter``.
    message : str
        One or two sentences for a person.
    """

    def __init__(self, code: str, message: str) -> None:
        # The peer's own words may stand in it.
        self.message = shown_text(message)
        super().__init__(self.message)
        self.code = code
