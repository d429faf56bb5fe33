"""A configuration of TrainerMon for ``megalens.monitor``: what is measured how often, and its two rules over the readings of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ....protocol import MOMENT_COLUMNS, StepReadings
from ..alarm import Alarm
from .config import MonitorConfig
from .rules import RecordedRules, rules_from, values_of

__all__ = ["TrainerMonRules", "monitor_options"]

_OPS = ("norm", "min", "max", "zeros", "nans", "mean")
_FEATURES = {
    "attention_hook": ("attention_entropy", "attention_max"),
    "linear_hook": ("stable_rank", "kernel_norm"),
    "moe_router_weight_hook": ("router_similarity",),
    "moe_router_logit_hook": ("router_entropy",),
}
# What a monitor does not follow, with what makes the rest of a sentence.
_WHOLE = ("targets", "module_ranks", "start_step", "collect_times", "dynamic_on")


def monitor_options(config: MonitorConfig, warn: Callable[[str], None]) -> dict[str, Any]:
    """Return the arguments of ``megalens.log_statistics`` that measure what a configuration asks for, at each ``step_interval`` steps.

    Parameters
    ----------
    config : MonitorConfig
        Checked.
    warn : callable
        Takes a sentence about fields that a monitor does not follow.
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
    others = [name for name in _WHOLE if getattr(config, name) != getattr(default, name)]
    if others:
        warn(
            f"A monitor measures the whole model on every rank from its first step on; {', '.join(others)} are for megalens.TrainerMon."
        )
    options: dict[str, Any] = dict.fromkeys(asked, config.step_interval)
    return {**options, **({"sites": "all"} if config.xy_distribution else {})}


class TrainerMonRules:
    """TrainerMon's rules as a rule of one's own: each has its memory of every number of every tensor, rank and micro-batch.

    Parameters
    ----------
    rules : list of dict
        ``alert.rules`` of a configuration, checked.
    """

    __name__ = "trainermon"

    def __init__(self, rules: Any) -> None:
        self._rules = RecordedRules(rules_from(rules))

    def __call__(self, step: StepReadings, before: Sequence[StepReadings]) -> list[Alarm]:
        """Judge a step."""
        found = []
        for part in step.readings:
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
