"""One process's part in its job: who is asked for a change, where rows go, what `status` says of others."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, cast

from ..protocol import STREAMS, ProtocolError, Streams, merge_settings
from ..protocol.messages_generated import (
    Announce,
    ConfigPatch,
    Configured,
    Control,
    RankCondition,
    RankPlace,
    Status,
)
from ..protocol.version import own_version
from .budget.budget import BudgetKeeper
from .errors import TracerError, as_protocol_error, describe_error, plain_text
from .health import ProducerHealth
from .instrument import Host, Instrument
from .instruments import Instruments
from .job import HubRoute, Recovery, Role, ViewerWatch, add_members, announcement, job_notes, parts_notes
from .points import ModelPoints
from .sending.hub_connection import HubConnection
from .sending.hub_process import HubAddress, HubProcess
from .sending.peers import Heartbeat, HubNotice, Peers, Proposal, Rendezvous, Schedule, StepStart
from .sending.producer import Producer
from .sending.worker import Worker
from .tensors.config import change_plan, follow_points
from .tensors.instrument import TensorTracer
from .tensors.plan import LADDER, CostReduction, TracingPlan

_MOST_WARNINGS = 20
_SHUTDOWN_SECONDS = 6.0

OWN = ""
"""Id of a change that no ``configure`` message asked for."""


class Coordinator:
    """What a process needs to trace together with the others of its job, if there are any.

    Parameters
    ----------
    address : HubAddress or None
        The hub; None where rank 0 will say where it is, or where there is none.
    process : HubProcess or None
        The hub's process, where this tracer started it.
    rendezvous : Rendezvous or None
        How the other processes are found; None for a process alone.
    hubless : bool
        Whether there is no hub and yet something to do: what is logged goes to files.
    """

    def __init__(
        self,
        points: ModelPoints,
        plan: TracingPlan,
        address: HubAddress | None,
        process: HubProcess | None,
        rendezvous: Rendezvous | None,
        tensors: TensorTracer,
        *,
        name: str | None,
        folders: Sequence[Path],
        controls: Sequence[Control],
        first_step: int = 1,
        hubless: bool = False,
    ) -> None:
        self._points = points
        self._role = (
            Role.ALONE if rendezvous is None else Role.LEADER if points.place.rank == 0 else Role.MEMBER
        )
        self._name = name
        self._folders = tuple(folders)
        self._controls = tuple(controls)
        self._tensors = tensors
        self.instruments = Instruments(self.warn)
        self._streams = Streams(STREAMS.values())
        self._notes: deque[str] = deque(maxlen=_MOST_WARNINGS)
        self._watch = ViewerWatch(lambda: self.schedule, self.change)
        self._places: list[RankPlace] = []
        self._hub = HubRoute(everywhere=process is not None and process.everywhere, joined=address)
        # Where nobody sends, what is counted is reported to nobody.
        self._unsent = ProducerHealth()
        self._recovery = Recovery(
            lambda: self.schedule, tensors, lambda *failed: self._health.failed(*failed)
        )
        self.budget = BudgetKeeper(LADDER, self._give_up)
        self._follow_budget(plan)
        self.peers: Peers | None = None
        self.worker: Worker | None = None
        self.schedule = Schedule(
            plan.starting(first_step),
            self._changed_plan,
            (lambda: self._watch.abandoned) if self._role is Role.ALONE else None,
            self._waits,
            first_step,
        )
        if address is not None or self._role is not Role.ALONE or hubless:
            self.worker = self._new_worker(address, process, hubless)
        self.attach(tensors)
        tensors.follow(self.schedule.accepted)
        if self.worker is None:
            return
        self._name_parts(plan)
        if rendezvous is not None:
            self.peers = Peers(
                self._points.place,
                rendezvous,
                self.schedule,
                heartbeat=self._heartbeat,
                received=self.instruments.received,
                hub=self._hub_came,
                changed=self._peers_changed,
                lost=lambda: self.instruments.notify("undelivered"),
            )
        # Only now: a viewer may ask for a change at once, and it is for the entire job.
        self.worker.start()
        if self._role is not Role.ALONE and address is not None:
            self._publish_hub(address)

    @property
    def hub(self) -> HubConnection | None:
        """The connection to the hub, where this process has one."""
        return self.worker.hub if isinstance(self.worker, Producer) else None

    @property
    def _followers(self) -> Peers | None:
        """The connections to the others, where this process answers for all of them."""
        return self.peers if self._role is Role.LEADER else None

    def _new_worker(self, address: HubAddress | None, process: HubProcess | None, hubless: bool) -> Worker:
        if not self._points.place.leads:
            return Worker()
        return Producer(
            address,
            process,
            rank=self._points.place.rank,
            peer={"name": "tracer", "version": own_version()},
            announce=self.announcement,
            configure=self._configure_for_hub,
            request=self.instruments.asked,
            report=self._report,
            viewers=self._watched,
            hub_is=self._hub_is,
            moved=self._publish_hub,
            stepped=self.budget.observe if self._points.place.rank == 0 else None,
            hubless=hubless,
            streams=self._streams,
        )

    def attach(self, instrument: Instrument) -> None:
        """Call an instrument from now on, and pass it messages of other ranks; raises ``TracerError``."""
        try:
            self._streams.announce(instrument.streams)
        except ProtocolError as error:
            raise TracerError(
                f"The streams of {instrument.name} are not declared well: {error.message}"
            ) from error
        host = Host(
            instrument.name,
            self._points.place,
            self._points.roots,
            self.worker,
            lambda: self.peers,
            self._announce,
            self.warn,
            lambda: self.schedule.begun,
        )
        self.instruments.add(instrument, host)
        if instrument.schema():
            # Settings that came before the instrument apply now.
            self.schedule.amend(lambda plan: self._with_settings(plan, instrument))
            self.instruments.follow(self.schedule.accepted.instruments, self.schedule.begun + 1)
        if instrument.streams or instrument.schema():
            self._announce()

    def detach(self, instrument: Instrument) -> None:
        """Call an instrument no more, and forget its settings. Safe twice."""
        if self.instruments.named(instrument.name) is not instrument:
            return
        self.instruments.remove(instrument)
        if instrument.schema():
            self.schedule.amend(
                lambda plan: replace(
                    plan,
                    instruments={
                        name: each for name, each in plan.instruments.items() if name != instrument.name
                    },
                )
            )

    def _with_settings(self, plan: TracingPlan, instrument: Instrument) -> TracingPlan:
        settings = instrument.settings()
        waiting = plan.instruments.get(instrument.name)
        if waiting is not None:
            try:
                settings = instrument.check(merge_settings(settings, waiting))
            except ProtocolError as error:
                self.warn(f"The settings of {instrument.name} were not changed. {error.message}")
        return replace(plan, instruments={**plan.instruments, instrument.name: settings})

    def _announce(self) -> None:
        if self.worker is not None:
            self.worker.reply(self.announcement)

    # Settings.

    def change(self, patch: Mapping[str, Any], who: str = OWN) -> int:
        """Ask for a change and return the first step to which it can apply.

        In a job of several processes rank 0 asks all of them, and the scripts of others leave it to rank 0.
        Raises ``ProtocolError`` with the field at fault; then nothing has changed.
        """
        self.instruments.can_be_set(patch)
        if self._role is Role.ALONE:
            first = self.schedule.decide([patch], [who])
            self.instruments.notify("change_waits")
            return first
        self._changed_plan(self.schedule.accepted, patch)
        if (peers := self._followers) is not None:
            peers.propose(Proposal(patch, who, lambda answer: self._answered(who, answer)))
        return self.schedule.begun + 1

    def announcement(self) -> Announce:
        message = announcement(
            self._points,
            config=self.schedule.accepted.config,
            positions=self._tensors.capture.positions,
            name=self._name,
            controls=self._controls,
            phase=self.schedule.accepted.phase,
            places=self._places or [self._points.place.to_message()],
        )
        if configurable := self.instruments.infos():
            message["configurable"] = configurable
        return self.instruments.fill(message, "describe")

    def follow_points(self) -> None:
        """Follow, between two steps, points that the first forward pass has changed. Never raises."""
        try:
            self.schedule.amend(lambda plan: follow_points(plan, self._points, self._folders, self.warn))
            plan = self.schedule.current
            self._tensors.follow(plan, self._tensors.capture.version)
            self._tensors.say_found()
            self._follow_budget(plan)
            self._name_parts(plan)
            self._join_hub(plan)
        except Exception as error:
            self.warn(f"What the first forward pass showed could not be followed: {describe_error(error)}")
        self._announce()

    def applied(self, start: StepStart[TracingPlan], step: int) -> None:
        """Follow what is in force from ``step`` on, and report it to the hub."""
        if start.plan is not None:
            self._follow_budget(start.plan)
            self._name_parts(start.plan)
            self._join_hub(start.plan)
            self.instruments.follow(start.plan.instruments, step)
        self._say_applied(start, step)

    def not_applied(self, start: StepStart[TracingPlan], before: TracingPlan, error: Exception) -> None:
        """Answer that a change could not be put on the model, and restore what was in force. Never raises."""
        self._recovery.go_back(start, before, error, alone=self._role is Role.ALONE)
        for who in start.ids:
            self._answered(who, as_protocol_error(error, "Putting this change on the model"))
        self._announce()

    @property
    def _health(self) -> ProducerHealth:
        return self._unsent if self.worker is None else self.worker.health

    def _follow_budget(self, plan: TracingPlan) -> None:
        asked = {name: flag.setting for name, flag in plan.asked.items()}
        self.budget.follow(plan.budget, asked, plan.cost_reduction)

    def _say_applied(self, start: StepStart[TracingPlan], step: int) -> None:
        worker = self.worker
        if not isinstance(worker, Producer) or self._role is Role.MEMBER:
            return
        config = self._tensors.plan.config if start.plan is None else start.plan.config
        for who in start.ids:
            if who != OWN:
                answer: Configured = {
                    "type": "configured",
                    "id": who,
                    "applied": True,
                    "step": step,
                    "config": config,
                }
                worker.reply(lambda answer=answer: answer)  # type: ignore[misc]
        if OWN in start.ids or start.expired:
            worker.reply(self.announcement)

    def _waits(self, start: StepStart[TracingPlan], step: int) -> None:
        """Report at once: the step that is waited for may be long in coming."""
        self._say_applied(start, step)
        if isinstance(self.worker, Producer):
            self.worker.status_now()

    def warn(self, text: str) -> None:
        """Say a sentence to the user once."""
        text = plain_text(text)
        if text in self._notes:
            return
        self._notes.append(text)
        self._health.warn(text)

    def status(self) -> Status:
        """Return the ``status`` message, without what only the hub knows."""
        if self.worker is not None:
            # Of what it lets wait the next status tells.
            self.worker.wake()
        return self._report(self._own_status())

    def _own_status(self) -> Status:
        if self.worker is not None:
            return self.worker.health.status()
        return {"type": "status", "state": "idle", "step": self.schedule.begun}

    def close(self, finished: bool = True) -> None:
        """Send what waits and leave the job; unless ``finished``, without a shutdown message. Safe twice."""
        if finished and (peers := self._followers) is not None:
            # The hub closes the recording when rank 0 shuts down: the others' last rows come before.
            peers.wait_for_others(_SHUTDOWN_SECONDS)
        if self.worker is not None:
            self.worker.close(finished=finished)
        if self.peers is not None:
            self.peers.close()

    def _name_parts(self, plan: TracingPlan) -> None:
        if self._points.place.rank == 0 and any(flag.layers for flag in plan.flags.values()):
            for text in parts_notes(self._points.place):
                self.warn(text)

    # What the threads of worker and peers call.

    def _changed_plan(self, plan: TracingPlan, patch: Mapping[str, Any]) -> TracingPlan:
        """Return the plan after a patch; any thread. Every error becomes a ``ProtocolError``."""
        try:
            after = change_plan(plan, patch, self._points, self._folders, controls=self._controls)
            settings = self.instruments.changed(plan.instruments, patch.get("instruments", {}))
            return replace(after, instruments=settings)
        except ProtocolError:
            raise
        except Exception as error:
            self._health.failed("A change", error)
            raise as_protocol_error(error, "This change") from error

    def _configure_for_hub(self, patch: ConfigPatch, who: str) -> Configured | None:
        if self._role is Role.ALONE:
            return self._accepted(who, self.change(patch, who))
        if self._role is Role.MEMBER:
            raise ProtocolError(
                "refused", f"{self._points.place.name} does not answer for this job; rank 0 does."
            )
        self.change(patch, who)
        return None

    def _accepted(self, who: str, step: int) -> Configured:
        config = self.schedule.accepted.config
        return {"type": "configured", "id": who, "applied": False, "step": step, "config": config}

    def _answered(self, who: str, answer: int | ProtocolError) -> None:
        if isinstance(answer, ProtocolError):
            if who == OWN:
                self.warn(f"A change was not made. {answer.message}"[:500])
            elif self.worker is not None:
                message = answer.to_message(who)
                self.worker.reply(lambda: message)
            return
        if who != OWN and self.worker is not None:
            accepted = self._accepted(who, answer)
            self.worker.reply(lambda: accepted)
        # After the answer, before which nothing says that it is in force.
        self.instruments.notify("change_waits")

    def _hub_is(self, there: bool) -> None:
        self._watch.hub_is(there)
        if there and self._role is Role.ALONE:
            self.schedule.resume_listening()

    def _watched(self, viewers: int) -> None:
        if self._role is Role.MEMBER:
            return
        self._watch.viewers(viewers)
        # The others hand over several steps at a time, too, while nobody looks.
        if (peers := self._followers) is not None and self._hub.look(viewers):
            peers.tell_hub(self._hub.notice())

    def _give_up(self, cost_reduction: CostReduction) -> None:
        with contextlib.suppress(ProtocolError):
            self.change({"flags": {}, "cost_reduction": asdict(cost_reduction)})

    def _publish_hub(self, address: HubAddress) -> None:
        """Leader: send the others the hub's address."""
        self._hub.published = address
        if (peers := self._followers) is not None:
            peers.tell_hub(self._hub.notice())

    def _hub_came(self, notice: HubNotice) -> None:
        self._hub.hear(notice)
        if self.worker is not None:
            self.worker.watched = notice["watched"]
        self._join_hub(self.schedule.accepted)

    def _join_hub(self, plan: TracingPlan) -> None:
        """Connect to the hub where there is something to send: a further replica once it is traced."""
        address = self._hub.waiting
        if address is None or not isinstance(self.worker, Producer):
            return
        if self._points.place.dp == 0 or any(flag.layers for flag in plan.flags.values()):
            self._hub.joined = address
            self.worker.run_id = address.run_id
            self.worker.move(address)

    def _peers_changed(self) -> None:
        """Rank 0: a process joined, left or fell silent."""
        if self.peers is None or not isinstance(self.worker, Producer):
            return
        places = self.peers.members.places()
        if self._role is Role.LEADER and len(places) != len(self._places):
            self._places = places
            # Viewers learn it once everybody is there; of a job that never is complete, with the status.
            if len(places) == self._points.place.world_size:
                self.worker.reply(self.announcement)
        self.worker.status_now()

    def _heartbeat(self) -> Heartbeat:
        """Return the heartbeat that this process sends to rank 0 twice a second."""
        status = self.instruments.fill(self._own_status(), "report")
        peers = self._followers
        if peers is not None and self._watch.free():
            self.warn("The hub is gone, so the training is not kept waiting any more.")
        heartbeat: Heartbeat = {
            "state": cast(RankCondition, "paused" if self.schedule.paused else status["state"]),
            "step": self.schedule.begun,
            "not_applied": self._recovery.version,
        }
        if "warnings" in status:
            heartbeat["warnings"] = status["warnings"]
        if "probes" in status:
            heartbeat["probes"] = status["probes"]
        if "dropped" in status:
            heartbeat["dropped"] = status["dropped"]
        if peers is not None:
            known = [heartbeat, *peers.members.heartbeats().values()]
            self._recovery.ask([each.get("not_applied") for each in known], self.change)
        return heartbeat

    def _report(self, status: Status) -> Status:
        """Add to a ``status`` what this process knows of the job."""
        if self.schedule.paused:
            status["state"] = "paused"
        status = self.instruments.fill(status, "report")
        notes = [*self._notes, *job_notes(self.schedule.untraced_steps, self.peers)]
        budget = self.budget.status() if self._points.place.rank == 0 else None
        if budget is not None:
            status["budget"] = budget
        if (peers := self._followers) is not None:
            add_members(peers, self._places, self._points.place.rank, status, notes)
        status["warnings"] = list(dict.fromkeys([*status.get("warnings", []), *notes]))[-_MOST_WARNINGS:]
        return status
