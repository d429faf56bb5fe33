"""The statistics logger that a training loop holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.optim import Optimizer

from ...protocol import CAST_STATS, LEAST_RANKS, RANK_SCALAR, SCALED_STATS, StepReadings, parse_name
from ...protocol.messages_generated import Announce, LoggedStatistics, Status
from ..errors import TracerError
from ..instrument import Instrument
from ..passes import TRANSFORMED, left_out_sentence
from .casts import Casts, formats_of, held
from .collector import Collector, MemberCollector, RootCollector
from .features import WeightFeatures
from .gathering import CompleteStep
from .hooks.backward_end import UNREDUCED, OwnGradients
from .hooks.communication import Communication
from .hooks.gradients import GradientMoment
from .hooks.inputs import Inputs
from .hooks.loss_scale import UNKNOWN_SCALE, LossScale
from .hooks.sites import MomentProbe, Sites, probes_of
from .hooks.values import ParamRows, local_values, measurable
from .intervals import JUDGED, OF_POINTS, SEEN, STATE, Intervals, Moved, moved
from .measure import measure
from .part import MeasuredRows, MeasuredStep, NameList
from .points import MomentPoints, ParamPoint

if TYPE_CHECKING:
    from ..instrument import Host
    from ..tracer import Tracer

_clock = time.perf_counter_ns
_SITE_STATS = frozenset(("activation", "dgrad", "residual", "residual_dgrad", "precision", *SEEN))
_SCALED = frozenset(SCALED_STATS)
_NO_SITES = (
    "Activations are measured of embeddings and of modules that map features by a matrix, and this model has "
    "none. sites='all' measures what goes into and comes out of every module."
)


class StatisticsLogger(Instrument):
    """Logs statistics of one model. Made by :func:`megalens.log_statistics`.

    The instrument of the stream ``moments``. It lives in the tracer's steps: ``with statistics.step():`` is
    ``with tracer.step():``. Nothing that is called during training raises, waits or synchronises a device.

    Parameters
    ----------
    roots : sequence of torch.nn.Module
        Modules whose call is one forward pass.
    samples : callable
        Takes a step and gives the samples consumed up to and with it.
    keep : callable, optional
        Takes each step's rows on rank 0; for files.
    by_rank : bool
        Whether they come with what each process measured.
    recorded : Intervals, optional
        Which of what is measured is sent; all when absent.
    own : callable, optional
        Takes what this process measured of a step, on every rank, in the producer thread.
    at_once : bool
        Whether what judges is given each step as it ends.
    renewed : callable, optional
        Gives what there is to measure once the first forward pass has corrected where it is.
    formats : str, sequence or mapping, optional
        To what tensors are cast where ``precision`` is due, as :func:`~.casts.formats_of` takes it.

    Raises
    ------
    TracerError
        When the model cannot have a statistic that was asked for, or when another logger has this tracer.

    Attributes
    ----------
    optimizers : tuple of torch.optim.Optimizer
        What updates the model, as far as it was named.
    params : sequence of ParamPoint
        The model's parameters, with their canonical names.
    failures : int
        How often something could not be measured because of an error of its own.
    left_out_passes : int
        Forward passes that were no training, in steps of which something inside of the model was logged.
    spent_ns : int
        Nanoseconds that the training thread has spent on statistics, without the producer thread's.
    """

    name = "moments"
    title = "Measured statistics"

    def __init__(
        self,
        tracer: Tracer,
        points: MomentPoints,
        roots: Sequence[nn.Module],
        optimizers: Sequence[Optimizer],
        intervals: Intervals,
        scale: LossScale,
        samples: Callable[[int], int],
        *,
        owns_tracer: bool,
        keep: Callable[[CompleteStep], None] | None = None,
        by_rank: bool = False,
        recorded: Intervals | None = None,
        own: Callable[[StepReadings], None] | None = None,
        at_once: bool = True,
        renewed: Callable[[], MomentPoints] | None = None,
        formats: Any = None,
    ) -> None:
        refused = [points.unavailable[stat] for stat in intervals.on() if stat in points.unavailable]
        if refused:
            raise TracerError(refused[0])
        self.tracer = tracer
        self.intervals = intervals
        self._points, self._scale, self._samples = points, scale, samples
        self._renewed = renewed
        self._keep_rows, self._by_rank, self._take_own = keep, by_rank, own
        self.recorded = Intervals.sent() if recorded is None else recorded
        judged = by_rank or own is not None
        self._at_once = at_once and judged
        self._stats = tuple(
            each.name
            for each in fields(Intervals)
            if each.name not in points.unavailable and (judged or each.name not in JUDGED)
        )
        self.owns_tracer = owns_tracer
        self.optimizers, self.params = tuple(optimizers), points.params
        self._names = NameList(points.stage)
        counted = [point for point in points.params if point.counted]
        ids = [self._names.index(point.name) for point in counted]
        self._values = ParamRows(ids, [point.value for point in counted])
        self._state = {
            stat: ParamRows(ids, [partial(_state, optimizers, point.parameter, stat) for point in counted])
            for stat in STATE
        }
        # What other processes count is measured where somebody compares it with theirs.
        replicas = [
            (self._names.index(point.name), point) for point in points.params if by_rank and not point.counted
        ]
        self._before = ParamRows(ids, [point.value for point in counted])
        self._replicas = ParamRows([at for at, _ in replicas], [point.value for _, point in replicas])
        self._counted = counted
        self._weights = WeightFeatures(counted, points.features, self._names)
        self._due: frozenset[str] = frozenset()
        self._parts: dict[str, MeasuredRows] = {}
        self._step = 0
        self._closed = False
        self._moved = Moved()
        self._looked = False
        """Whether it was looked at which modules a step reaches."""
        self._probes: dict[frozenset[str], list[MomentProbe]] = {}
        cast = {k: v for k, v in formats_of(formats).items() if k not in points.unavailable}
        self._casts = Casts(cast, self._names)
        self._modules = {
            id(parameter): module
            for root in roots
            for module in root.modules()
            for parameter in module._parameters.values()
        }
        self._sites = Sites(
            roots, self._keep, self._spent, self._names.note if by_rank else None, self._casts
        )
        self._communication = Communication(partial(self._keep_own, "communication"), self._spent)
        self._inputs = Inputs(roots, partial(self._keep_own, "inputs", "inputs"), self._spent)
        self._gradients: GradientMoment | None = None
        own_gradients = OwnGradients(
            points.params,
            [self._names.index(point.name) for point in points.params],
            tracer.warn,
            self._spent,
            points.before_reduction,
        )
        self._watch_gradients = partial(
            GradientMoment,
            counted,
            ids,
            roots,
            optimizers,
            scale,
            points.gradients_ready,
            self._spent,
            tracer.warn,
            replicas,
            own_gradients if judged else None,
            ParamRows(ids, [partial(_direction, optimizers, point) for point in counted]),
        )
        if _of_gradients(intervals):
            self._gradients = self._watch_gradients()
        self.failures = self.left_out_passes = 0
        self.spent_ns = 0
        self._collector: Collector | None = None
        self._phases = self._ranks = 0
        if tracer.instrument(self.name) is not None:
            raise TracerError("Statistics of this tracer are logged already; close that logger first.")
        tracer.attach(self)
        if points.left_out:
            tracer.warn(points.left_out)
        if not points.sites and (intervals.activation or intervals.dgrad):
            tracer.warn(_NO_SITES)

    # Around the training.

    def step(self) -> AbstractContextManager[None]:
        """Return a context manager around one optimizer step: the tracer's own."""
        return self.tracer.step()

    def close(self) -> None:
        """Take every hook off and, where the tracer is the logger's own, end the run. Safe twice."""
        self._leave()
        if self.owns_tracer:
            self.tracer.close()

    def __enter__(self) -> StatisticsLogger:
        return self

    def __exit__(self, *error: Any) -> None:
        self._leave()
        if self.owns_tracer:
            self.tracer.__exit__(*error)

    def __repr__(self) -> str:
        every = ", ".join(f"{stat} every {steps}" for stat, steps in self.intervals.on().items())
        return f"<StatisticsLogger {every}, step {self._step}>"

    # What the tracer calls.

    def attach(self, host: Host) -> None:
        self._ranks = host.place.world_size
        kind = (
            partial(RootCollector, keep=self._keep_rows, recorded=self.recorded.due)
            if host.place.rank == 0
            else MemberCollector
        )
        self._collector = kind(
            host, self._names, self._take_own, at_once=self._at_once, by_rank=self._by_rank
        )
        self._announce = host.announce

    def step_begins(self, step: int, untraced: bool) -> None:
        """Begin a step; untraced ones count for the intervals too."""
        self._step = step
        self._due = self.intervals.due(step)
        if self._due or self._gradients is not None:
            self._spent(self._begin)

    @property
    def uses_points(self) -> bool:
        return any(getattr(self.intervals, stat) for stat in OF_POINTS)

    def places_changed(self, places: Collection[tuple[str, int]]) -> None:
        """Measure at the new places from the next step on; what was measured of this one is given up."""
        if self._renewed is None:
            return
        new, before = self._renewed(), self._points
        self._points = replace(before, residuals=new.residuals, features=new.features)
        self._moved, late = moved(before, new, places, self._due)
        if late:
            self.tracer.warn(
                f"Rows of these statistics begin after step {self._step}, whose first forward pass showed "
                f"where their tensors are: {late}."
            )
        self._weights = WeightFeatures(self._counted, new.features, self._names)
        self._probes = {}
        for stat in OF_POINTS:
            if getattr(self.intervals, stat) and stat in new.unavailable:
                self.tracer.warn(f"{stat} is not measured. {new.unavailable[stat]}")

    def step_ends(self) -> None:
        if self._due:
            self._spent(self._end)
            self._due = frozenset()

    def step_abandoned(self) -> None:
        self._due = frozenset()
        self._communication.end()
        self._inputs.end()
        self._parts = {}
        self._spent(self._sites.end)
        if self._gradients is not None:
            self._spent(lambda: self._gradients and self._gradients.take())

    def logged(self, step: int, values: Mapping[str, Any]) -> None:
        """Record this rank's losses where ranks are judged and are enough to tell the odd one."""
        if self._by_rank and self._due and self._ranks >= LEAST_RANKS:
            self._spent(lambda: self._keep_losses(values))

    def pause(self, phase: str) -> None:
        """Count no forward pass while something else than training goes on inside of the step."""
        self._phases += 1
        self._sites.paused = True

    def resume(self, training: bool) -> None:
        self._phases -= 1
        self._sites.paused = self._phases > 0

    def release(self, closing: bool) -> None:
        """Detach from the model; files are written also without a hub."""
        if closing or self._keep_rows is None:
            self._leave()

    @property
    def watches(self) -> bool:
        return bool(self.intervals)

    def settings(self) -> Mapping[str, Any]:
        return {"every": {stat: getattr(self.intervals, stat) for stat in self._stats}}

    def schema(self) -> Mapping[str, Any]:
        return Intervals.schema(self._stats)

    def check(self, settings: Mapping[str, Any]) -> Mapping[str, Any]:
        asked = Intervals.of_settings(settings, self._stats)
        return {"every": {stat: getattr(asked, stat) for stat in self._stats}}

    def apply(self, step: int, settings: Mapping[str, Any]) -> None:
        """Log by other intervals, with the hooks that these need and no more."""
        before, self.intervals = self.intervals, Intervals.of_settings(settings, self._stats)
        if self._gradients is None and _of_gradients(self.intervals):
            self._gradients = self._watch_gradients()
        elif self._gradients is not None and not _of_gradients(self.intervals):
            self._gradients.close()
            self._gradients = None
        if self.intervals != before:
            self._announce()

    def describe(self, announce: Announce) -> None:
        if not self._closed and self.intervals:
            announce["statistics"] = cast(LoggedStatistics, self.intervals.to_message())

    def report(self, status: Status) -> None:
        """Report how many passes were left out, unless the tensor tracer saw more of them."""
        if self.left_out_passes:
            status["left_out_passes"] = max(self.left_out_passes, status.get("left_out_passes", 0))

    def received(self, rank: int, meta: dict[str, Any], payload: memoryview) -> None:
        if self._collector is not None:
            self._collector.received(rank, meta, payload)

    def undelivered(self) -> None:
        if self._collector is not None:
            self._collector.resend_names()

    def superseded(self) -> None:
        """Take nothing more: other processes' parts go to another logger."""
        if self._collector is not None:
            self._collector.end()

    def _look(self) -> None:
        """Name what the first step that is measured did not reach."""
        unreached = [
            (name.rpartition("/")[0] or name, module)
            for name, module in ((self._names[at], module) for at, module in self._sites.unreached())
            # Which experts a step takes is for its tokens to say.
            if parse_name(name).expert is None
        ]
        if not self._sites.fired:
            if not self._sites.left_out and self._sites.unreached():
                self.tracer.warn(
                    f"Nothing could be measured inside of the model in step {self._step}: its modules were "
                    "not called in it, or were compiled (torch.compile) before this began. In that case call "
                    "megalens.log_statistics(…, compiled=True) before the first step, or "
                    "torch.compiler.reset() after it."
                )
            return
        read = [name for name, module in unreached if isinstance(module, NonDynamicallyQuantizableLinear)]
        others = [
            name for name, module in unreached if not isinstance(module, NonDynamicallyQuantizableLinear)
        ]
        for names, why in (
            (read, "nn.MultiheadAttention reads its weight and does not call it"),
            (others, "it was not called, or only its forward method, which runs no hooks"),
        ):
            if names:
                named = list(dict.fromkeys(names))
                more = f" and {len(named) - 3} more" if len(named) > 3 else ""
                self.tracer.warn(
                    f"Step {self._step} has no statistics of what goes into and out of {', '.join(named[:3])}"
                    f"{more}: {why}."
                )

    # The step.

    def _begin(self) -> None:
        self._parts = self._weights.measure(self._due)
        if "param_origin" in self._due:
            self._parts["param_origin"] = self._rows_of("param_origin", self._before)
        if "precision" in self._due and "param" in self._casts.formats:
            self._cast_params()
        if self._due & {"grad", "gradient_direction", "precision", *UNREDUCED, *_SCALED}:
            self._scale.begin()
        if "communication" in self._due:
            self._communication.begin()
        if "inputs" in self._due:
            self._inputs.begin()
        if self._gradients is not None:
            self._gradients.begin(self._due)
        here = self._due & _SITE_STATS
        if here:
            probes = self._probes.get(here)
            if probes is None:
                points = self._points
                probes = self._probes[here] = probes_of(
                    points.sites, points.residuals, points.features, self._names, here, self._casts.formats
                )
            self._sites.begin(probes, here)

    def _cast_params(self) -> None:
        """Compute what casts of the parameters lose, as this step computes with them."""
        for point in self._counted:
            value = point.value()
            values = None if value is None else local_values(value)
            if values is not None and (measurable(values) or held(values) is not None):
                at, module = self._names.index(point.name), self._modules.get(id(point.parameter))
                for row in self._casts.rows("param", at, values, module):
                    self._keep(*row)
        for name, give in self._points.held:
            found = give()
            for row in () if found is None else self._casts.held_rows(name, *found):
                self._keep(*row)

    def _end(self) -> None:
        self._communication.end()
        self._inputs.end()
        parts = self._parts
        if self._due & _SITE_STATS:
            self._sites.take()
            self._sites.end()
            if self._sites.transformed:
                self.tracer.warn(TRANSFORMED)
            if self._sites.left_out:
                if not self.left_out_passes:
                    self.tracer.warn(left_out_sentence(self._step, self._sites.left_out))
                self.left_out_passes += self._sites.left_out
            if not self._looked:
                self._looked = True
                self._look()
        unknown = self._scale.unknown(self._sites.half)
        if unknown and _SCALED & parts.keys():
            self.tracer.warn(UNKNOWN_SCALE)
        for stat in _SCALED & parts.keys():
            part = parts[stat]
            part.gradient_stage = "backward_scaled" if unknown else "backward"
            part.scale, part.divide = (float("nan") if unknown else self._scale.now), not unknown
        for stat in frozenset(CAST_STATS) & parts.keys():
            # They are of gradients as the backward pass has them, and are not divided.
            parts[stat].scale = self._scale.now
        self._moved.leave_out(parts, self._names)
        self._moved = Moved()
        given = list(parts.values())
        if self._gradients is not None:
            given += self._gradients.take()
        if "param" in self._due:
            given.append(self._rows_of("param", self._values))
            given.append(self._rows_of("param", self._replicas, counted=False))
        given += [self._rows_of(stat, self._state[stat]) for stat in STATE if stat in self._due]
        self._parts = {}
        if self._collector is not None:
            self._collector.put(MeasuredStep.leaving(self._step, self._consumed(), given))

    @staticmethod
    def _rows_of(stat: str, values: ParamRows, *, counted: bool = True) -> MeasuredRows:
        part = MeasuredRows(stat, counted=counted)
        for measured, rows in values.measure():
            part.add(measured, rows)
        return part

    def _keep(self, stat: str, at: int, row: Tensor) -> None:
        part = self._parts.get(stat)
        if part is None:
            part = self._parts[stat] = MeasuredRows(stat)
        part.add((at,), row)

    def _keep_own(self, stat: str, name: str, rows: Tensor) -> None:
        # Each process has its own, and none counts for the others.
        part = self._parts.setdefault(stat, MeasuredRows(stat, counted=False))
        part.add((self._names.index(name),), rows)

    def _keep_losses(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if "loss" in name.lower():
                loss = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
                part = self._parts.setdefault(RANK_SCALAR, MeasuredRows(RANK_SCALAR, counted=False))
                part.add((self._names.index(name),), measure([loss.detach().reshape(1)]))

    def keep_numbers(self, stat: str, numbers: Mapping[str, float]) -> bool:
        """Add numbers of this process to what is judged of the step that is under way; False where that step
        is not measured.
        """
        if not self._due:
            return False
        part = self._parts.setdefault(stat, MeasuredRows(stat, counted=False))
        values = torch.tensor([*numbers.values()], dtype=torch.float64)
        part.add([self._names.index(name) for name in numbers], measure([*values[:, None]]))
        return True

    def _consumed(self) -> int:
        try:
            return int(self._samples(self._step))
        except Exception as error:
            self.tracer.warn(f"samples could not be read: {str(error)[:200] or type(error).__name__}")
            return -1

    def _spent(self, call: Callable[[], Any]) -> None:
        """Call something of ours on the step path: count its time, report its error, raise nothing."""
        started = _clock()
        try:
            call()
        except Exception as error:  # A fault of ours must not end a training step.
            self.failures += 1
            self.tracer.warn(
                f"A statistic could not be measured in step {self._step}: "
                f"{str(error)[:300] or type(error).__name__}"
            )
        spent = _clock() - started
        self.spent_ns += spent
        self.step_ns += spent

    def _leave(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._due = frozenset()
        self._communication.end()
        self._inputs.end()
        self._sites.end()
        if self._gradients is not None:
            self._gradients.close()
        self.tracer.detach(self)


def _of_gradients(intervals: Intervals) -> bool:
    return any(getattr(intervals, stat) for stat in ("grad", "gradient_direction", *UNREDUCED))


def _state(optimizers: Sequence[Optimizer], parameter: nn.Parameter, stat: str) -> Tensor | None:
    """Return an optimizer's state of a parameter; None before its first step, and where there is none."""
    for optimizer in optimizers:
        # Asked for by index, a state that is not there yet would be made.
        state = optimizer.state.get(parameter)
        if state is not None:
            value = state.get(stat)
            return value if isinstance(value, Tensor) else None
    return None


def _direction(optimizers: Sequence[Optimizer], point: ParamPoint) -> Tensor | None:
    """Return the share of a gradient's signs that are those of the optimizer's mean, ``[1]``.

    None before the first step.
    """
    gradient, mean = point.gradient(), _state(optimizers, point.parameter, "exp_avg")
    here = None if gradient is None else local_values(gradient)
    usual = None if mean is None else local_values(mean)
    if here is None or usual is None or here.shape != usual.shape or not here.numel():
        return None
    with torch.no_grad():
        return ((here.sign() * usual.sign()).float().mean().reshape(1) + 1) / 2
