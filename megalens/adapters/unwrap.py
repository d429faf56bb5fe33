"""Looking through what only wraps a model."""

from __future__ import annotations

from typing import Any

from torch import nn

__all__ = ["INNER_NAMES", "bare", "unwrapped"]

INNER_NAMES = frozenset(("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"))
"""What stands in a name only because something wraps another module: torch.compile, checkpoint wrappers, torch's FSDP."""

_WRAPPERS = (
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    # Megatron-Core's own; its DDP and its FSDP have the names of torch's.
    "Float16Module",
    "TorchFullyShardedDataParallel",
    "MegatronFSDP",
)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside of torch.compile's and data-parallel wrappers, whose only job is to call what they hold."""
    while True:
        inner: Any = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in _WRAPPERS:
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def bare(module: nn.Module) -> nn.Module:
    """Return the module inside of what only wraps it: a checkpoint wrapper, torch's FSDP."""
    while True:
        inner = [child for name, child in module.named_children() if name in INNER_NAMES]
        if not inner:
            return module
        module = inner[0]
