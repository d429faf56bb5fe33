"""Just enough of FlatBuffers to look into the metadata of an Arrow message without reading its body."""

from __future__ import annotations

import struct

__all__ = ["message_header", "table_field", "u32"]

_LONG = struct.Struct("<q")


def message_header(metadata: memoryview) -> tuple[int, int, int]:
    """Return header type, place of the header and body length out of the flatbuffer ``Message``.

    Raises
    ------
    struct.error
        When it ends too early.
    """
    table = u32(metadata, 0)
    kind_at, header_at, size_at = (table_field(metadata, table, number) for number in (1, 2, 3))
    kind = metadata[kind_at] if 0 < kind_at < len(metadata) else 0
    header = header_at + u32(metadata, header_at) if header_at else 0
    return kind, header, _LONG.unpack_from(metadata, size_at)[0] if size_at else 0


def table_field(metadata: memoryview, table: int, number: int) -> int:
    """Return where a field of a flatbuffer table is, 0 when it is absent."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if vtable < 0:
        raise struct.error
    slot = 4 + 2 * number
    if slot + 2 > struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", metadata, vtable + slot)[0]
    return table + offset if offset else 0


def u32(metadata: memoryview, at: int) -> int:
    """Return the unsigned number of 32 bits at a place."""
    return int(struct.unpack_from("<I", metadata, at)[0])
