"""The changes that are under way: what viewers ask for, and what producers answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..protocol import ProtocolError, encode_message
from ..protocol.messages_generated import (
    Config,
    ConfigPatch,
    Configure,
    Configured,
    ErrorMessage,
    Message,
    Mode,
    Peer,
)
from .control_check import check_controls, check_patch

if TYPE_CHECKING:
    from .run_state import RunState
    from .session import Session

_MOST_WAITING = 16


@dataclass(eq=False)
class Change:
    """What became of one viewer's ``configure``.

    Attributes
    ----------
    id : str
        The hub's own id of it, unique over viewers.
    viewer_id : str
        The id that the viewer chose.
    viewer : int
        Number of the viewer's session.
    producers : set of int
        Numbers of the producer sessions that have still to answer fully.
    """

    id: str
    viewer_id: str
    viewer: int
    peer: Peer
    patch: ConfigPatch
    producers: set[int]
    refused: bool = False
    _accepted: dict[int, Configured] = field(default_factory=dict)
    _applied: dict[int, Configured] = field(default_factory=dict)
    reported: set[bool] = field(default_factory=set)

    def answer(self, producer: int, message: Configured) -> None:
        """Take one producer's ``configured``."""
        self._accepted.setdefault(producer, message)
        if message["applied"]:
            self._applied[producer] = message

    def refuse(self, producer: int) -> None:
        """Take one producer's ``error``."""
        self.refused = True
        self.producers.discard(producer)

    def forget(self, producer: int) -> None:
        """Wait no more for a producer that went."""
        self.producers.discard(producer)

    @property
    def finished(self) -> bool:
        """Whether no producer has anything more to say about it."""
        return not self.producers - set(self._applied)

    def news(self) -> list[Configured]:
        """Return the ``configured`` to send: each kind once all producers sent it, with the latest step."""
        due: list[Configured] = []
        for applied, answers in ((False, self._accepted), (True, self._applied)):
            if applied in self.reported or not answers or self.producers - set(answers):
                continue
            if self.refused and not applied:
                continue
            self.reported.add(applied)
            last = max(answers.values(), key=lambda answer: int(answer["step"]))
            due.append({**last, "applied": applied})
        return due


def audit_actions(patch: ConfigPatch) -> list[tuple[str, dict[str, Any]]]:
    """Return what a patch does as (action, part of the patch), in the words of the ``audit`` stream.

    Actions are configure, perturb, disarm, pause, resume, step and budget.
    """
    actions: list[tuple[str, dict[str, Any]]] = []
    if "perturb" in patch:
        actions.append(("disarm" if patch["perturb"] is None else "perturb", {"perturb": patch["perturb"]}))
    mode = patch.get("mode")
    if mode:
        if "steps" in mode:
            action = "step"
        elif "paused" in mode:
            action = "pause" if mode["paused"] else "resume"
        else:
            action = "pause" if mode.get("while_watched") else "resume"
        actions.append((action, {"mode": mode}))
    if "budget" in patch:
        actions.append(("budget", {"budget": patch["budget"]}))
    looked = {name: patch[name] for name in ("flags", "instruments") if patch.get(name)}
    if looked or not actions:
        actions.insert(0, ("configure", looked))
    return actions


def difference(before: Config, after: Config) -> ConfigPatch:
    """Return the patch between two configurations: what a script changed by itself, or what expired."""
    old, new = before["flags"], after["flags"]
    patch: ConfigPatch = {
        "flags": {name: new.get(name) for name in sorted({*old, *new}) if old.get(name) != new.get(name)}
    }
    if before.get("perturb") != after.get("perturb"):
        patch["perturb"] = after.get("perturb")
    if before.get("budget") != after.get("budget"):
        patch["budget"] = after.get("budget")
    settings, others = before.get("instruments", {}), after.get("instruments", {})
    if others := {name: each for name, each in others.items() if each != settings.get(name)}:
        patch["instruments"] = others
    was, now = before.get("mode", {}), after.get("mode", {})
    changed: Mode = {}
    if was.get("paused", False) != now.get("paused", False):
        changed["paused"] = now.get("paused", False)
    if was.get("while_watched", False) != now.get("while_watched", False):
        changed["while_watched"] = now.get("while_watched", False)
    if changed:
        patch["mode"] = changed
    return patch


class Changes:
    """Carries every ``configure`` from its viewer to the producers, and their answers back to all viewers.

    ``applied`` is called for every change that took effect with who, action, detail and step of an ``audit``
    row.
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
        """Check a viewer's ``configure`` and pass it to the producers that answer changes.

        Raises ``ProtocolError``: ``no-producer``, ``refused``, or what is wrong with the patch.
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
                f"{self._state.ranks.name(missing[0], at_start=True)}, which agrees on changes with all "
                "other processes, is not attached. "
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
            "Changes come faster than the training can take them. Wait for an answer, then send the newest "
            "one again.",
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
        """Send viewers what has become of a change."""
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
        if known and message is None and asker and not change.refused and True not in change.reported:
            error: ErrorMessage = {
                "type": "error",
                "code": "no-producer",
                "message": "The training process went, or reads nothing, before it applied the change.",
                "reply_to": change.viewer_id,
            }
            asker.enqueue(encode_message(error))


def _some(ranks: list[int]) -> str:
    return ", ".join(map(str, ranks[:8])) + (" …" if len(ranks) > 8 else "")
