"""Connecting to a hub at the very address that was named."""

from __future__ import annotations

from typing import Any

from websockets.asyncio.client import connect

from .bounded_connection import BoundedClientConnection

__all__ = ["DirectConnect"]


class DirectConnect(connect):
    """Never follows a redirect: another host must get neither the token nor the connection. What answers is bounded in what it can make this side hold."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, create_connection=BoundedClientConnection, **kwargs)

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Let the redirect be the error that it is."""
        return exc
