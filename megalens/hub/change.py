"""One ``configure`` on its way: from a viewer to every producer and back."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..protocol.messages_generated import ConfigPatch, Configured, Peer

__all__ = ["Change"]


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
    peer : dict
        How the viewer named itself.
    patch : dict
        The ``ConfigPatch``.
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
    told: set[bool] = field(default_factory=set)

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
        """Return the ``configured`` messages that are due: each kind once, when the last producer has said it, with the latest step."""
        due: list[Configured] = []
        for applied, answers in ((False, self._accepted), (True, self._applied)):
            if applied in self.told or not answers or self.producers - set(answers):
                continue
            if self.refused and not applied:
                continue
            self.told.add(applied)
            last = max(answers.values(), key=lambda answer: int(answer["step"]))
            due.append({**last, "applied": applied})
        return due
