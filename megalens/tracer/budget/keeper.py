"""The budget of one process: which steps are left out to compare with, and on rank 0 what is to be given up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.messages_generated import Budget
from .budget import CostBudget
from .ladder import ICostReduction, Ladder

__all__ = ["BudgetKeeper"]

_SEED = 20_261_121
"""The same on all ranks, so that they leave out the same steps without a word."""
_AGAIN_STEPS = 100
"""After so many steps what was asked for in vain is asked for again: a rank may have been stopped."""


class BudgetKeeper:
    """Follows the budget of the plan. Every rank has one; only rank 0's is told of steps and asks for changes.

    Parameters
    ----------
    ladder : Ladder
        What can be given up.
    ask : callable
        Takes what is to be given up from now on.
    """

    def __init__(self, ladder: Ladder, ask: Callable[[Any], None]) -> None:
        self._ladder = ladder
        self._ask = ask
        self._budget: CostBudget | None = None
        self._asked: ICostReduction | None = None
        self._ask_again = 0
        # Between the training thread, which changes what is measured, and the one that measures.
        self._lock = threading.Lock()

    def follow(
        self, limit: float | None, settings: Mapping[str, Mapping[str, Any]], given_up: ICostReduction
    ) -> None:
        """Take what is in force from the step that begins now: the budget, what was asked for, and what is given up of it."""
        with self._lock:
            if limit is None:
                self._budget = None
                return
            if self._budget is None or self._budget.limit != limit:
                self._budget = CostBudget(limit, self._ladder, _SEED)
            self._budget.follow(settings)
            if given_up != self._budget.cost_reduction:
                self._budget.applied(given_up)
            self._asked = None

    def control(self, step: int) -> bool:
        """Return whether nothing is traced in this step."""
        budget = self._budget
        return budget is not None and budget.control(step)

    def observe(self, step: int, traced: bool, wall_ns: int, spent_ns: int = 0) -> None:
        """Count one step, and ask for what follows from it."""
        with self._lock:
            budget = self._budget
            if budget is None:
                return
            budget.observe(step, traced, wall_ns, spent_ns)
            wanted = budget.plan()
            if wanted == budget.cost_reduction or (wanted == self._asked and step < self._ask_again):
                return
            self._asked, self._ask_again = wanted, step + _AGAIN_STEPS
        self._ask(wanted)

    def status(self) -> Budget | None:
        """Return the ``Budget`` object of ``status``; None without a budget."""
        with self._lock:
            return None if self._budget is None else self._budget.status()
