"""Compares what the stages were told of their inputs and outputs, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .board import Board
from .chunk import Chunk
from .errors import PipelineError
from .placement import Placement

__all__ = ["check_told_shapes"]


def check_told_shapes(board: Board, layout: Placement, chunks: Mapping[int, Chunk]) -> None:
    """Say on this rank's behalf what its stages were told, and compare with the stages before them.

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
        if layout.is_first(virtual) or told["inputs"] is None:
            continue
        before = board.wait_for(f"told/{virtual - 1}")["outputs"]
        if before is not None and before != told["inputs"]:
            stage = layout.stage_of(virtual)
            raise PipelineError(
                f"Virtual stage {virtual - 1} gives {_words(before)}, and virtual stage {virtual} (stage {stage}) was told to expect {_words(told['inputs'])}: "
                f"{virtual}F{layout.passing(virtual)[0]} could not run. Tell both the same input_args and output_args.",
                code="shape",
                operation=f"{virtual}F{layout.passing(virtual)[0]}",
                stage=stage,
                micro_batch=layout.passing(virtual)[0],
            )


def _told(chunk: Chunk) -> dict[str, Any]:
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
