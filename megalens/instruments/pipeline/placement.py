"""Which stage holds which part of the model."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import PipelineError

__all__ = ["PLACEMENTS", "Placement"]

PLACEMENTS = ("loop", "v", "two_way")


@dataclass(frozen=True)
class Placement:
    """Virtual stages on the stages of a pipeline, as ``protocol/pipeline.schema.json`` says it.

    Attributes
    ----------
    kind : str
        ``loop``, ``v`` or ``two_way``.
    stages, chunks, micro_batches : int
        Stages P, chunks V of a stage, micro-batches M of a step.
    """

    kind: str
    stages: int
    chunks: int
    micro_batches: int

    def __post_init__(self) -> None:
        if self.kind not in PLACEMENTS:
            raise PipelineError(
                f"placement must be one of {', '.join(PLACEMENTS)}, got {self.kind!r:.80}.", code="shape"
            )
        for name, most in (("stages", 1024), ("chunks", 64), ("micro_batches", 65536)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
                raise PipelineError(f"{name} must be 1 to {most}, got {value!r:.80}.", code="shape")
        if self.kind == "two_way" and self.chunks != 2:
            raise PipelineError(
                f"Placement two_way has 2 chunks on each stage, got {self.chunks}.", code="shape"
            )
        if self.kind == "two_way" and self.micro_batches % 2:
            raise PipelineError(
                f"Placement two_way needs an even number of micro-batches, got {self.micro_batches}: half of them run each way.",
                code="shape",
            )

    @property
    def virtual_stages(self) -> int:
        """How many virtual stages there are."""
        return self.stages * self.chunks

    def stage_of(self, virtual: int) -> int:
        """Return the stage that holds a virtual stage."""
        turn, at = divmod(virtual, self.stages)
        back = self.kind != "loop" and turn % 2 == 1
        return self.stages - 1 - at if back else at

    def held_by(self, stage: int) -> tuple[int, ...]:
        """Return the virtual stages that a stage holds, by chunk."""
        return tuple(v for v in range(self.virtual_stages) if self.stage_of(v) == stage)

    def is_first(self, virtual: int) -> bool:
        """Whether a virtual stage takes the model's own input."""
        return virtual == 0 or (self.kind == "two_way" and virtual == self.stages)

    def is_last(self, virtual: int) -> bool:
        """Whether a virtual stage gives the model's own output."""
        return virtual == self.virtual_stages - 1 or (self.kind == "two_way" and virtual == self.stages - 1)

    def passing(self, virtual: int) -> range:
        """Return the micro-batches that pass a virtual stage."""
        if self.kind != "two_way":
            return range(self.micro_batches)
        half = self.micro_batches // 2
        return range(half) if virtual < self.stages else range(half, self.micro_batches)
