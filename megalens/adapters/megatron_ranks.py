"""Ranks of this process in a Megatron-Core job, as far as they decide what it counts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..tracer import TracerError
from .sizes import INNER_NAMES, bare, unwrapped

_GROUPED = re.compile(r"(weight|bias)([0-9]{1,9})")
# Megatron-Core's older grouped experts hold those of a process in one tensor each: of the first and of the
# second layer.
_ALL_EXPERTS = {"weight1": "linear_fc1.weight", "weight2": "linear_fc2.weight"}


def model_chunks(model: Any) -> list[nn.Module]:
    """Return the model chunks of a stage, which may be one, without their wrappers."""
    found = model if isinstance(model, (list, tuple)) else [model]
    return [unwrapped(chunk) for chunk in found if isinstance(chunk, nn.Module)]


def is_megatron(model: nn.Module) -> bool:
    """Decide by names, so that this needs no import and a subclass of one's own is found too."""
    return any(kind.__module__.startswith("megatron.core.") for kind in type(model).__mro__)


def parallel_state() -> Any | None:
    """Return ``megatron.core.parallel_state``, if that is imported and knows the groups of this process."""
    state: Any = sys.modules.get("megatron.core.parallel_state")
    return None if state is None or not state.model_parallel_is_initialized() else state


@dataclass(frozen=True)
class MegatronModule:
    """A module and its canonical name, without wrappers; empty for the model itself.

    Layers and experts are counted from 0 over all stages and processes. ``experts`` are the global indices of
    this process's, below a mixture of experts.
    """

    name: str
    module: nn.Module
    experts: Sequence[int] | None

    @property
    def is_expert(self) -> bool:
        """Whether it is an expert or a part of one; shared experts are laid out like other layers."""
        return "experts" in self.name.split(".")

    def parameter_name(self, name: str) -> str:
        """Return the canonical name of the module's own parameter ``name``."""
        if self.is_expert and self.experts is not None:
            grouped = _GROUPED.fullmatch(name)
            if self.name.split(".")[-1] == "experts":
                name = _ALL_EXPERTS.get(name, name)
            elif grouped:
                name = f"{grouped[1]}{self.experts[int(grouped[2])]}"
        return f"{self.name}.{name}" if self.name else name


def megatron_modules(chunk: nn.Module) -> Iterator[MegatronModule]:
    """Give every module of a model chunk once, in order.

    Layers are numbered by their ``layer_number``, which counts from 1 over all stages; those of multi-token
    prediction keep the index they have.
    """
    yield from _below(MegatronModule("", chunk, None), set())


def _below(at: MegatronModule, seen: set[int]) -> Iterator[MegatronModule]:
    if id(at.module) in seen:
        return
    seen.add(id(at.module))
    yield at
    experts = getattr(at.module, "local_expert_indices", at.experts)
    for own, child in at.module.named_children():
        word = _word(at.name, own, child, experts)
        name = ".".join(part for part in (at.name, word) if part)
        yield from _below(MegatronModule(name, child, experts), seen)


def _word(name: str, own: str, child: nn.Module, experts: Sequence[int] | None) -> str:
    """Return what stands for a child in canonical names."""
    if own in INNER_NAMES:
        return ""
    if own.isdecimal():
        number = getattr(bare(child), "layer_number", None)
        if name.endswith("local_experts") and experts is not None:
            return str(experts[int(own)])
        if isinstance(number, int) and "mtp" not in name:
            return str(number - 1)
    return own


@dataclass(frozen=True)
class MegatronRanks:
    """Ranks and sizes, all of one process where there is no job: tensor parallel, also of experts; data
    parallel with context parallel, which sees other positions with the same parameters, also of experts,
    where both are in one group; and pipeline parallel.
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
        """Return those of this process.

        Raises ``TracerError`` when there are several processes, and Megatron-Core does not know their groups.
        """
        state, distributed = parallel_state(), torch.distributed
        if state is None:
            job = distributed.is_available() and distributed.is_initialized()
            if job and distributed.get_world_size() > 1:
                raise TracerError(
                    f"Statistics of a Megatron-Core model in {distributed.get_world_size()} processes "
                    "count each value once, for which they have to know the groups: "
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
        """Return ``value`` of each pipeline stage; all processes in the pipeline have to call it."""
        if self.stages == 1:
            return [value]
        state: Any = parallel_state()
        found: list[Any] = [None] * self.stages
        group = state.get_pipeline_model_parallel_group()
        torch.distributed.all_gather_object(found, value, group=group)
        return found
