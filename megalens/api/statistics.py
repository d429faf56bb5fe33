"""``megalens.log_statistics``: the one line that begins it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..adapters.find import find_moments
from ..protocol import StepReadings, is_whole
from ..tracer.errors import TracerError
from ..tracer.moments.casts import formats_of
from ..tracer.moments.gathering import CompleteStep
from ..tracer.moments.hooks.loss_scale import LossScale
from ..tracer.moments.intervals import JUDGED, OF_POINTS, STATE, Intervals
from ..tracer.moments.jsonl import JsonlFiles
from ..tracer.moments.logger import StatisticsLogger
from ..tracer.own_hooks import hooked_optimizer
from ..tracer.points import IAdapter, ModelPoints
from ..tracer.sending.peers import Rendezvous
from ..tracer.settings import TraceSettings
from ..tracer.tensors.plan import TracingPlan
from ..tracer.tracer import Tracer
from .keywords import takes_keywords
from .trace import compiled_of, model_points, trace

__all__ = ["log_statistics"]

_SITES = ("projections", "all")
# Statistics that viewers see, in the order in which they are offered; the others are for what judges a step.
_SHOWN = tuple(each.name for each in fields(Intervals) if each.name not in JUDGED)


@dataclass(frozen=True)
class StatisticsSettings:
    """The settings of :func:`megalens.log_statistics`.

    Attributes
    ----------
    optimizer : torch.optim.Optimizer or several, optional
        What updates it. Gradients are measured before its step at the latest.
    param, grad, activation, dgrad, residual, residual_dgrad : int or None
        Every how many steps each is logged: at steps that the number divides. 0 or None is off, and leaves
        nothing installed; one must be given. Parameters are those after the step's update; gradients of
        parameters are unscaled and before clipping; activations are inputs and outputs of projections and
        embeddings, dgrads the gradients there, and the residual stream is what goes from layer to layer.
    attention_entropy, attention_max : int or None
        The entropy (in nats) and the largest probability of query rows of each attention: of probabilities
        that the model gives, else of queries and keys as their projections give them, without a rotation of
        positions. At most 64 rows of a sequence are looked at, and at most 4 samples where probabilities are
        computed.
    router_entropy, router_similarity : int or None
        The entropy of tokens over the experts of each router, and the cosine of each two experts in its
        weight, before the step.
    stable_rank, kernel_norm : int or None
        Of each matrix that is complete here, before the step: the largest singular value by power iteration,
        and the sum of all squares over its own. A step costs four products of each matrix and a vector there
        and back.
    precision : int or None
        Every how many steps it is computed what casts to fewer bits would lose of parameters, activations and
        dgrads, and read what tensors of float8 in the model have lost: shares of values that underflow,
        overflow, saturate and become subnormal, errors, scales and largest sizes.
    formats : str, sequence or mapping, optional
        To what: any of ``float8_e4m3fn``, ``float8_e5m2`` (with the tensor's own scale; ``…_delayed`` with
        the one before, ``…_unscaled`` with none), ``mxfp8``, ``nvfp4``, ``float16``, ``bfloat16``; or by
        ``param``, ``activation`` and ``dgrad`` what each is cast to. When absent, dgrads to
        ``float8_e5m2`` and the others to ``float8_e4m3fn``.
    sites : str
        Of which modules the first input and the first output are measured as activations: ``"projections"``,
        or ``"all"``, which costs a pass over memory for each end of each module.
    tracer : Tracer, optional
        Whose steps these are. Without one a tracer is made, with ``options``, and closed with the logger.
    loss_scale : GradScaler, number or callable, optional
        By what the loss is multiplied in mixed precision; it is divided out. Steps that a ``GradScaler``
        leaves out have no gradients of parameters.
    samples : int or callable, optional
        Samples of one step, over all processes; or a function that gives how many have been consumed.
    jsonl : str or Path, optional
        Folder into which rank 0 also writes ``training_stats/…/rank0.jsonl``, the layout of raw-moment files.
    adapter : IAdapter, optional
        Where the layers are, as for :func:`megalens.trace`. A model that no adapter knows has everything but
        the residual stream.
    judge : callable, optional
        Is given each step's statistics of all processes on rank 0, in the producer thread.
    own : callable, optional
        Is given what each process measured itself, on every rank.
    at_once : bool
        Whether ``judge`` and ``own`` are given each step as it ends. False: while nobody looks, the steps of
        up to a second together, which costs a training on busy cores less.
    recorded : mapping, optional
        By statistic every how many of the steps at which it is measured, by number, it is also sent and
        recorded; what is not named is at all of them, and 0 is never.
    optimizer_state : int or None
        Every how many steps ``judge`` and ``own`` are also given what Adam and its like keep of each
        parameter: ``exp_avg`` and ``exp_avg_sq``.
    grad_unreduced, grad_accumulated : int or None
        Every how many steps they are also given the gradients that each process has computed itself, before
        these are reduced over data-parallel processes: as accumulated up to the last micro-batch, and after
        each micro-batch.
    param_origin : int or None
        Every how many steps they are also given the parameters before the step.
    gradient_direction : int or None
        Every how many steps they are also given, of each parameter, the part of its gradient's values that
        have the sign of Adam's mean (``exp_avg``) right before the step, where zeros count as half.
    communication : int or None
        Every how many steps they are also given what collectives of ``torch.distributed`` are given and give,
        by operation, of all calls in a step together: ``all_reduce/input0``, ``all_reduce/output0``. The
        functions of the module stand behind others during such a step; names that were imported from it
        before are not seen, neither is what DDP reduces. What an asynchronous collective gives is measured
        after ``wait()``.
    inputs : int or None
        Every how many steps they are also given a number of what the model was given in the step, by which
        data that come again are known.
    lenient : bool
        Whether a statistic that the model cannot have is left out with a warning, where it would raise.
    options : mapping
        For :func:`megalens.trace` (``name``, ``record``, ``hub``, …) where there is no tracer yet, by
        keyword. With ``hub=None`` there are only files.

    Raises
    ------
    TracerError
        When a setting is not as above, naming it.
    """

    optimizer: Any = None
    param: int | None = None
    grad: int | None = None
    activation: int | None = None
    dgrad: int | None = None
    residual: int | None = None
    residual_dgrad: int | None = None
    attention_entropy: int | None = None
    attention_max: int | None = None
    router_entropy: int | None = None
    router_similarity: int | None = None
    stable_rank: int | None = None
    kernel_norm: int | None = None
    precision: int | None = None
    formats: Any = None
    sites: str = "projections"
    tracer: Tracer | None = None
    loss_scale: Any = None
    samples: int | Callable[[], int] | None = None
    jsonl: str | Path | None = None
    adapter: IAdapter | None = None
    judge: Callable[[StepReadings], None] | None = None
    own: Callable[[StepReadings], None] | None = None
    at_once: bool = True
    recorded: Mapping[str, int] | None = None
    optimizer_state: int | None = None
    grad_unreduced: int | None = None
    grad_accumulated: int | None = None
    param_origin: int | None = None
    gradient_direction: int | None = None
    inputs: int | None = None
    communication: int | None = None
    lenient: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        formats_of(self.formats)
        known = {each.name for each in fields(TraceSettings)}
        for name in self.options:
            if name not in known:
                raise TypeError(f"log_statistics() got an unexpected keyword argument {name!r}")
        if self.jsonl is not None and not isinstance(self.jsonl, (str, Path)):
            raise TracerError(f"jsonl=… must be a folder, got {self.jsonl!r:.100}.")
        if self.sites not in _SITES:
            raise TracerError(f"sites=… must be one of {', '.join(_SITES)}, got {self.sites!r:.50}.")
        if self.tracer is not None and self.options:
            raise TracerError(
                f"{', '.join(sorted(self.options))} are settings of a tracer; give them to megalens.trace, "
                "or leave tracer out."
            )

    def intervals(self) -> Intervals:
        """Return the steps between measurements by statistic; raises ``TracerError`` for no such number."""
        every = {
            each.name: self.optimizer_state if each.name in STATE else getattr(self, each.name)
            for each in fields(Intervals)
        }
        return Intervals.of(**every)

    def check_named(self, intervals: Intervals) -> None:
        """Raise ``TracerError`` where no statistic is named, not even as one that is off."""
        if not intervals and all(getattr(self, name) is None for name in _SHOWN):
            raise TracerError(
                f"log_statistics(…) was not told what to log: give any of {', '.join(_SHOWN)} a number of "
                "steps, such as grad=1."
            )

    @property
    def without_hub(self) -> bool:
        """Whether the tracer that is made gets no hub."""
        return self.tracer is None and self.options.get("hub", "spawn") is None

    @property
    def files_only(self) -> bool:
        """Whether only files take what is measured."""
        return self.judge is None and self.own is None


@takes_keywords(StatisticsSettings)
def log_statistics(model: nn.Module | Sequence[nn.Module], settings: StatisticsSettings) -> StatisticsLogger:
    """Begin to log count, mean, central moments, extremes and non-finite counts of a model's tensors.

    Parameters
    ----------
    model : torch.nn.Module or sequence of them
        The model that is trained; of a pipeline stage with several model chunks, all of them.
    settings
        See below.
    **options
        For :func:`megalens.trace` (``name``, ``record``, ``hub``, …) where there is no tracer yet. With
        ``hub=None`` there are only files.

    Returns
    -------
    StatisticsLogger
        Use ``with statistics.step():`` (or the tracer's own) around each optimizer step, and close it at the
        end, or use it in a ``with``.

    Raises
    ------
    TracerError
        When the model cannot have a statistic that was asked for, or an argument is wrong.
    """
    intervals = settings.intervals()
    optimizers = _optimizers(settings.optimizer)
    scale = LossScale(settings.loss_scale)
    counted = _samples(settings.samples)
    tracer, adapter = settings.tracer, settings.adapter
    points = model_points(model, adapter) if tracer is None else tracer.points
    find = partial(
        find_moments, model, settings.optimizer, adapter=adapter, every_module=settings.sites == "all"
    )
    measured = find(points)
    if points.watch is not None:
        # The first forward pass decides of these.
        later = {stat: why for stat, why in measured.unavailable.items() if stat not in OF_POINTS}
        measured = replace(measured, unavailable=later)
    if settings.options.get("compiled") == "captured" or (tracer is not None and tracer.graph_measures):
        measured = measured.captured()
    if settings.loss_scale is None and measured.loss_scale is not None:
        scale = LossScale(measured.loss_scale)
    refused = {stat: why for stat, why in measured.unavailable.items() if stat in intervals.on()}
    if refused and not settings.lenient:
        raise TracerError(next(iter(refused.values())))
    intervals = replace(intervals, **dict.fromkeys(refused, 0))
    settings.check_named(intervals)
    if settings.without_hub and settings.files_only and settings.jsonl is None and intervals:
        raise TracerError(
            "With hub=None statistics go to files only, and there are none: give jsonl=… a folder, or leave "
            "hub out."
        )
    files = None if settings.jsonl is None or points.place.rank else JsonlFiles(Path(settings.jsonl))
    owned = tracer is None
    if tracer is None:
        tracer = _tracer(model, points, settings, bool(intervals))
    for stat, why in refused.items():
        tracer.warn(f"{stat} is not measured. {why}")
    if files is not None:
        files.warn = tracer.warn
    if tracer.graph is not None:
        # Before the model is compiled, also for what is switched on later.
        for end in measured.ends():
            tracer.graph.place(*end)
        tracer.graph.measured()
    # What wraps an optimizer may have parameters of its own.
    if isinstance(settings.optimizer, Optimizer) and not _updates(settings.optimizer, points.roots):
        tracer.warn("The optimizer that log_statistics was given updates no parameter of this model.")
    return StatisticsLogger(
        tracer,
        measured,
        points.roots,
        optimizers,
        intervals,
        scale,
        counted,
        owns_tracer=owned,
        keep=files if settings.judge is None else _Judged(settings.judge, files),
        by_rank=settings.judge is not None,
        own=settings.own,
        at_once=settings.at_once,
        recorded=Intervals.sent(**(settings.recorded or {})),
        renewed=partial(find, tracer.points),
        formats=settings.formats,
    )


def _tracer(model: Any, points: ModelPoints, settings: StatisticsSettings, measuring: bool) -> Tracer:
    """Return a tracer for the logger alone."""
    options = settings.options
    if not settings.without_hub:
        return trace(model, adapter=_Known(points), **options)
    return Tracer(
        points,
        TracingPlan(),
        None,
        rendezvous=Rendezvous.of_job(),
        name=options.get("name"),
        first_step=options.get("first_step") or 1,
        hubless=measuring,
        compiled=compiled_of(points, options.get("compiled")),
    )


class _Judged:
    """Passes each step to its judge, and to files where there are some."""

    def __init__(self, judge: Callable[[StepReadings], None], files: JsonlFiles | None) -> None:
        self._judge, self._files = judge, files

    def __call__(self, step: CompleteStep) -> None:
        if self._files is not None:
            self._files(step)
        self._judge(StepReadings(step.step, step.samples, step.readings))


class _Known:
    """An adapter whose points are known."""

    def __init__(self, points: Any) -> None:
        self._points = points

    def points(self, model: Any) -> Any:
        return self._points


def _optimizers(given: Any) -> list[Optimizer]:
    """Return torch's optimizers, unwrapped."""
    many = list(given) if isinstance(given, Iterable) and not isinstance(given, Optimizer) else [given]
    found = []
    for each in many:
        # One that chains several has no single one inside.
        inner = each if hasattr(each, "chained_optimizers") else hooked_optimizer(each)
        if isinstance(inner, Optimizer):
            found.append(inner)
        elif each is not None and not hasattr(each, "step"):
            raise TracerError(f"optimizer must be what updates the model, got a {type(each).__name__}.")
    return found


def _updates(optimizer: Optimizer, roots: Iterable[nn.Module]) -> bool:
    own = {id(each) for root in roots for each in root.parameters()}
    return any(id(each) in own for group in optimizer.param_groups for each in group["params"])


def _samples(given: Any) -> Callable[[int], int]:
    if given is None:
        return lambda step: -1
    if callable(given):
        return lambda step: given()
    if is_whole(given):
        return lambda step: step * int(given)
    raise TracerError(
        "samples must be how many one step has, or a function that gives how many were consumed, got "
        f"{given!r:.50}."
    )
