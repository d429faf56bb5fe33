"""Connects to a foreign hub, and detects its dialect."""

from __future__ import annotations

import asyncio
import json
import time

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from ..connections import DirectConnect
from .dialect import DIALECTS, Dialect, DialectError

MOST_BYTES = 256 * 1024 * 1024
"""Largest message of a foreign hub."""
_OPEN_SECONDS = 10
_PROBE_SECONDS = 3.0


async def open_peer(address: str) -> ClientConnection | None:
    """Connect to a foreign hub. None when it cannot be reached now.

    Raises ``DialectError``: ``bad-parameter`` for no address, ``dialect`` when the answer is no such hub's.
    """
    try:
        return await DirectConnect(
            address,
            compression=None,
            proxy=None,
            max_size=MOST_BYTES,
            max_queue=4,
            open_timeout=_OPEN_SECONDS,
            close_timeout=2,
            # A peer that computes for long is still there; the pings find out when the machine is not.
            ping_interval=20,
            ping_timeout=None,
        )
    except InvalidURI as error:
        raise DialectError(
            "bad-parameter", f"{address!r:.200} is no address such as ws://host:5000."
        ) from error
    except InvalidStatus as error:
        status = error.response.status_code
        hint = " A Megalens hub is connected to with its token." if status in (401, 403) else ""
        raise DialectError(
            "dialect", f"{address} answers with HTTP status {status}, which none of these hubs does.{hint}"
        ) from error
    except (InvalidHandshake, OSError, asyncio.TimeoutError, EOFError):
        return None


async def detect(connection: ClientConnection) -> tuple[Dialect, list[str | bytes]]:
    """Return the hub's dialect, and what else it sent meanwhile; raises ``DialectError`` (``dialect``).

    It shows in the answers to ``ping`` and to a message that none of them knows.
    """
    await connection.send(json.dumps({"type": "ping"}))
    await connection.send(json.dumps({"type": "megalens-who-are-you"}))
    ponged = False
    others: list[str | bytes] = []
    received = 0
    deadline = time.monotonic() + _PROBE_SECONDS
    try:
        # A hub may send its steps meanwhile, and none is left out; one that sends more than this says nothing
        # else.
        while time.monotonic() < deadline and received <= MOST_BYTES:
            data = await asyncio.wait_for(connection.recv(), deadline - time.monotonic())
            if data == "Value Error!":
                return DIALECTS["inference"], others
            if isinstance(data, str) and data.replace(" ", "") == '{"type":"pong"}':
                ponged = True
                # The training hub prints the other message and says nothing, so there is no need to wait as
                # long.
                deadline = time.monotonic() + _PROBE_SECONDS / 3
            else:
                others.append(data)
                received += len(data)
    except (asyncio.TimeoutError, ConnectionClosed):
        pass
    if ponged:
        return DIALECTS["T1"], others
    names = ", ".join(f"{dialect.name} ({dialect.title})" for dialect in DIALECTS.values())
    raise DialectError(
        "dialect",
        "What this hub speaks cannot be told: it answers no ping, and the hubs that do not are alike "
        f"until they start. Say it with --dialect: {names}.",
    )
