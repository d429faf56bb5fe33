"""The error class of the server."""

from __future__ import annotations

from collections.abc import Sequence

from ..protocol import MegalensError, shown_text

_MOST_NAMED = 10


# What an answer leaves out, in sentences.
def closed_words(name: str, error: OSError) -> str:
    """Return the sentence about a folder that may not be read, with the reason."""
    return f"{shown_text(name, 200)} cannot be looked into: {error.strerror}."


def some_of(sentences: Sequence[str]) -> list[str]:
    """Return the first sentences, and the number of the others."""
    more = len(sentences) - _MOST_NAMED
    return [*sentences[:_MOST_NAMED], *([f"And {more} more."] if more > 0 else [])]


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
        body = {"code": self.code, "message": self.message}
        if self.field is not None:
            body["field"] = self.field
        return body


def require(fits: object, message: str, field: str | None = None) -> None:
    """Raise ``ServerError`` 400, code ``bad-parameter``, unless a parameter fits."""
    if not fits:
        raise ServerError(400, "bad-parameter", message, field)


def not_recorded() -> ServerError:
    """Return the refusal of the folder of a live run that has none."""
    words = "This run is live and not recorded: connect to it instead of reading its folder."
    return ServerError(404, "not-found", words)


def no_run(run_id: str) -> ServerError:
    """Return the refusal of a run that is not there."""
    return ServerError(404, "not-found", f"There is no run {run_id!r:.120}. Ask for the list of runs again.")
