"""What a frame's Arrow body must look like before Arrow's own reader is let at it."""

from __future__ import annotations

import struct

from .errors import ProtocolError
from .flatbuffer import message_header, table_field, u32

__all__ = ["check_arrow_stream"]

_PREFIX = struct.Struct("<Ii")
_NO_NULLS = bytes(8)
_CONTINUATION = 0xFFFFFFFF
_SCHEMA, _RECORD_BATCH = 1, 3
_MAX_BATCHES = 4096


def check_arrow_stream(body: memoryview, stream: str, schema_bytes: int = 0) -> list[int]:
    """Walk the messages of an Arrow IPC stream: one schema, record batches without compression, the end marker at the very end.

    Arrow's reader alone would also take compressed buffers, of which a few bytes can say that they unfold to any size, dictionaries,
    which no stream has, nulls, which a reader that views the buffers would see as numbers, and bytes after the end.

    Parameters
    ----------
    body : memoryview
        The body of a frame.
    stream : str
        Name of its stream, for the error.
    schema_bytes : int
        Length of the schema's message, where the caller has compared it with its own; 0 reads it too.

    Returns
    -------
    list of int
        Where each record batch begins.

    Raises
    ------
    ProtocolError
        ``bad-frame``.
    """
    at = schema_bytes
    starts = [0] if schema_bytes else []
    try:
        while True:
            marker, length = _PREFIX.unpack_from(body, at)
            if marker != _CONTINUATION or length < 0 or length % 8:
                raise _bad(stream, "has a message without its length")
            begin, at = at, at + 8
            if length == 0:
                break
            kind, header, size = message_header(body[at : at + length])
            if kind != (_RECORD_BATCH if starts else _SCHEMA):
                raise _bad(stream, "holds something else than a schema and its record batches")
            if kind == _RECORD_BATCH:
                _check_batch(body[at : at + length], header, stream)
            at += length + size
            starts.append(begin)
            if size % 8 or size < 0 or at > len(body) or len(starts) > _MAX_BATCHES + 1:
                raise _bad(stream, "has a message of an impossible size")
    except struct.error:
        raise _bad(stream, "is cut short") from None
    if at != len(body):
        raise _bad(stream, "has bytes after its end")
    if not starts:
        raise _bad(stream, "has no schema")
    return starts[1:]


def _check_batch(metadata: memoryview, batch: int, stream: str) -> None:
    if not batch:
        raise struct.error
    if table_field(metadata, batch, 3):
        raise _bad(stream, "is compressed")
    nodes = table_field(metadata, batch, 1)
    if not nodes:
        raise struct.error
    nodes += u32(metadata, nodes)
    count = u32(metadata, nodes)
    if nodes + 4 + 16 * count > len(metadata):
        raise struct.error
    # A node is a length and a number of nulls, 8 bytes each.
    for at in range(nodes + 12, nodes + 4 + 16 * count, 16):
        if metadata[at : at + 8] != _NO_NULLS:
            raise _bad(stream, "holds nulls: rows that are missing are left out, and not-a-number is NaN")


def _bad(stream: str, what: str) -> ProtocolError:
    return ProtocolError(
        "bad-frame", f"The body of a {stream} frame {what}. Expected one plain Arrow IPC stream."
    )
