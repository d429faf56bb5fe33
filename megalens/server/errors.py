"""The one error class of the server room."""

from __future__ import annotations

from ..protocol import MegalensError

__all__ = ["ServerError"]


class ServerError(MegalensError):
    """A request is refused. It becomes the JSON answer ``{code, message, field?}``.

    Parameters
    ----------
    status : int
        HTTP status.
    code : str
        Stable machine-readable reason.
    message : str
        One or two sentences for a person, without an absolute path or a token.
    field : str, optional
        The parameter at fault.
    """

    def __init__(self, status: int, code: str, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.field = field

    def to_json(self) -> dict[str, str]:
        """Return the body of the answer."""
        body = {"code": self.code, "message": self.message}
        if self.field is not None:
            body["field"] = self.field
        return body
