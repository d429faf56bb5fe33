"""``megalens.log_statistics``: the one line that begins it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from torch import nn
from torch.optim import Optimizer

from ..adapters.find import find_moments
from ..protocol import StepReadings, is_whole
from ..tracer.errors import TracerError
from ..tracer.moments.hooks.loss_scale import LossScale
from ..tracer.moments.intervals import Intervals
from ..tracer.moments.joining.gathering import WholeStep
from ..tracer.moments.jsonl import JsonlFiles
from ..tracer.moments.logger import StatisticsLogger
from ..tracer.points import ModelPoints
from ..tracer.sending.peers import Rendezvous
from ..tracer.tensors.plan import TracingPlan
from ..tracer.tracer import Tracer
from .keywords import takes_keywords
from .statistics_settings import StatisticsSettings
from .trace import model_points, trace

__all__ = ["log_statistics"]


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
        For :func:`megalens.trace` (``name``, ``record``, ``hub``, …) where there is no tracer yet. With ``hub=None`` there are only files.

    Returns
    -------
    StatisticsLogger
        Use ``with statistics.step():`` (or the tracer's own) around each optimizer step, and close it at the end, or use it in a ``with``.

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
    points = model_points(model, adapter, lenient=True) if tracer is None else tracer.points
    measured = find_moments(model, settings.optimizer, points, adapter, every_module=settings.sites == "all")
    if settings.loss_scale is None and measured.loss_scale is not None:
        scale = LossScale(measured.loss_scale)
    for stat in intervals.to_message():
        if stat in measured.unavailable:
            raise TracerError(measured.unavailable[stat])
    settings.check_named(intervals)
    if settings.without_hub and settings.files_only and settings.jsonl is None and intervals:
        raise TracerError(
            "With hub=None statistics go to files only, and there are none: give jsonl=… a folder, or leave hub out."
        )
    files = None if settings.jsonl is None or points.place.rank else JsonlFiles(Path(settings.jsonl))
    owned = tracer is None
    if tracer is None:
        tracer = _tracer(model, points, settings, bool(intervals))
    if files is not None:
        files.warn = tracer.warn
    if tracer.graph is not None:
        # Before the model is compiled, also for what is switched on later.
        for end in measured.ends():
            tracer.graph.place(*end)
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
    )


class _Judged:
    """Hands each step to what judges it, and to files where there are some."""

    def __init__(self, judge: Callable[[StepReadings], None], files: JsonlFiles | None) -> None:
        self._judge, self._files = judge, files

    def __call__(self, whole: WholeStep) -> None:
        """Take a step."""
        if self._files is not None:
            self._files(whole)
        self._judge(StepReadings(whole.step, whole.samples, whole.readings))


class _Known:
    """An adapter whose points are known."""

    def __init__(self, points: Any) -> None:
        self._points = points

    def points(self, model: Any) -> Any:
        """Return them."""
        return self._points


def _optimizers(given: Any) -> list[Optimizer]:
    """Return torch's optimizers; what only wraps one is looked through."""
    many = list(given) if isinstance(given, Iterable) and not isinstance(given, Optimizer) else [given]
    found = []
    for each in many:
        # One that chains several has no single one inside.
        inner = each if hasattr(each, "chained_optimizers") else getattr(each, "optimizer", each)
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
        f"samples must be how many one step has, or a function that gives how many were consumed, got {given!r:.50}."
    )
