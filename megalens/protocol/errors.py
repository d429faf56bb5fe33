"""The one error class of the protocol room."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ProtocolError"]


class ProtocolError(ValueError):
    """Something on the wire, or meant for it, is not what the protocol says.

    Parameters
    ----------
    code : str
        One of the ``ErrorCode`` names in ``protocol/messages.schema.json``.
    message : str
        One or two sentences for a person: what was expected, what came, what to try.
    field : str, optional
        Dotted path of the field at fault.
    column : int, optional
        Column of the fault inside an expression, counted from 1.
    expected, got : str, optional
        The two sides of the mismatch, short enough to log.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str | None = None,
        column: int | None = None,
        expected: str | None = None,
        got: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.column = column
        self.expected = expected
        self.got = got

    def to_message(self, reply_to: str | None = None) -> dict[str, Any]:
        """Return the ``error`` control message that says this."""
        message: dict[str, Any] = {"type": "error", "code": self.code, "message": self.message[:4000]}
        limits = {"field": 300, "expected": 1000, "got": 1000}
        for name, limit in limits.items():
            value = getattr(self, name)
            if value is not None:
                message[name] = str(value)[:limit]
        if self.column is not None:
            message["column"] = self.column
        if reply_to is not None:
            message["reply_to"] = reply_to
        return message

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> ProtocolError:
        """Return the error that an ``error`` control message carries."""
        names = ("field", "column", "expected", "got")
        return cls(message["code"], message["message"], **{n: message.get(n) for n in names})
