"""Memory for small arrays that stay while large ones come and go."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arena"]

_BLOCK_BYTES = 8 * 1024 * 1024
_ALIGNED = 64


class Arena:
    """Keeps copies of arrays side by side in large blocks.

    Where they lie in gaps between large arrays that are freed, the next large ones do not fit into these: a hundred megabytes more of memory are taken, which the system has to
    clear first.
    """

    def __init__(self) -> None:
        self._block = np.empty(0, np.uint8)
        self._used = 0

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return a copy."""
        wanted = -(-array.nbytes // _ALIGNED) * _ALIGNED
        if self._used + wanted > len(self._block):
            self._block, self._used = np.empty(max(_BLOCK_BYTES, wanted), np.uint8), 0
        copy = self._block[self._used : self._used + array.nbytes].view(array.dtype)
        copy[:] = array
        self._used += wanted
        return copy
