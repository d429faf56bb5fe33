"""Which stages a stage exchanges messages with, and what comes from them in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .order_choice import OrderChoice
from .placement import Placement
from .plan_type import Plan
from .stages.inbox import Key

__all__ = ["expected_messages", "mirrored", "neighbours"]


def neighbours(layout: Placement, stage: int) -> set[int]:
    """Return the stages that a stage exchanges messages with."""
    found = set()
    for virtual in layout.held_by(stage):
        if not layout.is_first(virtual):
            found.add(layout.stage_of(virtual - 1))
        if not layout.is_last(virtual):
            found.add(layout.stage_of(virtual + 1))
    if layout.kind == "two_way":
        found.add(layout.stages - 1 - stage)
    return found - {stage}


def mirrored(layout: Placement, stage: int) -> list[tuple[int, int]]:
    """Return, of two copies of the model, each virtual stage of a stage with the virtual stage that is the same part, by part."""
    if layout.kind != "two_way":
        return []
    pairs = [
        (v, v + layout.stages if v < layout.stages else v - layout.stages) for v in layout.held_by(stage)
    ]
    return sorted(pairs, key=lambda pair: min(pair))


def expected_messages(
    layout: Placement, stage: int, order: OrderChoice, training: bool, peers: Sequence[int]
) -> Mapping[int, list[Key | None]]:
    """Return what comes to a stage in a step, by the stage that sends it, in the order in which it does; None for each message of which only its header will say what it is."""
    found: dict[int, list[Key | None]] = {}
    for peer in peers:
        keys: list[Key | None] = []
        if isinstance(order, Plan):
            for kind, virtual, number in order.operations(peer):
                if kind == "F" and not layout.is_last(virtual) and layout.stage_of(virtual + 1) == stage:
                    keys.append(("F", virtual + 1, number))
                elif (
                    training
                    and kind in "BI"
                    and not layout.is_first(virtual)
                    and layout.stage_of(virtual - 1) == stage
                ):
                    keys.append(("B", virtual - 1, number))
        else:
            for virtual in layout.held_by(peer):
                passes = len(layout.passing(virtual))
                if not layout.is_last(virtual) and layout.stage_of(virtual + 1) == stage:
                    keys += [None] * passes
                if training and not layout.is_first(virtual) and layout.stage_of(virtual - 1) == stage:
                    keys += [None] * passes
        if training:
            for own, other in mirrored(layout, stage):
                if layout.stage_of(other) == peer:
                    keys.append(("S", own, 0) if isinstance(order, Plan) else None)
        found[peer] = keys
    return found
