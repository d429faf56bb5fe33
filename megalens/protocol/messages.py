"""JSON control messages, checked against ``protocol/messages.schema.json``."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache
from typing import Any, Final

from .contract import SchemaCheck, contract_json, schema_check
from .errors import ProtocolError
from .messages_generated import Message
from .outside import parse_json

__all__ = [
    "MAX_TEXT_BYTES",
    "MESSAGE_TYPES",
    "SUBPROTOCOL",
    "check_definition",
    "check_message",
    "decode_message",
    "encode_message",
]

SUBPROTOCOL: Final = "megalens.v2"
_SCHEMA: dict[str, Any] = contract_json("messages.schema.json")
_DEFINITIONS: dict[str, str] = {
    _SCHEMA["$defs"][name]["properties"]["type"]["const"]: name
    for name in (entry["$ref"].rsplit("/", 1)[1] for entry in _SCHEMA["oneOf"])
}
MESSAGE_TYPES: tuple[str, ...] = tuple(_DEFINITIONS)
_NAMED = {"flags": "name", "compressors": "name", "sites": "name", "kinds": "name", "ranks": "rank"}
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Longest control message that any side reads: three times the ``hello`` of 16,384 ranks."""


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
    """Parse and check one text frame of one of the ``allowed`` types; of any when absent.

    Raises
    ------
    ProtocolError
        ``too-large`` when it is longer than any message can be; ``bad-message`` when it is not JSON, not a
        known message, not to its schema; ``forbidden`` when the type may not come here.
    """
    if len(text) > MAX_TEXT_BYTES:
        raise ProtocolError(
            "too-large",
            "A control message is longer than any can be.",
            expected=f"at most {MAX_TEXT_BYTES} bytes",
            got=f"{len(text)} bytes",
        )
    try:
        message = parse_json(text)
    except ValueError as error:
        raise ProtocolError(
            "bad-message", f"A message is not JSON as the protocol has it: {error}."
        ) from error
    check_message(message)
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
            f"The hub speaks {message['protocol']!r}; this client speaks {SUBPROTOCOL}. "
            "Update the older side.",
            expected=SUBPROTOCOL,
            got=repr(message["protocol"])[:200],
        )
    try:
        misfit = _check_of(_DEFINITIONS[kind])(message)
    except RecursionError as problem:
        raise ProtocolError("bad-message", "A message is nested too deeply.") from problem
    if misfit is not None:
        field = ".".join(map(str, misfit.path))
        raise ProtocolError(
            "bad-message",
            f"A {kind} message is wrong{f' at {field}' if field else ''}: it {misfit.words:.500}.",
            field=field or None,
            got=repr(misfit.got)[:200],
        )
    twice = _repeated(message)
    if twice is not None:
        raise ProtocolError(
            "bad-message", f"A {kind} message is wrong at {twice}: it comes twice.", field=twice
        )


def _repeated(holder: dict[str, Any]) -> str | None:
    """Return where a list has a second entry of one name or number: neither could be told apart nor drawn."""
    for member, by in _NAMED.items():
        entries = holder.get(member)
        seen: set[object] = set()
        for at, entry in enumerate(entries if isinstance(entries, list) else ()):
            called = entry.get(by) if isinstance(entry, dict) else None
            called = called if isinstance(called, (str, int)) else None
            inner = _repeated(entry) if member == "sites" and isinstance(entry, dict) else None
            if inner is not None or called in seen:
                return f"{member}.{at}.{inner or by}"
            if called is not None:
                seen.add(called)
    layout = holder.get("layout")
    inner = _repeated(layout) if isinstance(layout, dict) else None
    return inner and f"layout.{inner}"


@cache
def _check_of(name: str) -> SchemaCheck:
    return schema_check({"$ref": f"#/$defs/{name}"}, _SCHEMA["$defs"])


def check_definition(name: str, value: Any, field: str) -> None:
    """Check a value against one definition of the schema, such as ``Stream``; ``field`` is its dotted name.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, with the dotted field.
    """
    misfit = _check_of(name)(value)
    if misfit is not None:
        where = ".".join([field, *map(str, misfit.path)])[:300]
        raise ProtocolError(
            "bad-parameter",
            f"{where} is wrong: it {misfit.words:.500}.",
            field=where,
            got=repr(misfit.got)[:200],
        )
