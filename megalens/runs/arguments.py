"""What a person gives to a call, in the form that the code has for it; errors are in the words of the call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..protocol import ProtocolError, Ranges, is_whole, read_ranges
from .errors import ClientError

__all__ = ["as_arguments", "bad_argument", "chosen_ranges", "whole"]


def chosen_ranges(
    choice: Any, field: str, read: Callable[[Any, str], Ranges | None] = read_ranges
) -> Ranges | None:
    """Return the inclusive ranges of layers, or of what else is read so, that a person chose, or None for all.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the field.
    """
    with as_arguments():
        return read(choice, field)


@contextmanager
def as_arguments() -> Iterator[None]:
    """Have what a reader of the protocol room refuses be an error of this room: it was an argument, not a message."""
    try:
        yield
    except ProtocolError as error:
        raise ClientError(error.message, code=error.code, field=error.field) from error


def whole(value: Any, argument: str, least: int = 0, more: str = "") -> int:
    """Return a whole number of any kind, numpy's too, as an int.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the argument.
    """
    if is_whole(value, least):
        return int(value)
    raise bad_argument(argument, f"a whole number from {least}{more}", value)


def bad_argument(argument: str, expected: str, got: object) -> ClientError:
    """Return the error that says what an argument must be, in the words of the call."""
    return ClientError(
        f"{argument}=… must be {expected}, got {got!r:.100}.", code="bad-parameter", field=argument
    )
