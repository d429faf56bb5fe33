"""What both ends of a connection use: how often somebody may do something, and heads of frames that go past
the library's copies.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

__all__ = ["NO_MASK", "binary_head", "Pace"]

_SHORT, _LONG = struct.Struct("!BBH"), struct.Struct("!BBQ")
_WHOLE_BINARY = 0x82
NO_MASK = bytes(4)


def binary_head(length: int, *, masked: bool) -> bytes:
    """Return the head of a frame that is a whole binary message (RFC 6455, section 5.2).

    Parameters
    ----------
    length : int
        Bytes of the message.
    masked : bool
        Whether it says that the message is masked, as a client's must: with zeros, which leave it as it is.
    """
    mask, key = (0x80, NO_MASK) if masked else (0, b"")
    if length < 126:
        return bytes((_WHOLE_BINARY, mask | length)) + key
    if length < 1 << 16:
        return _SHORT.pack(_WHOLE_BINARY, mask | 126, length) + key
    return _LONG.pack(_WHOLE_BINARY, mask | 127, length) + key


class Pace:
    """A few at once, and then so many a second.

    Parameters
    ----------
    burst : int
        How many at once.
    rate : float
        How many a second after that.
    clock : callable
        Seconds that never jump.
    """

    def __init__(self, burst: int, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.burst = burst
        self.rate = rate
        self._clock = clock
        self._left = float(burst)
        self._at = clock()

    def take(self, cost: int = 1) -> bool:
        """Return whether one more may be done now, and count it: as several where it costs as much as
        these.
        """
        now = self._clock()
        self._left = min(self.burst, self._left + (now - self._at) * self.rate)
        self._at = now
        if self._left < cost:
            return False
        self._left -= cost
        return True
