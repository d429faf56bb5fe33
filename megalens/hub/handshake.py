"""Who may open a WebSocket to the hub."""

from __future__ import annotations

import hmac
import http
from collections.abc import Callable, Sequence

from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from ..protocol import SUBPROTOCOL

__all__ = ["check_upgrade", "select_subprotocol"]


def check_upgrade(
    own_token: str,
    places: Callable[[], int] = lambda: 1,
    refused: Callable[[str], None] = lambda why: None,
) -> Callable[[ServerConnection, Request], Response | None]:
    """Return the check of a handshake: no browser, the right token, the one path, a place left. It answers with what to refuse with, or None.

    ``refused`` is told why, in a few words.
    """

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        if request.headers.get_all("Origin"):
            refused("browsers turned away")
            return connection.respond(
                http.HTTPStatus.FORBIDDEN,
                "Browsers reach a hub through the Jupyter server's relay, not directly.\n",
            )
        given = request.headers.get_all("Authorization")
        scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
        right = hmac.compare_digest(token.strip().encode("utf-8", "surrogateescape"), own_token.encode())
        if scheme.lower() != "bearer" or not right:
            refused("connections without the token turned away")
            response = connection.respond(
                http.HTTPStatus.UNAUTHORIZED,
                "Expected the header Authorization: Bearer with the token of the hub's runtime file.\n",
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            return response
        if request.path.partition("?")[0] != "/":
            return connection.respond(http.HTTPStatus.NOT_FOUND, "A hub listens at the path / only.\n")
        if places() < 1:
            refused("connections turned away because every place is taken")
            return connection.respond(
                http.HTTPStatus.SERVICE_UNAVAILABLE,
                "This hub has as many connections as the system's limit of open files allows. "
                "Raise the limit (ulimit -n) and start the hub again.\n",
            )
        return None

    return admit


def select_subprotocol(connection: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Return the subprotocol that a connection gets."""
    if SUBPROTOCOL in offered:
        return Subprotocol(SUBPROTOCOL)
    # Taken under its own name, so that a browser can read the error that follows.
    return next((name for name in offered if name.startswith("megalens.")), None)
