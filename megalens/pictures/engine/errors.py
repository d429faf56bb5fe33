"""The one error class of the engine room."""

from __future__ import annotations

from ...protocol import MegalensError

__all__ = ["EngineError"]


class EngineError(MegalensError, RuntimeError):
    """A job of the engine did not finish. The next one runs in a fresh engine.

    Parameters
    ----------
    message : str
        One or two sentences for a person.
    code : str
        Stable machine-readable reason: ``missing`` (this installation lacks the engine or its bundle), ``ended`` (its process was ended),
        ``memory``, ``timeout``, ``cancelled``, ``too-large`` (a message between the two), ``stuck`` (the job waits for something that cannot come), or
        ``failed`` (the job's own error).
    field : str, optional
        What of the job's arguments is at fault.
    """

    def __init__(self, message: str, *, code: str = "failed", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
