"""``megalens.monitor``: the one line that begins it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from torch import nn

from .monitoring.alarm import Alarm, alarm_columns
from .monitoring.settings import WatchSettings
from .monitoring.watch import Watch
from .protocol import Readings, StepReadings
from .protocol.anomaly import first_anomaly
from .tracer.moments.joining.gathering import WholeStep
from .tracer.moments.logger import StatisticsLogger
from .tracer.monitor.instrument import MonitorInstrument
from .tracer.tracer import Tracer
from .training_statistics import log_statistics

__all__ = ["TrainingMonitor", "monitor"]

_DEFAULTS = {"param": 1, "grad": 1, "activation": 10}
_KEPT = 1000


def monitor(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Any,
    config: Any = None,
    *,
    tracer: Tracer | None = None,
    rules: Mapping[str, Any] | Sequence[Callable[..., Any]] | None = None,
    actions: Any = None,
    black_box: int = 20,
    record: Any = None,
    **options: Any,
) -> TrainingMonitor:
    """Begin to monitor a training: rules judge each step's statistics, and raise alarms.

    Parameters
    ----------
    model, optimizer
        As for :func:`megalens.log_statistics`.
    tracer : Tracer, optional
        Whose steps these are. Without one a tracer is made and closed with the monitor.
    rules : mapping, optional
        Settings of the rules: ``{"rules": {"jump": {"threshold": 12}}, "muted": [{"rule": "dead", "name": "*bias"}]}``.
    record : str or Path, optional
        Folder of the recording, as for :func:`megalens.trace`.
    **options
        For :func:`megalens.log_statistics`: every how many steps each statistic is measured, and how the run is called.

    Returns
    -------
    TrainingMonitor
        Use ``with monitor.step():`` (or the tracer's own) around each optimizer step, and close it at the end, or use it in a ``with``.
    """
    settings = WatchSettings.of(rules)
    intervals = {stat: options.pop(stat, every) for stat, every in _DEFAULTS.items()}
    if record is not None:
        options["record"] = record
    statistics = log_statistics(model, optimizer, tracer=tracer, **intervals, **options)
    return TrainingMonitor(statistics, Watch(settings, warn=statistics.tracer.warn))


class TrainingMonitor:
    """What watches a training. Made by :func:`megalens.monitor`.

    Attributes
    ----------
    statistics : StatisticsLogger
        What measures.
    tracer : Tracer
        Whose steps these are.
    """

    def __init__(self, statistics: StatisticsLogger, watch: Watch) -> None:
        self.statistics, self.tracer = statistics, statistics.tracer
        self._watch = watch
        self._alarms: deque[Alarm] = deque(maxlen=_KEPT)
        self._first: Alarm | None = None
        self._instrument = MonitorInstrument(self._judge)
        self.tracer.attach(self._instrument)
        collector: Any = statistics._collector
        before = collector._keep if hasattr(collector, "_keep") else None
        collector._keep = lambda whole: (before and before(whole), self._instrument.take(_readings(whole)))

    @property
    def alarms(self) -> list[Alarm]:
        """The last thousand alarms, oldest first; on rank 0."""
        return list(self._alarms)

    @property
    def first_anomaly(self) -> Alarm | None:
        """The alarm that came first of all; None while the training is healthy."""
        return self._first

    def step(self) -> AbstractContextManager[None]:
        """Return a context manager around one optimizer step: the tracer's own."""
        return self.tracer.step()

    def close(self) -> None:
        """Take every hook off and, where the tracer is the monitor's own, end the run. Safe twice."""
        self.statistics.close()

    def __enter__(self) -> TrainingMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.statistics.__exit__(kind, error, trace)

    def _judge(self, step: StepReadings) -> Mapping[str, Sequence[Any]]:
        found = self._watch.judge(step)
        self._alarms += found
        if self._first is None:
            self._first = first_anomaly(found)
        return alarm_columns(found)


def _readings(whole: WholeStep) -> StepReadings:
    return StepReadings(
        whole.step,
        whole.samples,
        [
            Readings(
                each.stat,
                -1,
                each.tensors.names,
                each.rows,
                gradient_stage=each.gradient_stage,
                loss_scale=each.loss_scale,
            )
            for each in whole.stats
        ],
    )
