"""The rules. Add one by its class here, or from another package by an entry point."""

from __future__ import annotations

from ..rule import Rule
from .casts import Saturation, Underflow
from .lost import Dead, NotFinite, Overflow
from .memory import Leak, MemoryLimit
from .model import AttentionCollapse, Initial, Repeated, RouterImbalance
from .optimizer import Clipping, OptimizerState, UpdateRatio
from .ranks import Missing, OddRank, Reduction, Replicas
from .scalars import LossSpike
from .values import Collapse, Drift, Jump

__all__ = ["RULES"]

RULES: dict[str, type[Rule]] = {
    rule.name: rule
    for rule in (
        *(NotFinite, Overflow, Jump, Collapse, Drift, LossSpike, Dead, Initial),
        *(OptimizerState, UpdateRatio, Clipping, Replicas, Reduction, OddRank, Missing),
        *(AttentionCollapse, RouterImbalance, Repeated, Leak, MemoryLimit, Saturation, Underflow),
    )
}
"""By name, in the order in which they judge and are shown."""
