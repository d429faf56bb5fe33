"""A port for clients that bring no token: on loopback unless another address is given, and closed to pages of other sites."""

from __future__ import annotations

import http
import ipaddress
import re
from collections.abc import Awaitable, Callable

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from .errors import DialectError

__all__ = ["LOOPBACK", "address_of", "open_server"]

LOOPBACK = "127.0.0.1"
_LOCAL = r"localhost|127\.0\.0\.1|\[::1\]"
_MOST_REQUEST = 1 << 20


def address_of(host: str, port: int) -> str:
    """Return where clients connect to."""
    return f"ws://{_in_address(host)}:{port}"


async def open_server(
    handler: Callable[[ServerConnection], Awaitable[None]], port: int, host: str = LOOPBACK
) -> Server:
    """Listen, and hand each connection that is admitted to ``handler``.

    A client is admitted that asks for this machine as ``localhost`` or under ``host``; a browser's page must be from there, too.

    Parameters
    ----------
    handler : callable
        Serves one connection.
    port : int
        Port; 0 takes any free one.
    host : str
        Address or name under which clients find this machine.

    Raises
    ------
    DialectError
        ``bad-parameter`` when the port is in use, or the host names no single address.
    """
    if _is_unspecified(host):
        raise DialectError(
            "bad-parameter",
            f"The host must be an address or a name under which clients find this machine, got {host}: pages of other sites could not be told from its own.",
        )
    ours = re.compile(f"({_LOCAL}|{re.escape(_in_address(host).lower())})(:[0-9]{{1,5}})?")

    def admit(connection: ServerConnection, request: Request) -> Response | None:
        hosts = request.headers.get_all("Host")
        if len(hosts) != 1 or not ours.fullmatch(hosts[0].lower()):
            return connection.respond(http.HTTPStatus.FORBIDDEN, f"Ask for {host}.\n")
        for origin in request.headers.get_all("Origin"):
            scheme, _, name = origin.lower().partition("://")
            if scheme not in ("http", "https") or not ours.fullmatch(name):
                return connection.respond(
                    http.HTTPStatus.FORBIDDEN, "Only pages of this machine may connect.\n"
                )
        return None

    try:
        return await serve(
            handler,
            host,
            port,
            process_request=admit,
            compression=None,
            max_size=_MOST_REQUEST,
            ping_timeout=None,
            close_timeout=2,
            server_header=None,
        )
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DialectError(
            "bad-parameter", f"Could not listen on {host}:{port}: {reason}. Choose another --port."
        ) from error


def _is_unspecified(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
