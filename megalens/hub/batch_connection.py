"""A WebSocket connection that sends what waits in one go."""

from __future__ import annotations

from collections.abc import Iterable

from websockets.asyncio.server import ServerConnection

__all__ = ["BatchConnection"]


class BatchConnection(ServerConnection):
    """A server connection with one system call for several messages: for small frames that call is most of the cost."""

    async def send_batch(self, messages: Iterable[str | bytes]) -> None:
        """Send several messages, each one a WebSocket message of its own, and wait until the socket takes more.

        Raises
        ------
        websockets.exceptions.ConnectionClosed
            When the connection is closed.
        """
        async with self.send_context():
            for message in messages:
                if isinstance(message, str):
                    self.protocol.send_text(message.encode())
                else:
                    self.protocol.send_binary(message)

    def send_data(self) -> None:
        """Write what the protocol has ready: called by the base class wherever it sends."""
        pieces = self.protocol.data_to_send()
        # An empty piece means the end of the stream.
        whole = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if whole:
            self.transport.write(whole)
        if pieces and not pieces[-1]:
            if self.transport.can_write_eof():
                self.transport.write_eof()
            else:
                self.transport.close()
