"""What a pipeline runs: a plan, or a rule by which each rank chooses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .errors import PipelineError
from .placement import Placement
from .plan_check import check_plan
from .plan_type import Plan

__all__ = ["NAMES", "OrderChoice", "GreedyRule", "choice_from_json", "choice_of", "fits", "name_of"]

NAMES = (
    *("gpipe", "1f1b", "interleaved_1f1b", "depth_first", "breadth_first", "megadpp"),
    *("zb_h1", "zb_h2", "zb_v", "dualpipe", "dualpipev"),
)
"""Schedules that the planner makes, as in ``protocol/pipeline.schema.json``; ``search`` is not among them, since it needs times."""

_PREFER = ("breadth", "depth")


@dataclass(frozen=True)
class GreedyRule:
    """Greedy: backward passes first, then forward passes, of those whose inputs have arrived.

    Attributes
    ----------
    prefer : str
        ``breadth`` or ``depth``, of several that are ready.
    in_flight : int or None
        Micro-batches that may be under way in the pipeline; None: all.
    """

    prefer: str = "breadth"
    in_flight: int | None = None

    def __post_init__(self) -> None:
        if self.prefer not in _PREFER:
            raise PipelineError(f"prefer must be breadth or depth, got {self.prefer!r:.80}.")
        most = self.in_flight
        if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
            raise PipelineError(
                f"in_flight must be a number of micro-batches from 1, or None, got {most!r:.80}."
            )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"rule": "greedy", "prefer": self.prefer, "in_flight": self.in_flight}


OrderChoice = Plan | GreedyRule


def choice_of(given: Any, layout: Placement, rule: GreedyRule) -> OrderChoice | str:
    """Return what somebody asks for, checked; a name that only the planner can make a plan of as it is.

    Parameters
    ----------
    given : Any
        ``"greedy"``, the name of a schedule, a plan, the path of one, or what either gives as JSON.
    layout : Placement
        What the pipeline is like.
    rule : GreedyRule
        What ``"greedy"`` stands for here.

    Raises
    ------
    PipelineError
        For a plan that is not right or not for this pipeline.
    """
    if isinstance(given, GreedyRule):
        return given
    if isinstance(given, str):
        if given == "greedy":
            return rule
        if given in NAMES:
            return given
        if not given.endswith(".json"):
            raise PipelineError(
                f"order must be one of {', '.join((*NAMES, 'greedy', 'adaptive'))}, a plan, or the path of a .json file with one, got {given!r:.120}."
            )
    if isinstance(given, Mapping) and given.get("rule") == "greedy":
        return GreedyRule(given.get("prefer", rule.prefer), given.get("in_flight", rule.in_flight))
    plan = Plan.of(given)
    fits(plan, layout)
    check_plan(plan)
    return plan


def fits(plan: Plan, layout: Placement) -> None:
    """Raise ``PipelineError`` where a plan is for another pipeline."""
    if plan.layout == layout:
        return
    said = [
        f"{getattr(plan.layout, name)} instead of {getattr(layout, name)} as {words}"
        for name, words in (
            ("kind", "placement"),
            ("stages", "stages"),
            ("chunks", "chunks of a stage"),
            ("micro_batches", "micro-batches"),
        )
        if getattr(plan.layout, name) != getattr(layout, name)
    ]
    raise PipelineError(
        f"The plan {plan.schedule!r} is for another pipeline: it has {', '.join(said)}. Make one for this layout, or the schedule with placement= and n_microbatches= of the plan.",
        code="shape",
    )


def choice_from_json(given: Mapping[str, Any]) -> OrderChoice:
    """Return what another rank posted, which checked it."""
    if given.get("rule") == "greedy":
        return GreedyRule(given["prefer"], given["in_flight"])
    return Plan.of(given)


def name_of(choice: OrderChoice) -> str:
    """Return an order in a word or two."""
    return choice.schedule if isinstance(choice, Plan) else f"greedy ({choice.prefer} first)"
