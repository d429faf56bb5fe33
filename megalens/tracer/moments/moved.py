"""What the first forward pass shows of where statistics are measured: what its step has wrong, and lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from .intervals import SEEN
from .part import MeasuredRows, NameList
from .points import MomentPoints

_RESIDUALS = ("residual", "residual_dgrad")
_FEATURES = (*SEEN, "router_similarity")
OF_POINTS = (*_RESIDUALS, *_FEATURES)
"""What is measured where the trace points of the model say, which its first forward pass may correct."""
_OF_FEATURES = ("QKV_mat_mul", "RawAttentionScore_mat_mul", "AttentionOutput_mat_mul", "RouterProbabilities")


@dataclass(frozen=True)
class Moved:
    """By statistic, names of what a step measured elsewhere than it is; None for all of it."""

    wrong: Mapping[str, Collection[str] | None] = field(default_factory=dict)

    def leave_out(self, parts: dict[str, MeasuredRows], names: NameList) -> None:
        """Take out of what a step has measured whatever is wrong."""
        for stat, wrong in self.wrong.items():
            if wrong is None:
                parts.pop(stat, None)
            elif wrong and stat in parts:
                parts[stat].leave_out({names.index(name) for name in wrong})


def moved(
    before: MomentPoints, now: MomentPoints, places: Collection[tuple[str, int]], due: Collection[str]
) -> tuple[Moved, str]:
    """Return what has moved, and which of the statistics ``due`` begin later for it, in words or empty.

    ``places`` are flags and layers that the pass showed elsewhere than was supposed.
    """
    wrong = {each.name for each in before.residuals if each not in now.residuals}
    late = [each.name for each in now.residuals if each not in before.residuals]
    of: dict[str, Collection[str] | None] = dict.fromkeys(_RESIDUALS, wrong)
    stats = [stat for stat in _RESIDUALS if late]
    if any(name in _OF_FEATURES for name, _ in places):
        of |= dict.fromkeys(_FEATURES)
        there = {each.stat for each in now.features}
        stats += [stat for stat in _FEATURES if stat in there]
    more = f" and {len(late) - 3} more" if len(late) > 3 else ""
    where = f" ({', '.join(late[:3])}{more})" if late else ""
    named = ", ".join(stat + where * (stat in _RESIDUALS) for stat in stats if stat in due)
    return Moved(of), named
