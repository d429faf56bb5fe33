"""The changes that are under way: what viewers ask for, and what producers answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..protocol import ProtocolError, encode_message
from ..protocol.messages_generated import Configure, Configured, ErrorMessage, Message
from .audit_actions import audit_actions, difference
from .change import Change
from .config_check import check_patch
from .control_check import check_controls

if TYPE_CHECKING:
    from .run_state import RunState
    from .session import Session

__all__ = ["Changes"]

_MOST_WAITING = 16


class Changes:
    """Carries every ``configure`` from its viewer to the producers, and their answers back to all viewers.

    Parameters
    ----------
    state : RunState
        What is known about the run.
    viewers : mapping of int to Session
        The viewers that are attached; it changes as they come and go.
    leaders : callable
        Returns the producers that answer changes.
    applied : callable
        Told of every change that took effect: who asked, what was done, the detail and the step, as a row of ``audit`` has them.
    """

    def __init__(
        self,
        state: RunState,
        viewers: Mapping[int, Session],
        leaders: Callable[[], list[Session]],
        applied: Callable[[str, str, dict[str, Any], int], None],
    ) -> None:
        self._state = state
        self._viewers = viewers
        self._all_leaders = leaders
        self._applied = applied
        self._changes: dict[str, Change] = {}

    def ask(self, session: Session, message: Configure) -> None:
        """Check a viewer's ``configure`` and pass it to every producer that answers for itself or for others.

        Raises
        ------
        ProtocolError
            ``no-producer``, ``refused``, or what is wrong with the patch.
        """
        self._check_pace(session, message)
        leaders = self._leaders()
        job = self._state.hello()
        check_patch(message["patch"], job["flags"], job["compressors"], job.get("configurable", ()))
        check_controls(message["patch"], job.get("controls", ()), job.get("sites", []))
        change = Change(
            f"{session.number}:{message['id']}",
            message["id"],
            session.number,
            session.peer,
            message["patch"],
            {producer.number for producer in leaders},
        )
        if change.id in self._changes:
            raise ProtocolError(
                "refused",
                "A change with this id is still under way. Use another id.",
                field="id",
                got=message["id"],
            )
        self._changes[change.id] = change
        text = encode_message({"type": "configure", "id": change.id, "patch": change.patch})
        for producer in leaders:
            if not producer.tell(text):
                # What does not read cannot agree; it is not waited for.
                change.forget(producer.number)
        self._progress(change, None)

    def _leaders(self) -> list[Session]:
        """Return the producers that answer a change."""
        leaders = self._all_leaders()
        missing = sorted(
            {self._state.job.leader(rank) for rank in self._state.attached} - self._state.attached
        )
        if missing:
            raise ProtocolError(
                "no-producer",
                f"{self._state.ranks.name(missing[0], at_start=True)}, which agrees on changes with all other processes, is not attached. "
                "Try again when it is back.",
                expected=f"rank {missing[0]}",
                got=f"ranks {_some(sorted(self._state.attached))}",
            )
        if not leaders:
            raise ProtocolError(
                "no-producer",
                "No training process is attached, so there is nothing to configure. Try again when one is.",
            )
        return leaders

    def _check_pace(self, session: Session, message: Configure) -> None:
        waiting = sum(change.viewer == session.number for change in self._changes.values())
        if waiting < _MOST_WAITING and session.pace.take():
            return
        raise ProtocolError(
            "refused",
            "Changes come faster than the training can take them. Wait for an answer, then send the newest one again.",
            field="id",
            expected=f"at most {session.pace.rate:g} changes a second and {_MOST_WAITING} under way",
            got=message["id"],
        )

    def answer(self, session: Session, message: Configured) -> None:
        """Take a producer's ``configured``."""
        if not session.leads:
            # The leader answers for it.
            return
        change = self._changes.get(message["id"])
        if change is None or session.number not in change.producers:
            # The training script changed something itself.
            change = Change(
                message["id"], message["id"], session.number, session.peer, {"flags": {}}, {session.number}
            )
            if message["applied"]:
                change.patch = difference(self._state.config, message["config"])
        change.answer(session.number, message)
        self._progress(change, message)

    def refuse(self, session: Session, message: ErrorMessage) -> None:
        """Take a producer's ``error``."""
        change = self._changes.get(message.get("reply_to", ""))
        if change is None or session.number not in change.producers:
            return
        first = not change.refused
        change.refuse(session.number)
        viewer = self._viewers.get(change.viewer)
        if first and viewer is not None:
            viewer.enqueue(encode_message({**message, "reply_to": change.viewer_id}))
        self._progress(change, message)

    def forget(self, producer: int) -> None:
        """Wait no more for a producer that went."""
        for change in list(self._changes.values()):
            change.forget(producer)
            self._progress(change, None)

    def _progress(self, change: Change, message: Message | None) -> None:
        """Tell viewers what has become of a change."""
        for news in change.news():
            news = {**news, "by": change.peer, "time": time.time()}
            if news["applied"]:
                self._state.configure(news["config"])
                for action, part in audit_actions(change.patch):
                    detail = {"patch": {"flags": {}, **part}}
                    # A person's name says more than that of the program.
                    who = change.peer.get("user") or change.peer["name"]
                    self._applied(who, action, detail, news["step"])
            for_others = encode_message({**news, "id": change.id})
            for viewer in list(self._viewers.values()):
                own = viewer.number == change.viewer
                viewer.enqueue(encode_message({**news, "id": change.viewer_id}) if own else for_others)
        if not change.finished:
            return
        known = self._changes.pop(change.id, None)
        asker = self._viewers.get(change.viewer)
        if known and message is None and asker and not change.refused and True not in change.told:
            error: ErrorMessage = {
                "type": "error",
                "code": "no-producer",
                "message": "The training process went, or reads nothing, before it applied the change.",
                "reply_to": change.viewer_id,
            }
            asker.enqueue(encode_message(error))


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
