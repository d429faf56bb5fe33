"""The links of one rank to those that hold neighbouring virtual stages, and what comes over them in a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import distributed

from .errors import PipelineError
from .inbox import Inbox, Key
from .link import Link
from .order_choice import OrderChoice
from .placement import Placement
from .plan_type import Plan

__all__ = ["connect", "expected_messages", "mirrored"]


def connect(
    layout: Placement,
    stage: int,
    ranks: Sequence[int],
    inbox: Inbox,
    device: torch.device,
    *,
    ahead: int,
    timeout: float,
) -> dict[int, Link]:
    """Return the links of a rank, by stage. Called by all ranks of a pipeline together.

    On NCCL, where receives and sends between two ranks would wait for each other on one stream, messages up and down have a group each, and headers go over gloo.

    Parameters
    ----------
    layout, stage : Placement, int
        What the pipeline is like, and this rank's stage.
    ranks : sequence of int
        Global ranks of the pipeline, by stage.
    inbox : Inbox
        Where messages are filed.
    device : torch.device
        Where they are received.
    ahead : int
        Receives posted ahead.
    timeout : float
        Seconds that connecting may take.
    """
    # Older versions of torch have no such argument.
    unsorted: dict[str, Any] = {} if sorted(ranks) == list(ranks) else {"sort_ranks": False}

    def group(backend: str) -> Any:
        try:
            return distributed.new_group(
                list(ranks),
                backend=backend,
                timeout=timedelta(seconds=timeout),
                use_local_synchronization=True,
                **unsorted,
            )
        except RuntimeError as error:
            raise PipelineError(
                f"The ranks {list(ranks)} of the pipeline did not all connect within {timeout:.3g} s: every one of them makes its DynamicSchedule ({str(error)[:200]}).",
                code="waited",
                stage=stage,
            ) from error

    if layout.stages == 1:
        return {}
    control = up = down = group("gloo")
    if device.type != "cpu":
        up, down = group("nccl"), group("nccl")
    links = {}
    for peer in sorted(_neighbours(layout, stage)):
        out, into = (up, down) if stage < peer else (down, up)
        links[peer] = Link(inbox, ranks[peer], peer, out, into, control, device, ahead)
    for peer, link in links.items():
        # NCCL connects two ranks in the first message between them, and both wait for it: better here, in one order for all pairs, than in the middle of a step.
        try:
            link.greet(stage < peer, timeout)
        except (RuntimeError, TimeoutError) as error:
            raise PipelineError(
                f"Rank {ranks[stage]} could not reach rank {ranks[peer]} (stage {peer}) within {timeout:.3g} s: {str(error)[:200]}",
                code="lost",
                stage=stage,
            ) from error
    return links


def _neighbours(layout: Placement, stage: int) -> set[int]:
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
