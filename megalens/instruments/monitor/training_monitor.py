"""``megalens.monitor``: the one line that starts it, also with a configuration of TrainerMon."""

from __future__ import annotations

import math
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ...adapters.before_reduction import before_reduction
from ...api.statistics import log_statistics
from ...protocol import MEMORY, MOMENT_COLUMNS, StepReadings, is_whole
from ...tracer.errors import TracerError
from ...tracer.moments.logger import StatisticsLogger
from ...tracer.tracer import Tracer
from .actions import OptimizerNumbers, TrainingStopped, actions_from
from .instrument import MonitorInstrument
from .rule import Alarm, OwnRule, first_serious
from .settings import WatchSettings, read_rules
from .trainermon.config import MonitorConfig, read_config
from .trainermon.rules import RecordedRules, rules_from, values_of
from .watch import Watch

_DEFAULTS = {"param": 1, "grad": 1, "activation": 10, "optimizer_state": 1, "inputs": 1}
_STORED_ALARMS = 1000
_BOX_BYTES = 64 << 20

_OPS = ("norm", "min", "max", "zeros", "nans", "mean")
_FEATURES = {
    "attention_hook": ("attention_entropy", "attention_max"),
    "linear_hook": ("stable_rank", "kernel_norm"),
    "moe_router_weight_hook": ("router_similarity",),
    "moe_router_logit_hook": ("router_entropy",),
}
# What a monitor does not follow, with what makes the rest of a sentence.
_NOT_FOLLOWED = ("targets", "module_ranks", "start_step", "collect_times", "dynamic_on")


def monitor_options(config: MonitorConfig, warn: Callable[[str], None]) -> dict[str, Any]:
    """Return the arguments of ``megalens.log_statistics`` for a checked configuration.

    ``warn`` takes a sentence about fields that a monitor does not follow.
    """
    asked: list[str] = []
    if config.param_distribution:
        asked += ["param", "param_origin"]
    if config.wg_distribution:
        asked += ["grad", "grad_unreduced", *(["grad_accumulated"] if config.monitor_mbs_grad else [])]
    if config.mv_distribution:
        asked.append("optimizer_state")
    if config.xy_distribution:
        asked += [] if config.backward_only else ["activation"]
        asked += [] if config.forward_only else ["dgrad"]
    if config.mg_direction:
        asked.append("gradient_direction")
    if config.cc_distribution.get("enable"):
        asked.append("communication")
    if config.recording_l2_features:
        asked += [stat for hook in config.l2_targets for stat in _FEATURES[hook]]
    default = MonitorConfig()
    others = [name for name in _NOT_FOLLOWED if getattr(config, name) != getattr(default, name)]
    if others:
        warn(
            f"A monitor measures the whole model on every rank from its first step on; {', '.join(others)} "
            "are for megalens.TrainerMon."
        )
    options: dict[str, Any] = dict.fromkeys(asked, config.step_interval)
    return {**options, **({"sites": "all"} if config.xy_distribution else {})}


class TrainerMonRules:
    """TrainerMon's checked ``alert.rules`` as one own rule, with a memory for each number."""

    __name__ = "trainermon"

    def __init__(self, rules: Any) -> None:
        self._rules = RecordedRules(rules_from(rules))

    def __call__(self, step: StepReadings, before: Sequence[StepReadings]) -> list[Alarm]:
        found = []
        for part in step.readings:
            if part.stat == MEMORY:
                continue
            for name, row in zip(part.names, part.rows.tolist(), strict=True):
                values = values_of(dict(zip(MOMENT_COLUMNS, row, strict=True)), _OPS, scalar=False)
                tag = f"{name}:{part.micro_batch}/rank{part.rank}/{part.stat}"
                for op, value in values.items():
                    message = self._rules.judge(tag, op, value, step.step)
                    if message is not None:
                        found.append(
                            Alarm(
                                step=step.step,
                                rule=self.__name__,
                                severity="warning",
                                sentence=message,
                                stat=part.stat,
                                name=name,
                                statistic=op,
                                value=value,
                                expected=math.nan,
                                rank=part.rank,
                                stage=part.stage,
                                micro_batch=part.micro_batch,
                            )
                        )
        return found


