"""The head of a WebSocket frame, for who writes frames of a megabyte past the library's copies."""

from __future__ import annotations

import struct

__all__ = ["binary_head"]

_SHORT, _LONG = struct.Struct("!BBH"), struct.Struct("!BBQ")
_WHOLE_BINARY = 0x82
_NO_MASK = bytes(4)


def binary_head(length: int, *, masked: bool) -> bytes:
    """Return the head of a frame that is a whole binary message (RFC 6455, section 5.2).

    Parameters
    ----------
    length : int
        Bytes of the message.
    masked : bool
        Whether it says that the message is masked, as a client's must: with zeros, which leave it as it is.
    """
    mask, key = (0x80, _NO_MASK) if masked else (0, b"")
    if length < 126:
        return bytes((_WHOLE_BINARY, mask | length)) + key
    if length < 1 << 16:
        return _SHORT.pack(_WHOLE_BINARY, mask | 126, length) + key
    return _LONG.pack(_WHOLE_BINARY, mask | 127, length) + key
