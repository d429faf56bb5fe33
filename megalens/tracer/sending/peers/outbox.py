"""What other threads want to have sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from .channel import MessageKind

__all__ = ["Outbox"]

_EARLY_BYTES = 64 << 20


class Outbox:
    """Messages on their way to the peers' thread. Those of instruments wait for a leader that is not found yet: the first steps may be over before.

    Parameters
    ----------
    put : callable
        Queues a message at its connection; False when it was not taken.
    lost : callable
        Told that a message of an instrument was given up, and with it perhaps a description that later ones lean on.
    """

    def __init__(
        self, put: Callable[[int, MessageKind, dict[str, Any], Any], bool], lost: Callable[[], None]
    ) -> None:
        self._put = put
        self._lost = lost
        self._new: deque[tuple[int, MessageKind, dict[str, Any], Any]] = deque()
        self._early: deque[tuple[int, MessageKind, dict[str, Any], Any]] = deque()
        self._early_bytes = 0
        self.given_up = 0
        """Messages of instruments that could not be sent."""

    @property
    def waiting(self) -> bool:
        """Whether messages wait for their leader."""
        return bool(self._early)

    def add(self, rank: int, kind: MessageKind, meta: dict[str, Any], payload: Any) -> None:
        """Take a message, from any thread."""
        self._new.append((rank, kind, meta, payload))

    def empty(self, connected: Callable[[int], bool]) -> None:
        """Send what can be sent; in the peers' thread."""
        while self._early and connected(self._early[0][0]):
            message = self._early.popleft()
            self._early_bytes -= len(message[3])
            self._send(message)
        while self._new:
            message = self._new.popleft()
            if message[1] is not MessageKind.INSTRUMENT or connected(message[0]):
                self._send(message)
                continue
            self._early.append(message)
            self._early_bytes += len(message[3])
            if self._early_bytes > _EARLY_BYTES:
                self._early_bytes -= len(self._early.popleft()[3])
                self._give_up()

    def _send(self, message: tuple[int, MessageKind, dict[str, Any], Any]) -> None:
        if not self._put(*message) and message[1] is MessageKind.INSTRUMENT:
            self._give_up()

    def _give_up(self) -> None:
        self.given_up += 1
        self._lost()
