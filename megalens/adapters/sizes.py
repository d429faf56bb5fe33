"""Reads a model's sizes from its config and its modules."""

from __future__ import annotations

import contextlib
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


def canonical(name: str) -> str:
    """Return the dotted path of a module or parameter, without what only wraps another module."""
    return ".".join(part for part in name.split(".") if part not in INNER_NAMES)


def stored(holder: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of a module as it lies there: no property, parametrization or ``__getattr__`` runs,
    which may compute something, and change the training by it. Of what is no module, any attribute.
    """
    if not isinstance(holder, nn.Module):
        return getattr(holder, name, default)
    own = vars(holder)
    if name in own:
        return own[name]
    # A script (torch.jit) keeps them elsewhere.
    for kept in ("_parameters", "_buffers", "_modules"):
        if (place := own.get(kept)) and name in place:
            return place[name]
    for kind in type(holder).__mro__:
        if name in vars(kind):
            value = vars(kind)[name]
            return default if hasattr(type(value), "__get__") else value
    return default


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


def described(name: str, adapter: str, layers: int, first: Tensor | None, **sizes: int | None) -> Model:
    """Return what is known of a model before its first step; ``first`` is one of its parameters."""
    dtype = None if first is None else str(first.dtype).removeprefix("torch.")
    device = None if first is None else str(first.device)
    known: Any = {"name": name[:200], "adapter": adapter[:100], "layers": layers, **sizes}
    known |= {"dtype": dtype, "device": device}
    return known  # type: ignore[no-any-return]


def model_sizes(body: nn.Module, table: Any, layers: int, embedding: nn.Module | None) -> Model:
    """Return a model's sizes from its ``config`` under the usual names; those of the table win."""
    config = text_config(body)
    heads = table.heads or _named(config, "num_attention_heads", "n_head", "heads", "n_heads", "num_heads")
    kv_heads = _named(config, "num_key_value_heads", "kv_heads", "n_kv_heads", "num_query_groups")
    return described(
        type(body).__name__,
        table.name,
        layers,
        next(body.parameters(), None),
        hidden=hidden_size(body) or _number(stored(embedding, "embedding_dim")),
        heads=heads,
        kv_heads=table.kv_heads or kv_heads or heads,
        vocabulary=_named(config, "vocab_size", "vocabulary") or _number(stored(embedding, "num_embeddings")),
        parameters=sum(parameter.numel() for parameter in body.parameters()),
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
