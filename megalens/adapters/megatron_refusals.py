"""What cannot be measured under some of Megatron-Core's ways to train, so that it is said before the first step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..protocol import MOMENT_STATS
from .megatron_gradients import ready_moment
from .megatron_masters import leaf_optimizers

__all__ = ["refusals"]

_FSDP = ("TorchFullyShardedDataParallel", "FullyShardedDataParallel", "MegatronFSDP")
_HOOKED = ("activation", "dgrad", "residual", "residual_dgrad")


def refusals(given: Sequence[nn.Module], chunks: Sequence[nn.Module], optimizer: Any) -> dict[str, str]:
    """Return by statistic why there can be none of it.

    Parameters
    ----------
    given : sequence of torch.nn.Module
        Model chunks as the training has them, in their wrappers.
    chunks : sequence of torch.nn.Module
        The same without.
    optimizer : object
        The training's optimizer.
    """
    found: dict[str, str] = {}
    for chunk in given:
        for kind in {type(chunk).__name__ for chunk in _wrappers(chunk)} & set(_FSDP):
            reason = f"The model is sharded by Megatron's {kind}, of which statistics cannot tell whole tensors; use its DDP, with the distributed optimizer if memory is short."
            found.update(dict.fromkeys(MOMENT_STATS, reason))
    config: Any = getattr(chunks[0], "config", None)
    graphs = getattr(config, "cuda_graph_impl", "none")
    if graphs != "none":
        reason = f"CUDA graphs are on (cuda_graph_impl={graphs!r}), and what they replay calls no hooks; turn them off, or log param and grad alone."
        found.update({stat: found.get(stat, reason) for stat in _HOOKED})
    if getattr(config, "overlap_moe_expert_parallel_comm", False):
        reason = "overlap_moe_expert_parallel_comm runs layers in pieces, so that nothing sees a whole layer's input and output; turn it off."
        found.update({stat: found.get(stat, reason) for stat in ("residual", "residual_dgrad")})
    reason = _gradients(given, optimizer)
    if reason:
        found.setdefault("grad", reason)
    return found


def _gradients(given: Sequence[nn.Module], optimizer: Any) -> str:
    leaves = leaf_optimizers(optimizer)
    config = getattr(given[0], "ddp_config", None)
    if getattr(config, "use_distributed_optimizer", False) and not any(
        hasattr(leaf, "model_float16_groups") or getattr(leaf, "is_stub_optimizer", False) for leaf in leaves
    ):
        return (
            "The model's DDP leaves each process a piece of the gradients (use_distributed_optimizer), and which one is known to Megatron's distributed optimizer only; "
            f"pass that as optimizer, not {type(optimizer).__name__}."
        )
    if optimizer is None:
        return "Megatron-Core reduces gradients after the backward pass and clips them in the optimizer's step: pass the optimizer, between the two of which they are measured."
    if ready_moment(optimizer) is None:
        return f"{type(optimizer).__name__} has neither prepare_grads, as optimizers of Megatron-Core have from 0.9 on, nor register_step_pre_hook, as torch's have."
    return ""


def _wrappers(chunk: nn.Module) -> list[nn.Module]:
    found = [chunk]
    while isinstance(inner := getattr(found[-1], "module", None), nn.Module):
        found.append(inner)
    return found
