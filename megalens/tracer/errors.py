"""The one error class of the tracer room, and errors of others in words."""

from __future__ import annotations

from ..protocol import MegalensError, ProtocolError

_LONGEST = 500


class TracerError(MegalensError, RuntimeError):
    """Tracing cannot start. Raised only where a script sets the tracer up, never into a training step."""


def plain_text(text: object, most: int = _LONGEST) -> str:
    """Return at most so many characters that every message can carry: no half of a surrogate pair."""
    return str(text)[:most].encode("utf-8", "replace").decode()


def describe_error(error: BaseException) -> str:
    """Return an error of any code in words. Never raises, although the error's text may be code of others."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return plain_text(f"{type(error).__name__}: {text}"[:300].removesuffix(": "))


def as_protocol_error(error: Exception, what: str) -> ProtocolError:
    """Return what a change is answered with: the error where it was foreseen, else ``internal``."""
    if isinstance(error, ProtocolError):
        return error
    return ProtocolError(
        "internal",
        f"{what} met an error of the tracer's own ({describe_error(error)}). The settings are as they were.",
    )
