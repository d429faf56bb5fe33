"""TrainerMon's operations over a tensor, from its moments, and its two rules, with a smoothed memory each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_DECAY = 0.99
"""Share of the remembered size that remains after a new value."""


def values_of(row: Mapping[str, float], ops: Sequence[str], *, scalar: bool) -> dict[str, float]:
    """Return the operations ``ops`` of one tensor from its moments, by the columns of the stream.

    They are over all values, with those that are not finite. Only a ``scalar`` tensor has an ``id``.
    """
    count, nan, inf, negative = (
        row[name] for name in ("count", "nan_count", "inf_count", "negative_inf_count")
    )
    size = count + nan + inf
    mean, low, high = row["mean"], row["min"], row["max"]
    norm = math.sqrt(row["m2"] + count * mean * mean) if count else 0.0
    if inf:
        norm = math.inf
        mean = math.inf if not negative else -math.inf if negative == inf else math.nan
        low = -math.inf if negative else low if count else math.inf
        high = math.inf if negative < inf else high if count else -math.inf
    if nan or not size:
        norm, mean, low, high = (math.nan if nan else norm), math.nan, math.nan, math.nan
    found = {
        "norm": norm,
        "min": low,
        "max": high,
        "mean": mean,
        "zeros": row["near_zero_count"] / size if size else math.nan,
        "nans": int(nan),
        "id": mean if scalar else math.nan,
    }
    return {op: found[op] for op in ops}


_TOGETHER: Mapping[str, Callable[[Sequence[float]], np.generic]] = {
    "norm": np.sum,
    "min": np.min,
    "max": np.max,
    "zeros": np.mean,
    "nans": np.sum,
    "mean": np.mean,
}


def together(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return a collective's operations in one step: sums of ``norm`` and ``nans``, means of the others."""
    return {
        op: _TOGETHER[op]([each[op] for each in several]).item() if op in _TOGETHER else math.nan
        for op in several[0]
    }


@dataclass(frozen=True)
class AnomalyTurbulence:
    """A norm or a mean rose above (1 + threshold) times the remembered size."""

    threshold: float

    def finds(self, op: str, value: float, level: float) -> bool:
        return op in ("norm", "mean") and abs(value) > level * (1 + self.threshold)


@dataclass(frozen=True)
class AnomalyNan:
    """A value is NaN, or its size above the threshold if any. An infinite value alone is not reported."""

    threshold: float | None = None

    def finds(self, op: str, value: float, level: float) -> bool:
        return math.isnan(value) or (self.threshold is not None and abs(value) > self.threshold)


_Rule = AnomalyTurbulence | AnomalyNan


def rules_from(given: Any, warn: Callable[[str], None] = lambda text: None) -> list[_Rule]:
    """Return the rules of a configuration's ``alert.rules``: ``[{"rule_name": …, "args": {"threshold":
    …}}]``.

    Raises ``TypeError`` for no list, an unknown rule, or a threshold that is no number of 0 or more.
    """
    if not isinstance(given, list):
        raise TypeError(f"alert.rules must be a list, got {given!r:.100}")
    rules: list[_Rule] = []
    for each in given:
        name = each.get("rule_name") if isinstance(each, Mapping) else None
        if name not in ("AnomalyTurbulence", "AnomalyNan"):
            raise TypeError(f"rule_name must be AnomalyTurbulence or AnomalyNan, got {name!r:.100}")
        args = each.get("args") or {}
        if not isinstance(args, Mapping):
            raise TypeError(f"{name}: args must be an object, got {args!r:.100}")
        threshold = args.get("threshold")
        if args and (
            isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not threshold >= 0
        ):
            raise TypeError(f"{name}: threshold must be a number of 0 or more, got {threshold!r:.100}")
        if name == "AnomalyNan":
            rules.append(AnomalyNan(threshold))
        elif threshold is None:
            warn("AnomalyTurbulence needs args.threshold and was left out.")
        else:
            rules.append(AnomalyTurbulence(threshold))
    return rules


class RecordedRules:
    """Judges number after number; the first rule that reports one wins. A first value is its own level."""

    def __init__(self, rules: Sequence[_Rule]) -> None:
        self._rules = tuple(rules)
        self._levels: dict[tuple[str, str], float] = {}

    def judge(self, tag: str, op: str, value: float, step: int) -> str | None:
        """Return the message about a value that a rule reports.

        One NaN makes the remembered size NaN for good, as in the files of TrainerMon.
        """
        level = self._levels.get((tag, op))
        size = abs(value)
        self._levels[tag, op] = size if level is None else _DECAY * level + (1 - _DECAY) * size
        level = size if level is None else level
        found = next((rule for rule in self._rules if rule.finds(op, value, level)), None)
        if found is None:
            return None
        return (
            f"Rule {type(found).__name__} reports anomaly signal in ('{tag}', '{op}') at step {step}, "
            f"current value {value}, history mean {level}."
        )
