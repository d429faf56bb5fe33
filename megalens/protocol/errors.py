"""The error class of the protocol room, and what all error classes of Megalens have in common."""

from __future__ import annotations

from collections.abc import Iterable

from .messages_generated import ErrorCode, ErrorMessage

__all__ = ["MegalensError", "ProtocolError", "must_be", "no_such"]


class MegalensError(Exception):
    """Base of every error that Megalens raises on purpose. Each room has one class of its own."""


class ProtocolError(MegalensError, ValueError):
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
        code: ErrorCode,
        message: str,
        *,
        field: str | None = None,
        column: int | None = None,
        expected: str | None = None,
        got: str | None = None,
    ) -> None:
        message = _whole(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = None if field is None else _whole(field)
        self.column = column
        self.expected = None if expected is None else _whole(expected)
        self.got = None if got is None else _whole(got)

    def to_message(self, reply_to: str | None = None) -> ErrorMessage:
        """Return the ``error`` control message that says this."""
        message: ErrorMessage = {"type": "error", "code": self.code, "message": self.message[:4000]}
        if self.field is not None:
            message["field"] = self.field[:300]
        if self.expected is not None:
            message["expected"] = self.expected[:1000]
        if self.got is not None:
            message["got"] = self.got[:1000]
        if self.column is not None:
            message["column"] = self.column
        if reply_to is not None:
            message["reply_to"] = reply_to
        return message

    @classmethod
    def from_message(cls, message: ErrorMessage) -> ProtocolError:
        """Return the error that an ``error`` control message carries."""
        return cls(
            message["code"],
            message["message"],
            field=message.get("field"),
            column=message.get("column"),
            expected=message.get("expected"),
            got=message.get("got"),
        )


def must_be(
    what: str, expected: str, got: object, field: str, code: ErrorCode = "bad-parameter"
) -> ProtocolError:
    """Return the error that says what must be what, and what came."""
    message = f"{what} must be {expected}, got {got!r:.100}."
    return ProtocolError(code, message, field=field, expected=expected, got=repr(got)[:200])


def no_such(
    kind: str, name: object, known: Iterable[str], field: str, code: ErrorCode = "bad-parameter"
) -> ProtocolError:
    """Return the error that says that there is no such thing, and what there is."""
    names = ", ".join(known)
    message = f"There is no {kind} {name!r:.100}. Choose one of {names}."
    return ProtocolError(code, message, field=field, expected=names, got=repr(name)[:200])


def _whole(text: str) -> str:
    """Escape halves of surrogate pairs, which an error may quote and which cannot be sent."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
