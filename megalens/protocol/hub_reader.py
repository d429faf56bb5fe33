"""Checks what a hub sends where it enters: in the relay and in a kernel."""

from __future__ import annotations

from .errors import ProtocolError
from .frame import Frame, decode_frame
from .messages import decode_message
from .messages_generated import Message
from .streams import STREAMS, Streams

__all__ = ["FROM_HUB", "MAX_HUB_BYTES", "HubReader"]

FROM_HUB = ("hello", "configured", "generating", "status", "error", "goodbye")
MAX_HUB_BYTES = 72 * 1024 * 1024
"""Largest message of a hub: the largest frame of a producer, and what else may be merged with it."""


class HubReader:
    """Checks each message of one connection by its schema, their order, and that the run stays the same.

    Attributes
    ----------
    run : str or None
        Id of the run: the one that this hub was found under, or whichever its first ``hello`` names.
    """

    def __init__(self, run: str | None = None) -> None:
        self.run = run
        self._greeted = False

    def message(self, text: str) -> Message:
        """Return a control message.

        Raises
        ------
        ProtocolError
            As :func:`decode_message`; ``bad-message`` for one that comes before ``hello``; ``refused`` for
            the ``hello`` of another run.
        """
        message = decode_message(text, FROM_HUB)
        if message["type"] == "hello":
            run = message["run"]["id"]
            if self.run not in (None, run):
                raise ProtocolError(
                    "refused",
                    "Another hub answers where the hub of this run was.",
                    field="run.id",
                    expected=self.run,
                    got=run,
                )
            self.run, self._greeted = run, True
        elif not self._greeted and message["type"] in ("configured", "generating", "status"):
            raise ProtocolError(
                "bad-message",
                f"A hub sent {message['type']} before hello.",
                expected="hello",
                got=message["type"],
            )
        return message

    def frame(self, data: bytes, streams: Streams = STREAMS) -> Frame:
        """Return the header of a data frame. Its rows are checked by who reads them.

        Raises
        ------
        ProtocolError
            As :func:`decode_frame`; ``bad-frame`` for one that comes before ``hello``.
        """
        if not self._greeted:
            raise ProtocolError("bad-frame", "A hub sent rows before hello.", expected="hello", got="rows")
        return decode_frame(data, streams)
