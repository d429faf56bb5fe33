"""Opening a connection to a hub on somebody's behalf."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidHandshake, InvalidStatus
from websockets.typing import Subprotocol

from ..hub.direct_connect import DirectConnect
from ..protocol import MAX_HUB_BYTES
from .errors import ServerError

__all__ = ["open_hub"]

_OPEN_SECONDS = 10

# The library's own log has the headers at debug level, and the token is one of them.
_QUIET = logging.getLogger("megalens.server.websockets")
_QUIET.setLevel(logging.CRITICAL)
_QUIET.propagate = False


async def open_hub(address: str, token: str, subprotocols: Sequence[str]) -> ClientConnection:
    """Connect to a hub.

    Parameters
    ----------
    address, token : str
        Where it is and how to be let in.
    subprotocols : sequence of str
        What the browser offered; passed on as it is.

    Raises
    ------
    ServerError
        502, code ``unreachable`` or ``unauthorized``.
    """
    try:
        return await DirectConnect(
            address,
            subprotocols=[Subprotocol(name) for name in subprotocols] or None,
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            # A proxy of the environment must see neither the rows nor the token.
            proxy=None,
            max_size=MAX_HUB_BYTES,
            # What waits here is memory of this server; the hub's own queue coalesces and is the one to fill.
            max_queue=2,
            # A browser that is slow must not look dead to the hub.
            ping_interval=20,
            ping_timeout=None,
            open_timeout=_OPEN_SECONDS,
            close_timeout=2,
            logger=_QUIET,
        )
    except InvalidStatus as error:
        if error.response.status_code in (401, 403):
            raise ServerError(
                502, "unauthorized", "The hub refused the token. Copy it anew.", "token"
            ) from error
        raise _unreachable() from error
    except (InvalidHandshake, OSError, asyncio.TimeoutError, ValueError, EOFError) as error:
        raise _unreachable() from error


def _unreachable() -> ServerError:
    return ServerError(
        502, "unreachable", "The hub could not be reached. Check that the run is still there.", "address"
    )
