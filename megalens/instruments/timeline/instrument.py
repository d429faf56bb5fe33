"""The instrument of the stream ``spans``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from torch import nn

from ...tracer.coordinates import RankCoordinates
from ...tracer.errors import describe_error
from ...tracer.graph_probes import GraphProbes, end_of
from ...tracer.instrument import Instrument
from ...tracer.passes import at_each_backward
from ...tracer.settings import TraceSettings
from .communication import CommunicationHooks
from .modules import LoopHooks, ModuleHooks, StageHooks, layers_of, operations_of
from .noted_span import Span
from .rows import SpanSender
from .spans import PAUSES
from .step_clock import StepClock, TimelineSettings

if TYPE_CHECKING:
    from ...tracer.instrument import Host

_MOST_SPANS = 20_000
_OF_PASSES = ("data", "collective", "send", "receive")
"""What belongs to a running evaluation."""


class TimelineInstrument(Instrument):
    """Times what a rank does in its steps. While it is off nothing is hooked, replaced or stored.

    Of a model on a CUDA device all times are when that device reached each point, on the host's clock: a wait
    that cost the device nothing has no length. ``reconfigure`` changes the settings of all ranks:
    :meth:`Tracer.configure`.
    """

    name = "timeline"
    title = "Timeline"

    def __init__(self, settings: TimelineSettings | None = None) -> None:
        self._settings = settings or TimelineSettings()
        self._host: Host
        self._sender: SpanSender | None = None
        self._step_clock = StepClock(self._no_device_times, self._no_memory)
        # What every reading goes through; what is called most calls it itself.
        self._clock = self._step_clock.now
        self._communication = CommunicationHooks(self._note, self._failed, self._now)
        self._loop = LoopHooks(self._note, self._now)
        self._stages = StageHooks(self)
        self._modules: list[ModuleHooks] = []
        # Spans of the current step, and those since the step before, which belong to the next.
        self._spans: list[Span] = []
        self._step, self._began = 0, 0
        self._inside = self._taken = False
        # Passes that are no training: what they are, and since when.
        self._others: list[tuple[str, int]] = []
        self._lost = 0
        self._counts: Counter[int] = Counter()
        self._forward: list[tuple[int, int, int]] = []
        self._backward: list[tuple[int, int, int]] = []
        self._entered: dict[int, int] = {}
        self._user: list[tuple[str, str, int]] = []
        # A pipeline schedule's current operation: kind, chunk, micro-batch, beginning.
        self._operation: tuple[str, int, int, int] | None = None
        self.reconfigure: Callable[..., int] | None = None
        # A rank was found slow; steps that are timed more finely since; what is to be in force after them.
        self._slow = False
        self._fine = 0
        self._after: TimelineSettings | None = None

    @property
    def passes(self) -> bool:  # type: ignore[override]
        return self._settings.granularity != "off"

    @property
    def watches(self) -> bool:
        return self.passes

    # Settings.

    def bind(self, tracer: Any) -> None:
        self.reconfigure = tracer.configure
        if tracer.graph is not None:
            self.place(tracer.graph, tracer.points.roots)

    def attach(self, host: Host) -> None:
        self._host, self._sender = host, SpanSender(host, self._found_slow, self._step_clock)

    def settings(self) -> Mapping[str, Any]:
        return self._settings.to_message()

    def schema(self) -> Mapping[str, Any]:
        return TimelineSettings.schema()

    def settings_from(self, asked: Any) -> Mapping[str, Any]:
        return TimelineSettings.given(asked).to_message()

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        return TimelineSettings.of(settings).to_message()

    def apply(self, step: int, settings: Mapping[str, Any]) -> None:
        """Time ``step`` and those after it by other settings, with no more hooks than these need."""
        self._settings = TimelineSettings.of(settings)
        if self._settings.granularity != "phases":
            self._after = None
        self._unhook_modules()
        if not self.passes:
            self._unhook()
            return
        self._step_clock.follow(self._host.roots)
        self._step_clock.watch_memory(self._host.roots, self._settings.memory)
        self._clock = self._step_clock.now
        self._step_clock.on = True
        self._communication.begin()
        self._loop.begin()
        self._stages.begin()
        found = {"layers": layers_of, "operations": operations_of}.get(self._settings.granularity)
        if found is not None:
            self._modules = [
                ModuleHooks(self._probed(list(found(root))), self._module(chunk), self._clock)
                for chunk, root in enumerate(self._host.roots)
            ]

    def place(self, graph: GraphProbes, roots: Iterable[nn.Module]) -> None:
        """Place probes in compiled code: layers always, operations where they are asked for by now."""
        for root in roots:
            timed = [
                *layers_of(root),
                *(operations_of(root) if self._settings.granularity == "operations" else ()),
            ]
            for _, module in timed:
                graph.place(module, "input")
                graph.place(module, "output")

    def _probed(self, timed: list[tuple[str, nn.Module]]) -> list[tuple[str, nn.Module]]:
        """Return the modules that have probes in compiled code: other hooks would cause a recompilation."""
        probed = [each for each in timed if end_of(each[1], "input") is not None]
        if not probed or len(probed) == len(timed):
            return timed
        self._host.warn(
            f"{len(timed) - len(probed)} of {len(timed)} modules are not timed, since the code of this model "
            "is compiled without probes for them. "
            "For operations, say timeline='operations' in megalens.trace(…), before the first step."
        )
        return probed

    def release(self, closing: bool) -> None:
        self._unhook_modules()
        self._unhook()
        if self._sender is not None:
            self._sender.close()

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        if self._sender is not None:
            self._sender.received(rank, meta, payload)

    def _unhook(self) -> None:
        self._communication.end()
        self._loop.end()
        self._stages.end()
        self._spans.clear()
        self._step_clock.on = False
        self._step_clock.forget()

    def _unhook_modules(self) -> None:
        for each in self._modules:
            each.close()
        self._modules = []

    # The step path.

    def step_begins(self, step: int, untraced: bool) -> None:
        every = self._settings.every
        self._inside, self._step = True, step
        self._taken = self.passes and not untraced and self._host.sends and step % every == 0
        self._counts.clear()
        self._forward.clear()
        self._backward.clear()
        self._entered.clear()
        self._operation = None
        self._communication.forget()
        self._step_clock.on = self._taken
        for each in self._modules:
            each.on = self._taken
        if not self._taken:
            self._spans = []
            self._step_clock.forget()
        self._began = self._clock()

    def step_ends(self) -> None:
        self._inside = False
        for each in self._modules:
            each.step_ends()
        spans, self._spans = self._spans, []
        taken, self._taken = self._taken, False
        now = self._clock()
        # Spans between steps belong to the next one.
        self._step_clock.on = self.passes
        if not taken or self._sender is None:
            return
        spans.append(Span("step", self._began, now, blocked=now - self._began))
        self._sender.put(self._step, spans, self._settings.granularity == "steps")
        self._look_closer()
        if self._lost:
            self._host.lose(self._lost, "told")
            self._host.warn(
                f"Step {self._step} had more than {_MOST_SPANS} spans; {self._lost} of them are left out."
            )
            self._lost = 0

    def _found_slow(self) -> None:
        self._slow = True

    def _look_closer(self) -> None:
        """Time some steps by phases where sums have shown a slow rank, then return to sums."""
        asked = self._settings
        # The producer thread may find another one meanwhile.
        slow, self._slow = self._slow, False
        if slow and asked.granularity == "steps" and asked.around and self._after is None:
            self._after, self._fine = asked, asked.around
            self._ask(replace(asked, granularity="phases"))
        elif self._after is not None and asked.granularity == "phases":
            self._fine -= 1
            if self._fine == 0:
                self._ask(self._after)

    def _ask(self, settings: TimelineSettings) -> None:
        if self.reconfigure is not None:
            try:
                self.reconfigure(timeline=settings.to_message())
            except Exception as error:  # The training goes on as it is.
                self._host.warn(f"The timeline could not be changed: {describe_error(error)}")

    def step_abandoned(self) -> None:
        self._inside = self._taken = False
        self._spans = []
        self._step_clock.forget()

    def pause(self, phase: str) -> None:
        """Stop timing passes that are no training."""
        self._others.append((PAUSES.get(phase, ""), self._clock() if self.passes else 0))

    def resume(self, training: bool) -> None:
        """Make evaluation or generation one span."""
        if not self._others:
            return
        name, began = self._others.pop()
        if name and began and self.passes and not any(outer for outer, _ in self._others):
            now = self._clock()
            self._note(Span("user", began, now, name, blocked=now - began))

    def forward_begins(self, chunk: int) -> None:
        if self._taken and not self._others:
            number = self._counts[chunk] if self._operation is None else self._operation[2]
            self._forward.append((chunk, number, self._clock()))
            self._counts[chunk] += 1

    def forward_ends(self, output: Any) -> None:
        if not self._forward or self._others:
            return
        now = self._clock()
        chunk, number, began = self._forward.pop()
        if self._operation is not None:
            return
        self._note(Span("forward", began, now, chunk=chunk, micro_batch=number, blocked=now - began))
        step = self._step
        at_each_backward(output, lambda: self._enter(step, chunk, number))

    def _enter(self, step: int, chunk: int, number: int) -> None:
        # The tracer reports the backward pass itself next.
        if step == self._step:
            self._entered[chunk] = number

    def backward_begins(self, chunk: int) -> None:
        if self._taken:
            # The last module gets the gradient of the model's output first.
            began = min((self._clock(), *(each.backward_began for each in self._modules)))
            number = self._entered.pop(chunk, -1) if self._operation is None else self._operation[2]
            self._backward.append((chunk, number, began))

    def backward_ends(self) -> None:
        if not self._taken or not self._backward:
            return
        for each in self._modules:
            each.backward_ends()
        now = self._clock()
        chunk, number, began = self._backward.pop()
        if self._operation is None:
            self._note(Span("backward", began, now, chunk=chunk, micro_batch=number, blocked=now - began))
        self._communication.backward_ended(began)

    def operation_begins(self, kind: str, chunk: int, micro_batch: int) -> None:
        """Begin an operation of a pipeline's schedule: from now on its passes are no spans of their own."""
        if self._taken and not self._others:
            self._operation = kind, chunk, micro_batch, self._clock()

    def operation_ends(self) -> None:
        if self._operation is not None:
            now = self._clock()
            (kind, chunk, number, began), self._operation = self._operation, None
            self._note(Span(kind, began, now, chunk=chunk, micro_batch=number, blocked=now - began))

    def message(
        self,
        kind: str,
        began: int,
        ended: int,
        blocked: int,
        nbytes: int,
        peer: int,
        sequence: int,
        chunk: int,
        micro_batch: int,
    ) -> None:
        if not self._taken:
            return
        self._note(
            Span(
                kind,
                began,
                ended,
                "pipeline",
                chunk,
                micro_batch,
                blocked,
                nbytes,
                self._pair(peer),
                peer,
                sequence,
            )
        )

    def _pair(self, peer: int) -> str:
        return ",".join(map(str, sorted((self._host.place.rank, peer))))

    def span_begins(self, name: str, kind: str) -> None:
        if self.passes:
            self._user.append((name, kind, self._clock()))

    def span_ends(self) -> None:
        if self._user:
            now = self._clock()
            name, kind, began = self._user.pop()
            self._note(Span(kind, began, now, name, blocked=now - began))

    def _module(self, chunk: int) -> Any:
        def keep(kind: str, path: str, began: int, now: int) -> None:
            # Every module of a pass calls this, so that it does not go by way of _note().
            if self._taken and not self._others:
                at = self._backward or self._forward
                if len(self._spans) < _MOST_SPANS:
                    number = at[-1][1] if at else -1
                    self._spans.append(Span(kind, began, now, path, chunk, number, now - began))
                else:
                    self._lost += 1

        return keep

    def _now(self) -> int:
        return self._clock()

    def _note(self, span: Span) -> None:
        """Add a span to the current step, or the next one."""
        if (self._inside and not self._taken) or (self._others and span.kind in _OF_PASSES):
            return
        if span.kind == "checkpoint" and any(kind == "checkpoint" for _, kind, _ in self._user):
            # What is saved inside is a part of it.
            return
        if len(self._spans) < _MOST_SPANS:
            self._spans.append(span)
        elif self._taken:
            self._lost += 1

    def _no_device_times(self, error: Exception) -> None:
        self._host.warn(
            "The times of the device could not be read, so that passes are timed until their work is "
            f"queued: {describe_error(error)}"
        )

    def _no_memory(self, why: str) -> None:
        self._host.warn(f"The memory in use is not read: {why}")

    def _failed(self, error: Exception) -> None:
        self._host.warn(f"A collective could not be timed: {describe_error(error)}")


def traced(model: Any, settings: TraceSettings, place: RankCoordinates) -> TimelineInstrument:
    """Return the timeline of a training, off where the settings lack it: viewers may switch it on."""
    return TimelineInstrument(TimelineSettings.given(settings.timeline))
