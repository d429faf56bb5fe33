"""How a hub is connected to, how often a peer may do something, and heads of WebSocket frames that bypass the
library's copies.
"""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from typing import Any

__all__ = ["NO_MASK", "binary_head", "hub_options", "Pace"]

_SHORT, _LONG = struct.Struct("!BBH"), struct.Struct("!BBQ")
_BINARY_MESSAGE = 0x82
NO_MASK = bytes(4)

# The library's own log names the peer and dumps headers at debug level; a token must not get there.
_QUIET = logging.getLogger("megalens.protocol.websockets")
_QUIET.setLevel(logging.CRITICAL)
_QUIET.propagate = False


def hub_options(token: str, *subprotocols: str) -> dict[str, Any]:
    """Return what the library is told to connect to a hub by its token."""
    return {
        "additional_headers": {"Authorization": f"Bearer {token}"},
        "subprotocols": list(subprotocols) or None,
        "compression": None,
        # A proxy of the environment must see neither the rows nor the token.
        "proxy": None,
        "logger": _QUIET,
    }


def binary_head(length: int, *, masked: bool) -> bytes:
    """Return the head of a frame that is one binary message of ``length`` bytes (RFC 6455, section 5.2).

    ``masked``: a client's messages must be; the mask is zeros, which leave the bytes as they are.
    """
    mask, key = (0x80, NO_MASK) if masked else (0, b"")
    if length < 126:
        return bytes((_BINARY_MESSAGE, mask | length)) + key
    if length < 1 << 16:
        return _SHORT.pack(_BINARY_MESSAGE, mask | 126, length) + key
    return _LONG.pack(_BINARY_MESSAGE, mask | 127, length) + key


class Pace:
    """A token bucket: ``burst`` at once, then ``rate`` a second. ``clock`` gives seconds that never jump."""

    def __init__(self, burst: int, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self.rate = rate
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self, cost: int = 1) -> bool:
        """Return whether something of this cost may be done now, and count it."""
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < cost:
            return False
        self._left -= cost
        return True