def monitor(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Any,
    config: Mapping[str, Any] | str | Path | None = None,
    *,
    tracer: Tracer | None = None,
    rules: Any = None,
    actions: Any = None,
    black_box: int = 20,
    black_box_bytes: int = _BOX_BYTES,
    record: Any = None,
    **options: Any,
) -> TrainingMonitor:
    """Begin to monitor a training: rules judge each step's statistics, and raise alarms.

    Parameters
    ----------
    model, optimizer
        As for :func:`megalens.log_statistics`.
    config : mapping or path, optional
        A configuration of TrainerMon, or the JSON file that has it: what is measured and how often, and
        ``alert.rules``, which judge as a rule named ``trainermon`` beside ours. Files are written by
        :class:`megalens.TrainerMon` only.
    tracer : Tracer, optional
        Whose steps these are. Without one a tracer is made and closed with the monitor.
    rules : mapping, function or sequence of functions, optional
        Settings of the rules: ``{"rules": {"jump": {"threshold": 12}}, "muted": [{"rule": "dead", "name":
        "*bias"}]}``. Or rules of your own: functions that take a ``StepReadings`` and those of the steps
        before, and give :class:`~megalens.instruments.monitor.rule.Alarm` objects. Under ``"own"`` of the
        settings both go together. Rules that installed packages bring by entry points of the group
        ``megalens.rules`` judge too.
    actions : Action, mapping or sequence of them, optional
        What alarms may set off: ``{"checkpoint": save, "stop": True}``; see
        :class:`~megalens.instruments.monitor.actions.Action`.
    black_box : int
        How many of the last steps are kept as they were measured, and sent when an alarm is raised although
        the recording is sparse. 0: none.
    black_box_bytes : int
        In how much memory at most: of more, the oldest are given up.
    record : str or Path, optional
        Folder of the recording, as for :func:`megalens.trace`.
    **options
        For :func:`megalens.log_statistics`: every how many steps each statistic is measured, and how the run
        is called.

    Returns
    -------
    TrainingMonitor
        Use ``with monitor.step():`` (or the tracer's own) around each optimizer step, and close it at the
        end, or use it in a ``with``.

    Raises
    ------
    TracerError
        When an argument is wrong.
    ConfigError
        When the configuration is.
    ProtocolError
        When the settings of a rule are wrong, with the field at fault.
    """
    for name, value in (("black_box", black_box), ("black_box_bytes", black_box_bytes)):
        if not is_whole(value):
            raise TracerError(f"{name}=… must be a whole number from 0, got {value!r:.50}.")
    if tracer is not None and tracer.instrument(MonitorInstrument.name) is not None:
        raise TracerError(
            "This tracer has a monitor already. Close it first, or change its rules by its configure(…)."
        )
    asked: Mapping[str, Any] = {**_DEFAULTS, "grad_unreduced": 1}
    theirs = []
    if config is not None:
        given = read_config(config, _warn)
        asked = monitor_options(given, _warn)
        theirs = [TrainerMonRules(given.alert["rules"])] if given.alert["rules"] else []
    settings, own = read_rules(rules, theirs)
    done = actions_from(actions)
    chunks = [model] if isinstance(model, nn.Module) else list(model)
    replicas = any(
        isinstance(module, DistributedDataParallel) for chunk in chunks for module in chunk.modules()
    )
    if not replicas and before_reduction(chunks) is None:
        # Nothing is reduced.
        asked = {stat: every for stat, every in asked.items() if stat != "grad_unreduced"}
    intervals = {stat: options.pop(stat, every) for stat, every in asked.items()}
    if record is not None:
        options["record"] = record
    if any(action.pause for action in done):
        if tracer is None:
            options["allow"] = [*options.get("allow", ()), "pause"]
        elif "pause" not in tracer.controls:
            raise TracerError(
                "actions.pause needs a tracer that allows it: megalens.trace(…, allow=['pause'])."
            )
    instrument = MonitorInstrument(done, black_box, black_box_bytes)
    statistics = log_statistics(
        model,
        optimizer,
        tracer=tracer,
        judge=instrument.take,
        # Actions come before the next step; without actions and viewers, up to a second is judged together.
        at_once=bool(done),
        # Of what is only to be watched, nothing may end a training.
        lenient=True,
        **intervals,
        **options,
    )
    return TrainingMonitor(statistics, StoringWatch(settings, own, statistics.tracer.warn), instrument)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, stacklevel=3)


class TrainingMonitor:
    """What watches a training. Made by :func:`megalens.monitor`.

    Attributes
    ----------
    statistics : StatisticsLogger
        What measures.
    tracer : Tracer
        Whose steps these are.
    """

    def __init__(
        self, statistics: StatisticsLogger, watch: StoringWatch, instrument: MonitorInstrument
    ) -> None:
        self.statistics, self.tracer = statistics, statistics.tracer
        self._watch = watch
        self._instrument = instrument
        self._numbers = OptimizerNumbers(statistics.optimizers, statistics.params)
        instrument.begin(statistics, self._watch, self._numbers)
        self.tracer.attach(instrument)

    @property
    def alarms(self) -> list[Alarm]:
        """The last thousand alarms, oldest first; on rank 0."""
        return list(self._watch.alarms)

    @property
    def first_anomaly(self) -> Alarm | None:
        """The alarm that came first of all; None while the training is healthy."""
        return self._watch.first

    @property
    def stopped(self) -> str:
        """Why the training is to end, on all ranks from the same step on; empty while it continues."""
        return self._instrument.stopped

    @contextmanager
    def step(self) -> Iterator[None]:
        """Return a context manager around one optimizer step: the tracer's own.

        Raises
        ------
        TrainingStopped
            At the end of a step, on all ranks the same, when an alarm has set off the action ``stop``. Only
            here does a monitor raise into a training; with ``tracer.step()`` ask :attr:`stopped` instead.
        """
        with self.tracer.step():
            yield
        if self.stopped:
            raise TrainingStopped(self.stopped)

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Change rules, thresholds and mutes from the next step on; the rest stays, None is a default.

        Raises
        ------
        ProtocolError
            With the field at fault; then nothing has changed.
        """
        self.tracer.configure({"flags": {}, "instruments": {"monitor": settings}})

    def close(self) -> None:
        """Remove every hook and, where the tracer is the monitor's own, end the run. Safe twice."""
        self.statistics.close()
        self._leave()

    def __enter__(self) -> TrainingMonitor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.statistics.__exit__(kind, error, trace)
        self._leave()

    def _leave(self) -> None:
        self._numbers.close()
        # Its own tracer has ended, and still reports what there was.
        if not self.statistics.owns_tracer:
            self.tracer.detach(self._instrument)


class StoringWatch(Watch):
    """A watch that stores the last alarms for the script."""

    def __init__(self, settings: WatchSettings, own: dict[str, OwnRule], warn: Callable[[str], None]) -> None:
        super().__init__(settings, own, warn)
        self.alarms: deque[Alarm] = deque(maxlen=_STORED_ALARMS)
        self.first: Alarm | None = None

    def judge(self, step: StepReadings) -> list[Alarm]:
        found = super().judge(step)
        self.alarms += found
        if self.first is None:
            self.first = first_serious(found)
        return found
