"""The error class of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..protocol import MegalensError, ProtocolError, Ranges, is_whole, read_ranges


def chosen_ranges(
    choice: Any, field: str, read: Callable[[Any, str], Ranges | None] = read_ranges
) -> Ranges | None:
    """Return the inclusive ranges of layers or steps that a person chose, or None for all."""
    with as_arguments():
        return read(choice, field)


@contextmanager
def as_arguments() -> Iterator[None]:
    """Turn a ``ProtocolError`` into a ``ClientError``: it was about an argument, not a message."""
    try:
        yield
    except ProtocolError as error:
        raise ClientError(error.message, code=error.code, field=error.field) from error


def as_int(value: Any, argument: str, least: int = 0) -> int:
    """Return any whole number, numpy's too, as an int; raises ``ClientError`` naming the argument."""
    if is_whole(value, least):
        return int(value)
    raise bad_argument(argument, f"a whole number from {least}", value)


def bad_argument(argument: str, expected: str, got: object) -> ClientError:
    """Return the error that says what an argument must be, in the words of the call."""
    return bad_parameter(f"{argument}=… must be {expected}, got {got!r:.100}.", argument)


def bad_parameter(message: str, field: str | None = None) -> ClientError:
    """Return the error of an argument that cannot be used, in the words given."""
    return ClientError(message, code="bad-parameter", field=field)


def no_memory(what: str) -> ClientError:
    """Return the error of a file that needs more memory than this process may take."""
    return ClientError(
        f"{what} needs more memory than this process may take. Ask for fewer steps or layers.",
        code="too-large",
    )


class ClientError(MegalensError, RuntimeError):
    """A run cannot be reached, read or asked that. The text says what was expected, what came and what to
    try.

    Parameters
    ----------
    message : str
        One to three sentences for a person.
    code : str
        Stable machine-readable reason: ``not-found``, ``unreadable``, ``version-mismatch``,
        ``bad-parameter``, ``unauthorized``, ``timeout``, ``disconnected``, ``recorded``, ``closed``,
        ``not-installed``, ``too-large`` or ``unwritable``.
    field : str, optional
        The argument at fault.
    """

    def __init__(self, message: str, *, code: str = "not-found", field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.field = field
