"""Where one process stands in a split training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["SplitPlace"]


@dataclass(frozen=True)
class SplitPlace:
    """What one process does, each counted from 0.

    Attributes
    ----------
    rank : int
        Global rank.
    role : str
        ``forward`` or ``backward``.
    stage, stages : int
        Pipeline stage, and how many there are.
    replica, replicas : int
        Whose samples it trains on.
    tensor, tensor_size : int
        Place among the processes of its role that share its stage.
    group : torch.distributed.ProcessGroup or None
        These processes, where they are several and processes are connected.
    """

    rank: int
    role: str
    stage: int
    stages: int
    replica: int
    replicas: int
    tensor: int
    tensor_size: int
    group: Any = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What people are told: ``rank 3 (forward, stage 1, tensor 0)``."""
        more = f", tensor {self.tensor}" if self.tensor_size > 1 else ""
        more += f", replica {self.replica}" if self.replicas > 1 else ""
        return f"rank {self.rank} ({self.role}, stage {self.stage}{more})"

    @property
    def first(self) -> bool:
        """Whether it takes the model's input."""
        return self.stage == 0

    @property
    def last(self) -> bool:
        """Whether it gives the model's output."""
        return self.stage == self.stages - 1
