"""Reads a model's sizes from its config and its modules."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..protocol.messages_generated import Model

INNER_NAMES = frozenset(("_orig_mod", "_checkpoint_wrapped_module", "_fsdp_wrapped_module"))
"""What stands in a name only because something wraps another module: torch.compile, checkpoint wrappers,
torch's FSDP.
"""

_WRAPPERS = (
    "DataParallel",
    "DistributedDataParallel",
    "FullyShardedDataParallel",
    # Megatron-Core's own; its DDP and its FSDP have the names of torch's.
    "Float16Module",
    "TorchFullyShardedDataParallel",
    "MegatronFSDP",
)


def stored(holder: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of a module as it lies there: no property, parametrization or ``__getattr__`` runs,
    which may compute something, and change the training by it. Of what is no module, any attribute.
    """
    if not isinstance(holder, nn.Module):
        return getattr(holder, name, default)
    own = vars(holder)
    # A script (torch.jit) keeps them elsewhere.
    for place in (own, *(own.get(kept) or {} for kept in ("_parameters", "_buffers", "_modules"))):
        if name in place:
            return place[name]
    value = inspect.getattr_static(type(holder), name, default)
    return default if hasattr(type(value), "__get__") else value


def has_weight(module: nn.Module) -> bool:
    """Return whether ``module.weight`` is there, also one that a parametrization makes anew each time."""
    return stored(module, "weight") is not None or "weight" in (stored(module, "parametrizations") or ())


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside of torch.compile's and data-parallel wrappers."""
    while True:
        inner: Any = stored(model, "_orig_mod")
        if inner is None and type(model).__name__ in _WRAPPERS:
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def bare(module: nn.Module) -> nn.Module:
    """Return the module inside of a checkpoint wrapper or torch's FSDP."""
    while True:
        inner = [child for name, child in module.named_children() if name in INNER_NAMES]
        if not inner:
            return module
        module = inner[0]


@dataclass(frozen=True)
class ModelSizes:
    """What is known of a model before its first step; None where it is not."""

    hidden: int | None
    heads: int | None
    kv_heads: int | None
    vocabulary: int | None
    parameters: int | None
    dtype: str | None
    device: str | None

    def to_message(self, name: str, adapter: str, layers: int) -> Model:
        return {
            "name": name[:200],
            "adapter": adapter[:100],
            "layers": layers,
            "hidden": self.hidden,
            "heads": self.heads,
            "kv_heads": self.kv_heads,
            "vocabulary": self.vocabulary,
            "parameters": self.parameters,
            "dtype": self.dtype,
            "device": self.device,
        }


def model_sizes(
    body: nn.Module, heads: int | None, kv_heads: int | None, embedding: nn.Module | None
) -> ModelSizes:
    """Return a model's sizes from its ``config`` under the usual names; ``heads`` and ``kv_heads`` win."""
    config = text_config(body)
    heads = heads or _named(config, "num_attention_heads", "n_head", "heads", "n_heads", "num_heads")
    kv_heads = kv_heads or _named(config, "num_key_value_heads", "kv_heads", "n_kv_heads", "num_query_groups")
    hidden = hidden_size(body)
    vocabulary = _named(config, "vocab_size", "vocabulary")
    first = next(body.parameters(), None)
    return ModelSizes(
        hidden or _number(stored(embedding, "embedding_dim")),
        heads,
        kv_heads or heads,
        vocabulary or _number(stored(embedding, "num_embeddings")),
        sum(parameter.numel() for parameter in body.parameters()),
        None if first is None else str(first.dtype).removeprefix("torch."),
        None if first is None else str(first.device),
    )


def text_config(body: nn.Module) -> Any:
    """Return a model's config, that of the language part where it sees or hears; None without one."""
    config = stored(body, "config")
    ask = getattr(config, "get_text_config", None)
    return ask() if callable(ask) else config


def hidden_size(body: nn.Module) -> int | None:
    """Return the width of the residual stream, where the config says it."""
    return _named(text_config(body), "hidden_size", "n_embd", "hidden", "d_model")


def output_features(module: nn.Module) -> int | None:
    """Return the size of the last axis of what a module returns, where it says so."""
    return _named(module, "out_features", "nf", "outfeatures")


def input_features(module: nn.Module) -> int | None:
    """Return the size of the last axis of what a module takes, where it says so."""
    return _named(module, "in_features", "nx", "infeatures")


def halves(data: Tensor) -> Sequence[Tensor]:
    """Cut ``[..., gate | up]``."""
    return data.chunk(2, dim=-1)


def _named(holder: Any, *names: str) -> int | None:
    for name in names:
        number = None
        # A config may refuse to answer.
        with contextlib.suppress(Exception):
            number = _number(stored(holder, name))
        if number is not None:
            return number
    return None


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
