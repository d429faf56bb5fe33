"""Which hubs a user may connect to by address."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Any

from .errors import ServerError

__all__ = ["AllowedHubs"]

_ADDRESS = re.compile(r"ws://(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):([0-9]{1,5})/?")


class AllowedHubs:
    """The administrator's patterns ``host:port``.

    Parameters
    ----------
    patterns : iterable of str
        None allows none.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        # [::1]:8000 is an address here, never a set of characters.
        self._patterns = [pattern.lower().replace("[", "[[]") for pattern in patterns]

    def check(self, address: Any) -> str:
        """Return the address of a hub that may be connected by hand.

        Raises
        ------
        ServerError
            400 when it is no address, 403 when the administrator did not allow it.
        """
        match = _ADDRESS.fullmatch(address) if isinstance(address, str) and len(address) <= 300 else None
        if match is None or not 0 < int(match[2]) < 65536:
            raise ServerError(400, "bad-parameter", "An address must look like ws://host:port.", "address")
        place = f"{match[1].lower()}:{int(match[2])}"
        if not any(fnmatch.fnmatchcase(place, pattern) for pattern in self._patterns):
            raise ServerError(
                403,
                "forbidden",
                f"This server may not connect to {place}. Its administrator can allow it in c.MegalensExtension.allowed_hubs.",
                "address",
            )
        return f"ws://{place}"
