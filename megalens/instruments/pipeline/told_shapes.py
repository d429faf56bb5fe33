"""Compares what the stages were told of their inputs and outputs, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .board import Board
from .chunk import StageChunk
from .errors import PipelineError
from .placement import Placement

__all__ = ["check_told_shapes"]


def check_told_shapes(board: Board, layout: Placement, chunks: Mapping[int, StageChunk]) -> None:
    """Say on this rank's behalf what its stages were told, and compare with the stages beside them.

    Only a ``PipelineStage`` with ``input_args`` and ``output_args`` was told anything; what the others give and take is known from the first message on.

    Raises
    ------
    PipelineError
        ``shape``, where the output of one differs from the input of the next.
    """
    said = {virtual: _told(each) for virtual, each in chunks.items()}
    for virtual, told in said.items():
        board.say(f"told/{virtual}", told)
    for virtual, told in said.items():
        # Both ends look, so that neither waits for the other, which gave up.
        if not layout.is_first(virtual) and told["inputs"] is not None:
            _compare(layout, virtual, board.wait_for(f"told/{virtual - 1}")["outputs"], told["inputs"])
        if not layout.is_last(virtual) and told["outputs"] is not None:
            _compare(layout, virtual + 1, told["outputs"], board.wait_for(f"told/{virtual + 1}")["inputs"])


def _compare(layout: Placement, virtual: int, gives: Any, takes: Any) -> None:
    if gives is None or takes is None or gives == takes:
        return
    stage, number = layout.stage_of(virtual), layout.passing(virtual)[0]
    raise PipelineError(
        f"Virtual stage {virtual - 1} gives {_words(gives)}, and virtual stage {virtual} (stage {stage}) was told to expect {_words(takes)}: "
        f"{virtual}F{number} could not run. Tell both the same in output_args and input_args.",
        code="shape",
        operation=f"{virtual}F{number}",
        stage=stage,
        micro_batch=number,
    )


def _told(chunk: StageChunk) -> dict[str, Any]:
    meta = getattr(chunk.stage, "_user_meta", None)

    def shapes(given: Any) -> list[list[Any]] | None:
        if given is None:
            return None
        return [[str(each.dtype).removeprefix("torch."), list(each.shape)] for each in given]

    return {
        "inputs": shapes(getattr(meta, "inputs", None)),
        "outputs": shapes(getattr(meta, "outputs", None)),
    }


def _words(told: list[list[Any]]) -> str:
    return ", ".join(f"{dtype}{shape}" for dtype, shape in told)
