"""The stages that a stage exchanges messages with, and the messages of a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from .board import Board
from .chunk import StageChunk
from .errors import PipelineError
from .executor import Executor
from .orders import OrderChoice
from .plan_type import Placement, Plan
from .stages.inbox import Key


class CopySum:
    """Sums the gradients of both copies of a part of the model: half of the micro-batches passed the other
    copy.

    Gradients from before the step, which are sums already, are set aside meanwhile. ``pairs`` are virtual
    stages here and their other copies, in the order of exchange at both ends; empty where there is one copy.
    """

    def __init__(
        self,
        layout: Placement,
        stage: int,
        chunks: Mapping[int, StageChunk],
        executor: Executor,
        pairs: Sequence[tuple[int, int]],
    ) -> None:
        self._layout, self._stage, self._chunks, self._executor, self._pairs = (
            layout,
            stage,
            chunks,
            executor,
            pairs,
        )
        self._before: list[tuple[nn.Parameter, Tensor]] = []

    def begin(self, training: bool) -> None:
        """Set aside existing gradients."""
        self._before.clear()
        if not training:
            return
        for own, _ in self._pairs:
            for parameter in self._parameters(own):
                if parameter.grad is not None:
                    self._before.append((parameter, parameter.grad))
                    parameter.grad = None

    def end(self, training: bool) -> None:
        """Sum the step's gradients."""
        if not training or not self._pairs:
            return
        with torch.no_grad():
            self._add()
            for parameter, before in self._before:
                if parameter.grad is None:
                    parameter.grad = before
                else:
                    parameter.grad += before
        self._before.clear()

    def _add(self) -> None:
        own, other = self._pairs[0]
        if self._layout.stage_of(other) == self._stage:
            mine, theirs = _flat(self._parameters(own)), _flat(self._parameters(other))
            for each, others in zip(mine, theirs, strict=True):
                each += others
            self._put(own, mine)
            self._put(other, mine)
            return
        for own, other in self._pairs:
            mine = _flat(self._parameters(own))
            there = self._executor.exchange(self._layout.stage_of(other), own, other, mine)
            # In one order on both ends, so that both copies stay the same bit for bit.
            first, second = (mine, there) if own < other else (there, mine)
            self._put(own, [a + b for a, b in zip(first, second, strict=True)])

    def _parameters(self, virtual: int) -> list[nn.Parameter]:
        return [each for each in self._chunks[virtual].module.parameters() if each.requires_grad]

    def _put(self, virtual: int, flat: Sequence[Tensor]) -> None:
        parameters = self._parameters(virtual)
        for dtype, values in zip(_dtypes(parameters), flat, strict=True):
            at = 0
            for each in parameters:
                if each.dtype == dtype:
                    if each.grad is None:
                        each.grad = torch.zeros_like(each)
                    target = _local(each.grad)
                    target.copy_(values[at : at + target.numel()].view(target.shape))
                    at += target.numel()


def _dtypes(parameters: Sequence[nn.Parameter]) -> list[torch.dtype]:
    return sorted({each.dtype for each in parameters}, key=str)


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _flat(parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Return the gradients of one type in one tensor; zeros where there is none."""
    return [
        torch.cat(
            [
                (
                    _local(each.detach()).new_zeros(_local(each.detach()).numel())
                    if each.grad is None
                    else _local(each.grad).reshape(-1)
                )
                for each in parameters
                if each.dtype == dtype
            ]
        )
        for dtype in _dtypes(parameters)
    ]


def check_given_shapes(board: Board, layout: Placement, chunks: Mapping[int, StageChunk]) -> None:
    """Post the shapes given to this rank's stages, and compare them with the neighbouring stages'.

    Only a ``PipelineStage`` with ``input_args`` and ``output_args`` has any; others are known from the first
    message on. Raises ``PipelineError`` (``shape``) where the output of one differs from the input of the
    next.
    """
    given = {virtual: _given_shapes(each) for virtual, each in chunks.items()}
    for virtual, shapes in given.items():
        board.publish(f"told/{virtual}", shapes)
    for virtual, shapes in given.items():
        # Both ends look, so that neither waits for the other, which gave up.
        if not layout.is_first(virtual) and shapes["inputs"] is not None:
            _compare(layout, virtual, board.wait_for(f"told/{virtual - 1}")["outputs"], shapes["inputs"])
        if not layout.is_last(virtual) and shapes["outputs"] is not None:
            _compare(layout, virtual + 1, shapes["outputs"], board.wait_for(f"told/{virtual + 1}")["inputs"])


def _compare(layout: Placement, virtual: int, gives: Any, takes: Any) -> None:
    if gives is None or takes is None or gives == takes:
        return
    stage, number = layout.stage_of(virtual), layout.passing(virtual)[0]
    raise PipelineError(
        f"Virtual stage {virtual - 1} gives {_words(gives)}, and virtual stage {virtual} (stage {stage}) was "
        f"told to expect {_words(takes)}: "
        f"{virtual}F{number} could not run. Tell both the same in output_args and input_args.",
        code="shape",
        operation=f"{virtual}F{number}",
        stage=stage,
        micro_batch=number,
    )


def _given_shapes(chunk: StageChunk) -> dict[str, Any]:
    meta = getattr(chunk.stage, "_user_meta", None)

    def shapes(given: Any) -> list[list[Any]] | None:
        if given is None:
            return None
        return [[str(each.dtype).removeprefix("torch."), list(each.shape)] for each in given]

    return {
        "inputs": shapes(getattr(meta, "inputs", None)),
        "outputs": shapes(getattr(meta, "outputs", None)),
    }


def _words(shapes: list[list[Any]]) -> str:
    return ", ".join(f"{dtype}{shape}" for dtype, shape in shapes)


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
    """Return a stage's virtual stages with the other copies of their parts, by part."""
    if layout.kind != "two_way":
        return []
    pairs = [
        (v, v + layout.stages if v < layout.stages else v - layout.stages) for v in layout.held_by(stage)
    ]
    return sorted(pairs, key=lambda pair: min(pair))


def expected_messages(
    layout: Placement, stage: int, order: OrderChoice, training: bool, peers: Sequence[int]
) -> Mapping[int, list[Key | None]]:
    """Return the messages to a stage in a step by sender, in order; None where only a header will tell."""
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
