"""JSON control messages, checked against ``protocol/messages.schema.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NoReturn

from .contract import contract_json
from .errors import ProtocolError
from .messages_generated import Message
from .quick_check import quick_check
from .validator import full_validator

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

__all__ = [
    "MAX_TEXT_BYTES",
    "MESSAGE_TYPES",
    "SUBPROTOCOL",
    "check_definition",
    "check_message",
    "decode_message",
    "encode_message",
]

SUBPROTOCOL = "megalens.v1"
_SCHEMA: dict[str, Any] = contract_json("messages.schema.json")
_DEFINITIONS: dict[str, str] = {
    _SCHEMA["$defs"][name]["properties"]["type"]["const"]: name
    for name in (entry["$ref"].rsplit("/", 1)[1] for entry in _SCHEMA["oneOf"])
}
MESSAGE_TYPES: tuple[str, ...] = tuple(_DEFINITIONS)
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Longest control message that any side reads: three times the ``hello`` of 16,384 ranks."""
_MAX_DEPTH = 32
_MAX_VALUES = 2_000_000
_MAX_WHOLE = 2**53 - 1
_LONG_NUMBER = re.compile(r"[0-9]{16}")


def encode_message(message: Message) -> str:
    """Return the JSON text of a message after checking it.

    Raises
    ------
    ProtocolError
        ``bad-message`` when it does not fit the schema or holds a non-finite number.
    """
    check_message(message)
    try:
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        # Half a surrogate pair is no text: it could not be sent.
        text.encode("utf-8")
        return text
    except (ValueError, TypeError, RecursionError) as error:
        raise ProtocolError("bad-message", f"A {message['type']} message cannot be JSON: {error}") from error


def decode_message(text: str | bytes, allowed: Collection[str] | None = None) -> Message:
    """Parse and check one text frame.

    Parameters
    ----------
    text : str or bytes
        The JSON text.
    allowed : collection of str, optional
        Message types that may come here; any when absent.

    Raises
    ------
    ProtocolError
        ``too-large`` when it is longer than any message can be; ``bad-message`` when it is not JSON, not a known message, not to its schema;
        ``forbidden`` when the type may not come here.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise ProtocolError(
            "too-large",
            "A control message is longer than any can be.",
            expected=f"at most {MAX_TEXT_BYTES} bytes",
            got=f"{len(text)} bytes",
        )
    too_large: list[str] = []

    def whole(digits: str) -> int:
        value = int(digits)
        if abs(value) > _MAX_WHOLE:
            too_large.append(digits[:50])
        return value

    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        if text.count(",") + text.count("[") + text.count("{") > _MAX_VALUES:
            # A value in memory takes up to a hundred times what it takes as text.
            raise ProtocolError("bad-message", f"A message has more than {_MAX_VALUES} values.")
        message = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_float=_finite,
            # Few messages have a long number, and the call for every number of the others would cost more than all the rest.
            parse_int=whole if _LONG_NUMBER.search(text) else None,
        )
        if "\\u" in text:
            # Half a surrogate pair is no text: it could not be sent on.
            json.dumps(message, ensure_ascii=False).encode("utf-8")
    except ProtocolError:
        raise
    except (ValueError, RecursionError) as error:
        raise ProtocolError("bad-message", f"A message is not JSON: {error}") from error
    if _deeper_than(message, _MAX_DEPTH):
        raise ProtocolError("bad-message", f"A message is nested deeper than {_MAX_DEPTH} levels.")
    check_message(message)
    if too_large:
        # Where the schema has no bound of its own: free parameters, and members of a later version.
        raise ProtocolError(
            "bad-message",
            "A whole number is larger than every reader can hold.",
            expected=f"at most {_MAX_WHOLE}",
            got=too_large[0],
        )
    if allowed is not None and message["type"] not in allowed:
        raise ProtocolError(
            "forbidden",
            f"A {message['type']} message may not be sent here.",
            expected=", ".join(sorted(allowed)),
            got=message["type"],
        )
    return message  # type: ignore[no-any-return]


def check_message(message: Any) -> None:
    """Raise ``ProtocolError`` unless ``message`` fits the schema of its type."""
    kind = message.get("type") if isinstance(message, dict) else None
    if not isinstance(kind, str) or kind not in _DEFINITIONS:
        raise ProtocolError(
            "bad-message",
            "A message must be a JSON object with a known type.",
            field="type",
            expected=", ".join(MESSAGE_TYPES),
            got=repr(kind)[:200],
        )
    if "protocol" in message and kind == "hello" and message["protocol"] != SUBPROTOCOL:
        raise ProtocolError(
            "version-mismatch",
            f"The hub speaks {message['protocol']!r}; this client speaks {SUBPROTOCOL}. Update the older side.",
            expected=SUBPROTOCOL,
            got=repr(message["protocol"])[:200],
        )
    try:
        # A full validator takes a hundred times as long, and is needed for its sentence only.
        if _quick(kind)(message):
            return
        error = next(full_validator(_DEFINITIONS[kind], _SCHEMA).iter_errors(message), None)
    except RecursionError as problem:
        raise ProtocolError("bad-message", "A message is nested too deeply.") from problem
    if error is not None:
        raise _schema_error(kind, error)


@cache
def _quick(kind: str) -> Callable[[Any], bool]:
    return quick_check({"$ref": f"#/$defs/{_DEFINITIONS[kind]}"}, _SCHEMA["$defs"])


def check_definition(name: str, value: Any, field: str) -> None:
    """Check a value against one definition of the schema.

    Parameters
    ----------
    name : str
        Of the definition, such as ``Stream``.
    value
        What came.
    field : str
        Dotted name of where it stands.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with the dotted field.
    """
    if quick_check({"$ref": f"#/$defs/{name}"}, _SCHEMA["$defs"])(value):
        return
    error = next(full_validator(name, _SCHEMA).iter_errors(value), None)
    if error is not None:
        where = ".".join([field, *map(str, error.absolute_path)])[:300]
        raise ProtocolError(
            "bad-parameter",
            f"{where} is wrong: {error.message[:500]}",
            field=where,
            got=repr(error.instance)[:200],
        )


def _schema_error(kind: str, error: ValidationError) -> ProtocolError:
    while error.context:
        # The branch that got furthest into the value says most.
        error = max(error.context, key=lambda branch: len(branch.absolute_path))
    field = ".".join(str(part) for part in error.absolute_path)
    where = f" at {field}" if field else ""
    return ProtocolError(
        "bad-message",
        f"A {kind} message is wrong{where}: {error.message[:500]}",
        field=field or None,
        got=repr(error.instance)[:200],
    )


def _deeper_than(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels):
        level = [
            child
            for parent in level
            if isinstance(parent, (dict, list))
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        _refuse_constant(text[:50])
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ProtocolError(
        "bad-message", f"{name} is not JSON: non-finite numbers travel in data frames.", got=name
    )
