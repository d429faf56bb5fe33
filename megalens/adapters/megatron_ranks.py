"""Where this process stands in a Megatron-Core job, as far as it decides what it counts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import torch

from ..tracer import TracerError

__all__ = ["MegatronRanks"]


@dataclass(frozen=True)
class MegatronRanks:
    """Ranks and sizes, all of one process where there is no job.

    Attributes
    ----------
    tp, tp_size : int
        Tensor parallel.
    expert_tp, expert_tp_size : int
        Tensor parallel, of experts.
    replica, expert_replica : int
        Data parallel with context parallel, which sees other positions with the same parameters; and of experts, where both are in one group.
    stage, stages : int
        Pipeline parallel.
    """

    tp: int = 0
    tp_size: int = 1
    expert_tp: int = 0
    expert_tp_size: int = 1
    replica: int = 0
    expert_replica: int = 0
    stage: int = 0
    stages: int = 1

    @classmethod
    def here(cls) -> MegatronRanks:
        """Return those of this process, of ``megatron.core.parallel_state``, which the training has imported.

        Raises
        ------
        TracerError
            When there are several processes, and Megatron-Core was not told how they are grouped.
        """
        state: Any = sys.modules.get("megatron.core.parallel_state")
        distributed = torch.distributed
        if state is None or not state.model_parallel_is_initialized():
            if (
                distributed.is_available()
                and distributed.is_initialized()
                and distributed.get_world_size() > 1
            ):
                raise TracerError(
                    f"Statistics of a Megatron-Core model in {distributed.get_world_size()} processes count each value once, for which they have to know the groups: "
                    "call megatron.core.parallel_state.initialize_model_parallel first."
                )
            return cls()
        return cls(
            tp=state.get_tensor_model_parallel_rank(),
            tp_size=state.get_tensor_model_parallel_world_size(),
            expert_tp=state.get_expert_tensor_parallel_rank(),
            expert_tp_size=state.get_expert_tensor_parallel_world_size(),
            replica=state.get_data_parallel_rank(with_context_parallel=True),
            expert_replica=state.get_expert_data_parallel_rank(),
            stage=state.get_pipeline_model_parallel_rank(),
            stages=state.get_pipeline_model_parallel_world_size(),
        )

    def of_stages(self, value: Any) -> list[Any]:
        """Return what each pipeline stage that this process stands in a row with gives; all of them have to call it."""
        if self.stages == 1:
            return [value]
        state: Any = sys.modules["megatron.core.parallel_state"]
        found: list[Any] = [None] * self.stages
        group = state.get_pipeline_model_parallel_group()
        torch.distributed.all_gather_object(found, value, group=group)
        return found
