"""Models that are recognised by structure: a stack of layers with attention and MLP, and an embedding."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..tracer import ModelPoints, TracerError
from .adapter import Adapter
from .layer_roles import LayerRoles, layer_roles
from .sizes import bare, hidden_size, text_config, unwrapped
from .table import find

_HEADS = ("num_heads", "num_attention_heads", "n_head", "n_heads", "heads")
_KEY_VALUE_HEADS = ("num_kv_heads", "kv_heads", "n_kv_heads", "num_key_value_heads")


# Plain PyTorch models: the table of the demo's GPT, which is also the one to copy for a model of one's own.
GPT_TABLE = Adapter(
    name="plain",
    layer="blocks.{i}",
    attention="attention",
    qkv="attention.qkv",
    context="attention.projection",
    probabilities="attention.scores",
    fc1="mlp.fc1",
    fc2="mlp.fc2",
    tokens="embedding",
    positions="positions",
)
"""Blocks with a fused ``attention.qkv``, ``attention.scores``, ``attention.projection``, ``mlp.fc1`` and
``mlp.fc2``.
"""


def _probabilities_missing(model: nn.Module, flag: str) -> str | None:
    """Explain why attention probabilities cannot be seen: only the eager implementation returns them."""
    if flag != "RawAttentionScore_mat_mul":
        return None
    kind = getattr(text_config(model), "_attn_implementation", None)
    if kind in (None, "eager"):
        return None
    return (
        f"This model computes attention with {kind}, which gives no probabilities. "
        "Load it with attn_implementation='eager', or call model.set_attn_implementation('eager') before "
        "tracing."
    )


@dataclass(frozen=True)
class Structure:
    """What was found of a model; ``stack`` is the path of the list of layers."""

    stack: str
    layers: Mapping[int, tuple[nn.Module, LayerRoles]]
    tokens: str | None
    positions: str | None

    @property
    def first(self) -> LayerRoles:
        """Roles of the first layer that has attention and MLP."""
        return next(roles for _, roles in self.layers.values() if roles.is_transformer)


class StructureAdapter:
    """Adapter of every model of which the structure tells where its trace points are: GPT-2, GPT-J, GPT-NeoX,
    OPT, Bloom, Falcon, Phi, Llama and its many relatives, mixtures of experts; also wrapped by peft, and the
    language part of models that see or hear.
    """

    name = "structure"

    def fits(self, model: nn.Module) -> bool:
        return structure_of(unwrapped(model)) is not None

    def points(self, model: nn.Module) -> ModelPoints:
        """Return the trace points of ``model``; ``TracerError`` when its structure is not recognised."""
        body = unwrapped(model)
        found = structure_of(body)
        if found is None:
            raise TracerError(
                f"The structure of {type(body).__name__} does not tell where its trace points are."
            )
        returns_probabilities = _is_huggingface(body)
        layers: dict[int, tuple[nn.Module, Adapter]] = {}
        for number, (layer, roles) in found.layers.items():
            paths = roles.paths()
            if not returns_probabilities:
                paths.pop("probabilities", None)
            layers[number] = layer, Adapter(layer=f"{found.stack}.{{i}}", name=self.name, **paths)
        missing = dict(found.first.missing)
        table = Adapter(
            layer=f"{found.stack}.{{i}}",
            name=self.name,
            tokens=found.tokens,
            positions=found.positions,
            heads=None if returns_probabilities else _heads_of_attention(found, _HEADS),
            kv_heads=_heads_of_attention(found, _KEY_VALUE_HEADS),
            missing=lambda body, flag: missing.get(flag) or _probabilities_missing(body, flag),
        )
        return table.points_of(model, layers)


def structure_of(body: nn.Module) -> Structure | None:
    """Return how ``body`` is built, or None where that is not recognised."""
    found: list[Structure] = []
    hidden = hidden_size(body)
    for path, stack in body.named_modules():
        if (
            not path
            or not isinstance(stack, (nn.ModuleList, nn.Sequential))
            or any(path.startswith(f"{other.stack}.") for other in found)
        ):
            continue
        children = dict(stack.named_children())
        if not children or not all(name.isdecimal() for name in children):
            continue
        layers = {}
        for name, child in children.items():
            layer = bare(child)
            layers[int(name)] = layer, layer_roles(layer, hidden)
        if not any(roles.is_transformer for _, roles in layers.values()):
            continue
        found.append(Structure(path, layers, *embeddings_of(body, path, path.rpartition(".")[0])))
    # What sees or hears has layers too, but no tokens.
    reading = [each for each in found if each.tokens is not None]
    if len(found) > 1:
        found = reading
    if len(found) != 1:
        return None
    (only,) = found
    if only.tokens is None:
        # Where there is one list of layers, every embedding is before it.
        return replace(only, tokens=embeddings_of(body, only.stack, "")[0])
    return only


def embeddings_of(body: nn.Module, stack: str, owner: str) -> tuple[str | None, str | None]:
    """Return the paths of the token embedding and of what takes the position ids, below ``owner``."""
    found = list(_tables(body, owner, stack))
    vocabulary = getattr(text_config(body), "vocab_size", None)
    tokens = next((path for path, rows in found if rows == vocabulary), None)
    words = [path for path, rows in found if not _is_position(path) and rows > (vocabulary or 0)]
    if tokens is None and words:
        tokens = words[0]
    positions = next((path for path, _ in found if path != tokens and _is_position(path)), None)
    if positions is not None:
        return tokens, f"{positions}[{_argument_index(body.get_submodule(positions), 'position_ids')}]"
    rotary = f"{owner}.rotary_emb" if owner else "rotary_emb"
    if "mrope_section" in (getattr(text_config(body), "rope_parameters", None) or {}) and find(body, rotary):
        # Models that place pictures too give each token several positions, and the layers none.
        return tokens, f"{rotary}[{_argument_index(body.get_submodule(rotary), 'position_ids')}]"
    first, layer = next(body.get_submodule(stack).named_children())
    index = _argument_index(bare(layer), "position_ids", -1) if _is_huggingface(body) else -1
    return tokens, f"{stack}.{first}[{index}]" if index >= 0 else None


def _is_huggingface(body: nn.Module) -> bool:
    """Return whether the model's layers take positions and eager attention returns probabilities."""
    return hasattr(text_config(body), "_attn_implementation")


def _tables(body: nn.Module, owner: str, stack: str) -> Iterator[tuple[str, int]]:
    holder = body.get_submodule(owner)
    for name, module in holder.named_modules(prefix=owner):
        rows = getattr(module, "num_embeddings", None)
        if isinstance(rows, int) and not name.startswith(f"{stack}."):
            yield name, rows


def _is_position(path: str) -> bool:
    name = path.rpartition(".")[2].lower()
    return "pos" in name or name == "wpe"


def _argument_index(module: nn.Module, argument: str, default: int = 0) -> int:
    names = list(inspect.signature(module.forward).parameters)
    return names.index(argument) if argument in names else default


def _heads_of_attention(found: Structure, names: Sequence[str]) -> int | None:
    """Return a number of heads from the attention itself: a config may name one that is not used."""
    layer = next(layer for layer, roles in found.layers.values() if roles.is_transformer)
    holder = (found.first.probabilities or "").partition("[")[0]
    attention: Any = layer.get_submodule(holder) if holder else None
    numbers = [getattr(attention, name, None) for name in names]
    return next((number for number in numbers if isinstance(number, int) and number > 0), None)
