"""The rules. One is added by writing its class in a file of its kind and naming it here, or from another package by an entry point."""

from __future__ import annotations

from ..rule import Rule
from .changes import Collapse, Jump
from .values import Dead, NonFinite, Overflow

__all__ = ["RULES"]

RULES: dict[str, type[Rule]] = {rule.name: rule for rule in (NonFinite, Overflow, Jump, Collapse, Dead)}
"""By name, in the order in which they judge and are shown."""
