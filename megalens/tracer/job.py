"""A process's part in its job, where the hub is, whether anybody looks, and which change could not be
applied.

Each of these is a small state with a name; :class:`~megalens.tracer.coordinator.Coordinator` reads them and
decides.
"""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol import ProtocolError
from .sending.hub_process import HubAddress
from .sending.peers import HubNotice, Rendezvous, Schedule, StepStart
from .tensors.instrument import TensorTracer
from .tensors.plan import TracingPlan

_HUB_GONE_SECONDS = 5.0
"""After so long without a hub nobody is waited for; chosen by hand, not measured."""


class Role(enum.Enum):
    """How a process takes part in what is agreed on; it never changes."""

    ALONE = "alone"
    """The only process: it decides by itself."""
    LEADER = "leader"
    """Rank 0 of several: it asks all of them, and answers viewers for the job."""
    MEMBER = "member"
    """Any other rank: it follows the leader."""


@dataclass
class HubRoute:
    """Where the hub is, as one process knows it.

    ::

        leader   its own hub ─▶ joined ─▶ published, again when it moves or ``watched`` changes
        member   nothing ─▶ heard of, from the leader ─▶ joined, once this process has something to send

    Attributes
    ----------
    everywhere : bool
        Whether the hub listens on all addresses of this host, so that other hosts reach it.
    joined : HubAddress or None
        The hub that this process sends to.
    heard : HubAddress or None
        Member: the hub that the leader named last.
    published : HubAddress or None
        Leader: the hub that was last published to the others.
    watched : bool
        Leader: whether anybody looks, as last published.
    """

    everywhere: bool
    joined: HubAddress | None = None
    heard: HubAddress | None = None
    published: HubAddress | None = None
    watched: bool = True

    @property
    def waiting(self) -> HubAddress | None:
        """The hub that was heard of and is not joined yet."""
        return None if self.heard == self.joined else self.heard

    def hear(self, notice: HubNotice) -> None:
        """Member: take the leader's :meth:`notice`."""
        self.heard = HubAddress(notice["url"], notice["token"], notice["run_id"])

    def look(self, viewers: int) -> bool:
        """Leader: note the number of viewers; return whether the others are to learn of a change."""
        changed = self.watched != (viewers > 0)
        self.watched = viewers > 0
        return changed and self.published is not None

    def notice(self) -> HubNotice:
        """Leader: return the message to the others about the published hub."""
        assert self.published is not None
        url = self.published.url
        if self.everywhere:
            # Other hosts reach it at this host's address.
            url = url.replace("127.0.0.1", Rendezvous.own_address())
        return {
            "url": url,
            "token": self.published.token,
            "run_id": self.published.run_id,
            "watched": self.watched,
        }


class ViewerWatch:
    """Pauses the training or lets it go on where the settings make that depend on the hub and its viewers.

    ``schedule`` gives what is agreed on; ``ask`` takes a patch and raises ``ProtocolError``.
    """

    def __init__(
        self, schedule: Callable[[], Schedule[TracingPlan]], ask: Callable[[Mapping[str, Any]], int]
    ) -> None:
        self._schedule = schedule
        self._ask = ask
        self._hub_gone: float | None = None
        self._paused_unwatched = False

    @property
    def abandoned(self) -> bool:
        """Whether nobody is left who could end a pause."""
        return self._hub_gone is not None and time.monotonic() - self._hub_gone > _HUB_GONE_SECONDS

    def hub_is(self, there: bool) -> None:
        self._hub_gone = None if there else (self._hub_gone or time.monotonic())

    def viewers(self, count: int) -> None:
        """Note the number of viewers: a training that waits for one goes on with the first."""
        mode = self._schedule().accepted.mode
        if not mode.while_watched:
            self._paused_unwatched = False
        elif count == 0 and not mode.paused:
            self._paused_unwatched = True
            self._set_mode(paused=True, while_watched=True)
        elif count and mode.paused and self._paused_unwatched:
            self._paused_unwatched = False
            self._set_mode(paused=False, while_watched=True)

    def free(self) -> bool:
        """End a pause where nobody is left to end it, and return whether that was so."""
        mode = self._schedule().accepted.mode
        if not (self.abandoned and (mode.paused or mode.while_watched)):
            return False
        self._set_mode(paused=False, while_watched=False)
        return True

    def _set_mode(self, *, paused: bool, while_watched: bool) -> None:
        with contextlib.suppress(ProtocolError):
            self._ask({"flags": {}, "mode": {"paused": paused, "while_watched": while_watched}})


class Recovery:
    """Goes back to the settings before.

    A process alone does so in the step that the change was for. In a job of several, the process that could
    not follow traces nothing, so that no row of it is under settings that are not the others'; rank 0 learns
    of that by its next heartbeat and asks all for what was in force before. Should that fail as well,
    everything is switched off, which needs no hook.
    """

    def __init__(
        self,
        schedule: Callable[[], Schedule[TracingPlan]],
        tensors: TensorTracer,
        failed: Callable[[str, Exception], None],
    ) -> None:
        self._schedule = schedule
        self._tensors = tensors
        self._failed = failed
        self._asked: list[int] = []
        self.version = 0
        """Number of the newest change that this process could not follow; 0 where there is none."""

    def go_back(
        self, start: StepStart[TracingPlan], before: TracingPlan, error: Exception, alone: bool
    ) -> None:
        """Trace what was traced before; in a job of several processes nothing, until rank 0 has asked all.

        Training thread; never raises.
        """
        self._failed("A change", error)
        self.version = start.version
        nothing = TracingPlan(instruments=before.instruments)
        for plan in (before, nothing) if alone else (nothing,):
            if alone:
                self._schedule().take_back(plan)
            try:
                self._tensors.follow(plan, start.version)
                return
            except Exception as another:
                self._failed("Going back to the settings before", another)

    def ask(self, versions: Collection[Any], change: Callable[[Mapping[str, Any]], Any]) -> None:
        """Rank 0: ask all for the settings before, where one of them could not follow the newest change.

        ``versions`` are the newest changes that the processes could not follow.
        """
        schedule = self._schedule()
        plan, version, _ = schedule.in_force
        if not version or version not in versions or version in self._asked:
            return
        # The one that this asks for has the next number, if nobody else asks for anything.
        retried = version - 1 in self._asked
        self._asked = [*self._asked[-8:], version]
        before = TracingPlan() if retried else schedule.previous
        patch = before.patch_from(schedule.begun + 1)
        gone = {name: None for name in plan.asked if name not in before.asked}
        with contextlib.suppress(ProtocolError):
            change({"perturb": None, **patch, "flags": {**gone, **patch["flags"]}})
