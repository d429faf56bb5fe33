"""The changes that are under way: what viewers ask for, and what producers answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..protocol import ProtocolError
from .change import Change
from .config_check import check_patch

if TYPE_CHECKING:
    from .server import Hub
    from .session import Session

__all__ = ["ChangeDesk"]


class ChangeDesk:
    """Carries every ``configure`` from its viewer to the producers, and their answers back to all viewers.

    Parameters
    ----------
    hub : Hub
        Whose viewers, producers and run they are.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._changes: dict[str, Change] = {}

    async def ask(self, session: Session, message: dict[str, Any]) -> None:
        """Check a viewer's ``configure`` and pass it to every producer.

        Raises
        ------
        ProtocolError
            ``no-producer``, ``refused``, or what is wrong with the patch.
        """
        hub = self._hub
        producers = hub.producers()
        if not producers:
            raise ProtocolError(
                "no-producer",
                "No training process is attached, so there is nothing to configure. Try again when one is.",
            )
        check_patch(message["patch"], hub.state.flags(), hub.state.hello()["compressors"])
        change = Change(
            f"{session.number}:{message['id']}",
            message["id"],
            session.number,
            session.peer,
            message["patch"],
            {producer.number for producer in producers},
        )
        if change.id in self._changes:
            raise ProtocolError(
                "refused",
                "A change with this id is still under way. Use another id.",
                field="id",
                got=message["id"],
            )
        self._changes[change.id] = change
        for producer in producers:
            await producer.send({"type": "configure", "id": change.id, "patch": change.patch})

    def answer(self, session: Session, message: dict[str, Any]) -> None:
        """Take a producer's ``configured``."""
        change = self._changes.get(message["id"])
        if change is None or session.number not in change.producers:
            # The training script changed something itself.
            change = Change(
                message["id"], message["id"], session.number, session.peer, {"flags": {}}, {session.number}
            )
            if message["applied"]:
                change.patch = {"flags": message["config"]["flags"]}
        change.answer(session.number, message)
        self._progress(change, message)

    def refuse(self, session: Session, message: dict[str, Any]) -> None:
        """Take a producer's ``error``."""
        change = self._changes.get(message.get("reply_to", ""))
        if change is None or session.number not in change.producers:
            return
        first = not change.refused
        change.refuse(session.number)
        viewer = self._hub.viewers.get(change.viewer)
        if first and viewer is not None:
            viewer.post({**message, "reply_to": change.viewer_id})
        self._progress(change, message)

    def forget(self, producer: int) -> None:
        """Wait no more for a producer that went."""
        for change in list(self._changes.values()):
            change.forget(producer)
            self._progress(change, None)

    def _progress(self, change: Change, message: dict[str, Any] | None) -> None:
        """Tell viewers what has become of a change."""
        hub = self._hub
        for news in change.news():
            news = {**news, "by": change.peer, "time": time.time()}
            if news["applied"]:
                hub.state.config = news["config"]
                hub.audit(change.peer["name"], "configure", {"patch": change.patch}, news["step"])
                hub.describe()
            for viewer in list(hub.viewers.values()):
                viewer.post({**news, "id": change.viewer_id if viewer.number == change.viewer else change.id})
        if not change.finished:
            return
        known = self._changes.pop(change.id, None)
        asker = hub.viewers.get(change.viewer)
        if known and message is None and asker and not change.refused and True not in change.told:
            text = "The training process went before it applied the change."
            asker.post(
                {"type": "error", "code": "no-producer", "message": text, "reply_to": change.viewer_id}
            )
