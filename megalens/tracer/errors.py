"""The one error class of the tracer room, and how errors of others are told."""

from __future__ import annotations

from ..protocol import MegalensError, ProtocolError

__all__ = ["TracerError", "as_protocol_error", "plain_text", "said"]

_LONGEST = 500


class TracerError(MegalensError, RuntimeError):
    """Tracing cannot start: what was expected, what came, what to try.

    Raised only where a person calls the tracer to set it up. Nothing of the tracer raises into a training
    step.
    """


def plain_text(text: object) -> str:
    """Return a text that every message can carry: at most 500 characters, and no half of a surrogate pair,
    such as odd names of files have.
    """
    return str(text)[:_LONGEST].encode("utf-8", "replace").decode()


def said(error: BaseException) -> str:
    """Return an error of any code in words. Never raises: the text of an error may be code of others, too."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return plain_text(f"{type(error).__name__}: {text}"[:300].removesuffix(": "))


def as_protocol_error(error: Exception, what: str) -> ProtocolError:
    """Return the error with which a change is answered: its own where it was foreseen, else ``internal``."""
    if isinstance(error, ProtocolError):
        return error
    return ProtocolError(
        "internal", f"{what} met an error of the tracer's own ({said(error)}). The settings are as they were."
    )
