"""The tensor tracer: the instrument that follows flags, and the perturbations that share its hooks."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...protocol import layers_words
from ...protocol.messages_generated import Phase, Status
from ..graph_operator import compiles
from ..graph_probes import GraphProbes
from ..instrument import Instrument
from ..passes import TRAINING, PassState, left_out_sentence
from ..perturb import Installed, PerturbPlan, install_perturbations
from ..points import FLAGS, ModelPoints
from .batch import Batch, FiredProbes
from .capture import Capture
from .first_sizes import FirstSizes
from .plan import TracingPlan
from .sender import STREAM, LeaderSender, MemberSender

if TYPE_CHECKING:
    from ..instrument import Host

_clock = time.perf_counter_ns


class TensorTracer(Instrument):
    """Traces what a plan says of one model; its settings are the ``Config`` of messages."""

    name = STREAM

    def __init__(
        self,
        points: ModelPoints,
        decode: Callable[[int], str] | None = None,
        phase: Phase = "train",
        graph: GraphProbes | None = None,
    ) -> None:
        self._phase, self._graph = phase, graph
        self._points = points
        self._decode = decode
        self._warn: Callable[[str], None] = lambda text: None
        self._host: Host | None = None
        self._sender: LeaderSender | MemberSender | None = None
        self._perturbed: Installed | None = None
        self._looked = self._announced = False
        self._phases: list[tuple[PassState, int]] = []
        self._plan = TracingPlan(phase=self._phase)
        self._change: Callable[[TracingPlan], TracingPlan] | None = None
        self.capture = Capture(points, lambda text: self._warn(text), self._hand_over)
        self.perturbed_steps = 0
        """Steps that perturbations have touched so far."""
        self.left_out_passes = 0
        """Forward passes inside of steps that were no training, so far."""
        self.micro_batches = 0
        """Of the last training step in which any were counted."""
        self._sizes = FirstSizes(points)
        self._armed: PerturbPlan | None = None
        self._armed_steps = 0
        self._found: dict[str, set[int]] = {}
        """By flag, layers of which the first forward pass showed that the tensor is elsewhere."""

    @property
    def plan(self) -> TracingPlan:
        """What is in force; inside of :meth:`changed`, what will be again afterwards."""
        return self._plan

    @property
    def piece_bytes(self) -> int:
        """Bytes of pieces that other ranks sent to this one."""
        return self._sender.piece_bytes if isinstance(self._sender, LeaderSender) else 0

    def attach(self, host: Host) -> None:
        self._host, self._warn = host, host.warn
        if host.place.leads:
            self._sender = LeaderSender(host, self._decode)
        else:
            self._sender = MemberSender(host)

    def follow(self, plan: TracingPlan, version: int = 0) -> None:
        """Trace and perturb what a plan says from now on; between steps.

        Where the hooks cannot be put, none is on the model, and the error is raised.
        """
        self.capture.version = version
        self._plan = TracingPlan(phase=self._phase)
        self._perturb(None)
        changed = plan if self._change is None else self._change(plan)
        self.capture.follow(changed)
        self._perturb(changed)
        self._plan = plan
        if plan.perturb is not self._armed:
            # Another change leaves what is armed as it is.
            self._armed, self._armed_steps = plan.perturb, 0

    @contextlib.contextmanager
    def changed(self, change: Callable[[TracingPlan], TracingPlan]) -> Iterator[None]:
        """Follow, inside, what ``change`` makes of the plan, whatever the plan becomes meanwhile.

        Between steps, also inside of a phase there.
        """
        before, self._change = self._change, change
        try:
            self.follow(self._plan, self.capture.version)
            yield
        finally:
            self._change = before
            self.follow(self._plan, self.capture.version)

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[], None]]:
        """Handle, inside, small tensors of several passes together.

        This happens at each call of what this gives, in the thread of the model, and at the end.
        """
        self.capture.holding = True
        try:
            yield self._put_retained
        finally:
            self.capture.holding = False
            self._put_retained()

    def step_begins(self, step: int, untraced: bool) -> None:
        self.capture.begin(step, self._phase, untraced)
        asked = self._phase == TRAINING and not self._plan.flags and self.capture.positions is None
        if asked and self._host is not None and self._host.sends:
            self._sizes.begin(step)

    def step_ends(self) -> None:
        counted = self.capture.micro_batches
        self._flush(self.capture.fired())
        self.capture.pause()
        positions, seen = self._sizes.end()
        if self._phase == TRAINING:
            self.micro_batches = max(counted, seen) or self.micro_batches
        if self.capture.positions is None:
            self.capture.positions = positions
        if self.capture.left_out:
            self._say_left_out(self.capture.left_out)
        if self._perturbed is not None:
            self._look_at_perturbed(self._perturbed)
        if not self._announced and self.capture.positions is not None and self._host is not None:
            # Sizes are known now.
            self._announced = True
            self._host.announce()

    @property
    def uses_points(self) -> bool:
        return bool(self._plan.flags)

    def places_changed(self, places: Collection[tuple[str, int]]) -> None:
        self.capture.reject(places)
        for name, layer in places:
            flag = self._plan.flags.get(name)
            if flag is not None and flag.active:
                self._found.setdefault(name, set()).add(layer)
        if self._graph is not None:
            self._graph.place_all(self._points)

    def say_found(self) -> None:
        """Name the layers of which the pass that showed where their tensors are has no rows, once the plan
        has them.
        """
        found, self._found = self._found, {}
        named = [
            FLAGS[name].title + layers_words(layers)
            for name, flag in self._plan.flags.items()
            if (layers := found.get(name, set()) & set(flag.layers))
        ]
        if named:
            self._warn(
                f"Rows of these begin after step {self.capture.step}, whose first forward pass showed where "
                f"they are: {'; '.join(named)}."
            )

    def step_abandoned(self) -> None:
        self._sizes.end()
        self._flush()
        self.capture.pause()

    def pause(self, phase: str) -> None:
        # What runs inside of a phase is no micro-batch: another step is looked at.
        self._sizes.end()
        capture = self.capture
        self._phases.append((capture.save(), capture.scope))
        capture.begin(capture.step, phase)

    def resume(self, training: bool) -> None:
        capture = self.capture
        saved, scope = self._phases.pop()
        if training:
            capture.resume(saved, scope)
        else:
            self._flush(capture.fired())
            capture.pause()

    def release(self, closing: bool) -> None:
        self._sizes.end()
        self._flush()
        self._perturb(None)
        self._plan = TracingPlan(phase=self._phase)
        self.capture.release()

    def take_ns(self) -> int:
        spent, self.capture.spent_ns = self.capture.spent_ns, 0
        return spent

    def settings(self) -> Mapping[str, Any]:
        return self.plan.config

    def report(self, status: Status) -> None:
        """Add probes, non-finite values and perturbations, which are members of ``status`` itself."""
        sender = self._sender
        if sender is None:
            return
        status["nonfinite"] = sender.nonfinite()
        if sender.probes is not None:
            fired, expected, missing = sender.probes
            status["probes"] = {"fired": fired, "expected": expected, "missing": list(missing)}
            reasons: dict[str, list[str]] = {}
            for name, reason in missing.items():
                reasons.setdefault(reason, []).append(name)
            if reasons:
                status["probes"]["reasons"] = [
                    {"reason": reason, "missing": names} for reason, names in reasons.items()
                ]
        if self._graph is not None:
            times, again = self._graph.compiled
            status["compiled"] = {"times": times, "again": again}
        if self.left_out_passes:
            status["left_out_passes"] = self.left_out_passes
        if self.micro_batches:
            status["micro_batches"] = self.micro_batches
        if self.perturbed_steps:
            status["perturbed_steps"] = self.perturbed_steps
        if self._armed is not None:
            status["armed_steps"] = self._armed_steps

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        if isinstance(self._sender, LeaderSender):
            self._sender.received(rank, meta, payload)

    def undelivered(self) -> None:
        if self._sender is not None:
            self._sender.undelivered()

    def _flush(self, probes: FiredProbes | None = None) -> None:
        capture, host, sender = self.capture, self._host, self._sender
        batch = capture.take()
        if sender is None or host is None or not host.sends:
            if batch.stage is not None:
                batch.stage.give_back()
            return
        batch.probes = probes
        if probes is not None:
            batch.told = capture.told() if probes.missing else batch.told
            batch.without_gradients = capture.without_gradients()
        # While rows wait, that all is well waits with them.
        reported = probes is not None and not (capture.holding and probes.fired == probes.expected)
        if batch.rows or reported:
            sender.put(batch)

    def _put_retained(self) -> None:
        retained, nbytes = self.capture.take_retained()
        if retained and self._sender is not None and self._host is not None and self._host.sends:
            self._sender.put_retained(retained, nbytes)

    def _hand_over(self, batch: Batch | None) -> None:
        """Hand over a pass's batch, or what has gathered, so that the producer thread can begin."""
        # Without one, the end of the step sees to it.
        if self._host is not None and self._host.sends and self._sender is not None:
            self._sender.put(self.capture.take() if batch is None else batch)

    def _perturb(self, plan: TracingPlan | None) -> None:
        installed, self._perturbed = self._perturbed, None
        self._looked = False
        if installed is not None:
            installed()
        if plan is not None and plan.perturb is not None:
            self._perturbed = install_perturbations(self._points, plan.perturb, self.capture, self._warn)

    def _say_left_out(self, passes: int) -> None:
        if not self.left_out_passes:
            self._warn(left_out_sentence(self.capture.step, passes))
        self.left_out_passes += passes

    def _look_at_perturbed(self, perturbed: Installed) -> None:
        step = self.capture.step
        touched = perturbed.last_step == step
        self.perturbed_steps += touched
        self._armed_steps += touched
        if not self._looked:
            self._looked = True
            unfired = perturbed.unfired()
            if unfired:
                more = f" and {len(unfired) - 5} more" if len(unfired) > 5 else ""
                compiled = (
                    ", or it is compiled and tracing began without knowing: megalens.trace(…, compiled=True)"
                    if self._graph is None and compiles()
                    else ""
                )
                self._warn(
                    f"Step {step} did not reach what was to be perturbed, {'; '.join(unfired[:5])}{more}: "
                    f"its module was not called in a pass that is perturbed{compiled}."
                )
