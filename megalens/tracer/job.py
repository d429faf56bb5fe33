"""A process's part in its job, where the hub is, whether anybody looks, and which change could not be
applied.

Each of these is a small state with a name; :class:`~megalens.tracer.coordinator.Coordinator` reads them and
decides.

The ``announce`` message, and what rank 0 reports of other processes.
"""

from __future__ import annotations

import contextlib
import enum
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..protocol import ProtocolError, compressor_infos
from ..protocol.messages_generated import (
    Announce,
    Config,
    Control,
    FlagInfo,
    Layout,
    Phase,
    RankPlace,
    Status,
)
from ..protocol.version import own_version
from .coordinates import RankCoordinates
from .errors import plain_text
from .perturb import site_infos
from .points import FLAGS, ModelPoints
from .sending.hub_process import HubAddress
from .sending.peers import HubNotice, Peers, Rendezvous, Schedule, StepStart
from .tensors.compressors import suited_compressor
from .tensors.instrument import TensorTracer
from .tensors.plan import TracingPlan


def add_members(
    peers: Peers, places: Sequence[RankPlace], own: int, status: Status, notes: list[str]
) -> None:
    """Add the ranks of a job to rank 0's ``status``, and to ``notes`` what they alone warn of.

    Lost rows of ranks without a connection of their own to the hub are added as well.
    """
    status["ranks"] = peers.members.states()
    own_words = {*status.get("warnings", ()), *notes}
    for rank, heartbeat in peers.members.heartbeats().items():
        place = next((p for p in places if p["rank"] == rank), None)
        if rank == own or place is None or place["tp"] == 0:
            continue
        # Ranks that hold pieces of the same tensors mostly have the same to say.
        others = [text for text in heartbeat.get("warnings", []) if text not in own_words]
        notes += [f"{peers.members.name(rank)}: {text}"[:500] for text in others]
        dropped = heartbeat["dropped"]["producer"] if "dropped" in heartbeat else 0
        if dropped:
            status["dropped"] = {**status["dropped"], "producer": status["dropped"]["producer"] + dropped}


def job_notes(untraced_steps: int, peers: Peers | None) -> list[str]:
    """Return what the other processes have cost this one."""
    notes = []
    if untraced_steps:
        notes.append(
            f"{untraced_steps} steps were not traced while a change was being agreed on by all processes."
        )
    if peers is not None and peers.refused:
        notes.append(f"{peers.refused} messages of instruments to other processes could not be sent.")
    return notes


def parts_notes(coords: RankCoordinates) -> list[str]:
    """Return what rows of a context-parallel job are, which no view could tell by itself."""
    parts = coords.cp_size
    return (
        [
            f"Each sequence is cut over {parts} context-parallel ranks. What they trace is not joined: "
            "each rank's rows hold its own positions, counted from 0, "
            "and the ranks are shown as replicas of the data-parallel axis. Trace every replica to have "
            "all positions."
        ]
        if parts > 1
        else []
    )


def announcement(
    points: ModelPoints,
    *,
    config: Config,
    positions: int | None,
    name: str | None,
    controls: Sequence[Control] = (),
    phase: Phase = "train",
    places: Sequence[RankPlace] = (),
) -> Announce:
    """Return the ``announce`` message.

    Parameters
    ----------
    positions : int or None
        Length of the sequences; None before the first forward pass, when sizes are unknown.
    places : sequence of dict
        ``RankPlace`` objects of all processes that are known.
    """
    evidence = points.evidence()
    message: Announce = {
        "type": "announce",
        "rank": points.place.rank,
        "model": points.model,
        "layout": _layout(points.place, places),
        "flags": [
            _flag_info(points, flag, positions, evidence.get(flag)) for flag in FLAGS if flag in points.flags
        ],
        "compressors": compressor_infos(),
        "config": config,
        "versions": {
            "megalens": own_version(),
            "torch": str(torch.__version__),
            "python": platform.python_version(),
        },
    }
    if points.place.rank:
        message["leader"] = 0
    if controls:
        message["controls"] = list(controls)
    if "perturb" in controls:
        message["sites"] = site_infos(points)
    if phase != "train":
        message["phase"] = phase
    if name:
        message["run_name"] = plain_text(name)[:200]
    return message


def _flag_info(points: ModelPoints, name: str, positions: int | None, evidence: str | None) -> FlagInfo:
    kind, here = FLAGS[name], points.traceable(name)
    nbytes: int | None = None
    if positions is not None and here.layers:
        if kind.axes[0] == "head":
            heads = points.model.get("heads")
            nbytes = None if heads is None else 4 * heads * positions * positions
        elif kind.exact:
            nbytes = 4 * positions * len(here.parts)
        elif here.features is not None and kind.axes[0] == "position":
            nbytes = 4 * positions * here.features
    info: FlagInfo = {
        "name": name,
        "title": kind.title,
        "layers": sorted(here.layers),
        "parts": list(here.parts or kind.parts),
        "axes": list(kind.axes),
        "features": here.features,
        "bytes_per_layer": nbytes,
        "compressor": suited_compressor(name, here).to_setting(),
    }
    if here.widths is not None:
        info["widths"] = list(here.widths)
    if not here.layers:
        info["reason"] = (here.reason or "This model has no such point.")[:500]
    if evidence is not None:
        info["evidence"] = plain_text(evidence, 2000)
    return info


def _layout(coords: RankCoordinates, places: Sequence[RankPlace]) -> Layout:
    layout: Layout = {
        "world_size": coords.world_size,
        "tp": coords.tp_size,
        "pp": coords.pp_size,
        "dp": coords.dp_size,
    }
    if coords.vpp_size > 1:
        layout["vpp"] = coords.vpp_size
    if coords.ep_size > 1:
        layout["ep"] = coords.ep_size
    if coords.cp_size > 1:
        layout["cp"] = coords.cp_size
    if coords.world_size > 1 and places:
        layout["ranks"] = list(places)
    return layout


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
