"""What viewers ask the producer for beside changes: to have the model write text, and to end that."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..protocol import ProtocolError, encode_message
from ..protocol.messages_generated import Cancel, ErrorMessage, Generate, Generating
from .control_check import check_allowed

if TYPE_CHECKING:
    from .run_state import RunState
    from .session import Session

__all__ = ["Requests"]

_MOST_WAITING = 16


class Requests:
    """Carries ``generate`` and ``cancel`` from their viewer to the producer that leads, and its answer back
    to that viewer.

    How a generation goes on after the answer is told by rows of the stream ``generations``, to everybody.

    Parameters
    ----------
    state : RunState
        What is known about the run.
    viewers : mapping of int to Session
        The viewers that are attached; it changes as they come and go.
    leaders : callable
        Returns the producers that answer.
    """

    def __init__(
        self, state: RunState, viewers: Mapping[int, Session], leaders: Callable[[], list[Session]]
    ) -> None:
        self._state = state
        self._viewers = viewers
        self._leaders = leaders
        self._numbers = itertools.count(1)
        # By the hub's own id: the viewer, its id, and the producer that was asked.
        self._waiting: dict[str, tuple[int, str, int]] = {}

    def ask(self, session: Session, message: Generate | Cancel) -> None:
        """Pass a viewer's request on.

        Raises
        ------
        ProtocolError
            ``no-producer`` or ``refused``.
        """
        waiting = sum(viewer == session.number for viewer, _, _ in self._waiting.values())
        if waiting >= _MOST_WAITING or not session.pace.take():
            raise ProtocolError(
                "refused",
                "Requests come faster than the run can take them. Wait for an answer, then ask again.",
                field="id",
                expected=f"at most {session.pace.rate:g} a second and {_MOST_WAITING} under way",
                got=message["id"],
            )
        leaders = self._leaders()
        if not leaders:
            # First: what the script allows comes with its process.
            raise ProtocolError(
                "no-producer", "No process that could write text is attached. Try again when one is."
            )
        check_allowed("generate", self._state.hello().get("controls", ()), message["type"])
        # Of its own, so that two viewers' ids never meet.
        key = str(next(self._numbers))
        passed: Generate | Cancel = {**message, "id": key}  # type: ignore[assignment]
        if passed["type"] == "generate":
            passed["by"] = session.peer
        self._waiting[key] = (session.number, message["id"], leaders[0].number)
        if not leaders[0].tell(encode_message(passed)):
            self.forget(leaders[0].number)

    def answer(self, session: Session, message: Generating | ErrorMessage) -> bool:
        """Take a producer's answer, ``generating`` or ``error``; return whether it is one of these."""
        key = message["id"] if message["type"] == "generating" else message.get("reply_to", "")
        viewer, asked, producer = self._waiting.get(key, (-1, "", -1))
        if producer != session.number:
            return False
        del self._waiting[key]
        asker = self._viewers.get(viewer)
        if asker is not None:
            if message["type"] == "generating":
                asker.enqueue(encode_message({**message, "id": asked}))
            else:
                asker.enqueue(encode_message({**message, "reply_to": asked}))
        return True

    def forget(self, producer: int) -> None:
        """Wait no more for a producer that went, and say so."""
        for key, (viewer, asked, of) in list(self._waiting.items()):
            if of != producer:
                continue
            del self._waiting[key]
            asker = self._viewers.get(viewer)
            if asker is not None:
                error = ProtocolError(
                    "no-producer", "The process went, or reads nothing, before it answered."
                )
                asker.enqueue(encode_message(error.to_message(asked)))
