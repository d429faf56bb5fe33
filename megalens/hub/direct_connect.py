"""Connecting to a hub at the very address that was named."""

from __future__ import annotations

from websockets.asyncio.client import connect

__all__ = ["DirectConnect"]


class DirectConnect(connect):
    """Never follows a redirect: another host must get neither the token nor the connection."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Let the redirect be the error that it is."""
        return exc
