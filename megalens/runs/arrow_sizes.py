"""Sizes of the messages of an Arrow stream file, found in their heads before Arrow reads them."""

from __future__ import annotations

import struct
from typing import BinaryIO

from ..protocol.flatbuffer import message_header, table_field, u32
from .unfolding import check_unfolded

__all__ = ["check_message_size"]

_PREFIX = struct.Struct("<Ii")
_LONG = struct.Struct("<q")
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH = 3
_AS_IT_IS = -1


def check_message_size(file: BinaryIO, name: str, at: int, size: int) -> None:
    """Refuse a message whose compressed buffers say that they unfold to too much: Arrow takes that memory before it looks at them.

    Parameters
    ----------
    file : file
        The stream file.
    name : str
        Its name, for the error.
    at : int
        Where the message begins.
    size : int
        Where the file ends.

    Raises
    ------
    ClientError
        ``unreadable``.
    struct.error
        When the message is not whole.
    """
    if at == size:
        return
    file.seek(at)
    marker, length = _PREFIX.unpack(file.read(8))
    if marker != _CONTINUATION or length <= 0:
        # The mark of the end, or what Arrow refuses.
        return
    if at + 8 + length > size:
        raise struct.error
    head = memoryview(file.read(length))
    kind, batch, body = message_header(head)
    begin = at + 8 + length
    if body < 0 or begin + body > size:
        raise struct.error
    if kind != _RECORD_BATCH or not table_field(head, batch, 3):
        return
    vector = table_field(head, batch, 2)
    if not vector:
        raise struct.error
    vector += u32(head, vector)
    unfolded = 0
    for number in range(min(u32(head, vector), len(head) // 16)):
        offset, stored = (_LONG.unpack_from(head, vector + 4 + 16 * number + part)[0] for part in (0, 8))
        if stored >= 8 and 0 <= offset <= body - 8:
            file.seek(begin + offset)
            said = _LONG.unpack(file.read(8))[0]
            unfolded += stored if said == _AS_IT_IS else max(0, said)
    check_unfolded(name, unfolded, body)
