"""Models that are recognised by structure: a stack of layers with attention and MLP, and an embedding."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ..tracer import ModelPoints
from .adapter import Adapter
from .layer_roles import layer_roles, mixture_of, projections
from .sizes import bare, hidden_size, output_features, stored, text_config, unwrapped
from .table import find

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


def probabilities_missing(model: nn.Module, flag: str) -> str | None:
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


NO_LAYERS = "This model has no list of layers, of which each is called with what the one before it gave."
_LATER = "It is found when the first forward pass is watched."


class StructureAdapter:
    """Adapter of every model that has lists of layers. What its modules are is supposed by their names and
    sizes, until a forward pass shows it.

    Layers are numbered over all lists in the order in which the model has them: in an encoder and a decoder,
    those of the encoder first. Where one list reads tokens to predict them, and others see or hear for it,
    the layers are those of that list.
    """

    name = "structure"

    def fits(self, model: nn.Module) -> bool:
        return next(_lists(unwrapped(model), ""), None) is not None

    def points(self, model: nn.Module) -> ModelPoints:
        """Return what can be supposed of ``model``; each flag of which that is nothing has its reason."""
        body = unwrapped(model)
        hidden = hidden_size(body)
        table = Adapter(layer="layers.{i}", name=self.name, missing=probabilities_missing)
        layers: dict[int, tuple[nn.Module, Adapter]] = {}
        for path, tokens, positions in stacks_of(body):
            for layer in map(bare, body.get_submodule(path).children()):
                roles = layer_roles(layer, hidden)
                if not _is_huggingface(body):
                    roles.pop("probabilities", None)
                layers[len(layers)] = layer, replace(table, layout=_torch_order(layer), **roles)
            if table.tokens is None:
                table = replace(table, tokens=tokens, positions=positions)
        return table.points_of(model, layers, supposed=_LATER if layers else NO_LAYERS)


def _torch_order(layer: nn.Module) -> Any:
    """Return whether torch's own transformer layers in ``layer`` take samples or positions first."""
    own = [each for each in layer.modules() if isinstance(each, nn.MultiheadAttention)]
    return "SBH" if own and not any(each.batch_first for each in own) else "BSH"


Stack = tuple[str, str | None, str | None]
"""Where a list of layers lies in the model, its token embedding, and what is given the positions."""


def stacks_of(body: nn.Module) -> list[Stack]:
    """Return the lists of layers of ``body``, in their order."""
    lists: dict[nn.Module, str] = {}
    for path, holder in _lists(body, ""):
        # One that has several names is one.
        lists.setdefault(holder, path)
    found = [(path, *embeddings_of(body, path, path.rpartition(".")[0])) for path in lists.values()]
    reading = [stack for stack in found if stack[1] is not None]
    if len(found) > 1 and len(reading) == 1 and _predicts(body, *reading[0][:2]):
        # What sees or hears has layers too.
        return reading
    if not reading and found:
        # Every embedding is before the first list.
        path, _, positions = found[0]
        found[0] = path, embeddings_of(body, path, "")[0], positions
    return found


def _predicts(body: nn.Module, stack: str, tokens: Any) -> bool:
    """Return whether a list is that of a language model which attends to nothing but itself."""
    words = stored(body.get_submodule(tokens), "num_embeddings")
    heads = any(isinstance(each, nn.Linear) and each.out_features == words for each in body.modules())
    layer = bare(next(body.get_submodule(stack).children()))
    paths = (path.rpartition(".") for path, _ in projections(layer))
    return heads and len({holder for holder, _, name in paths if "k" in name.lower()}) < 2


def _lists(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Give the lists of layers below ``module``; of stages, those that are in them."""
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        inner = list(_lists(child, f"{path}."))
        if _is_list(child) and not (inner and _are_stages(child, inner, path)):
            yield path, child
        else:
            yield from inner


def _is_list(module: nn.Module) -> bool:
    """Return whether ``module`` is a list of modules that each have several others with weights in them."""
    names = [name for name, _ in module.named_children()]
    if not names or not isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
        return False
    return all(name.isdecimal() for name in names) and all(_holds_several(bare(c)) for c in module.children())


def _holds_several(layer: nn.Module) -> bool:
    # Where FullyShardedDataParallel flattens parameters, modules have none of their own.
    own = (
        m for m in layer.modules() if output_features(m) is not None or any(True for _ in m.parameters(False))
    )
    return next(own, None) is not None and next(own, None) is not None


def _are_stages(holder: nn.Module, inner: Sequence[tuple[str, nn.Module]], path: str) -> bool:
    """Return whether the layers are those of lists within the modules of a list."""
    for name, child in holder.named_children():
        below = [each for at, each in inner if f"{at}.".startswith(f"{path}.{name}.")]
        if len(below) != 1 or mixture_of(child) is not None:
            return False
        weights, in_list = (sum(p.numel() for p in each.parameters()) for each in (child, below[0]))
        if len({type(bare(each)) for each in below[0].children()}) != 1 or 2 * in_list < weights:
            return False
    return True


def embeddings_of(body: nn.Module, stack: str, owner: str) -> tuple[str | None, str | None]:
    """Return the paths of the token embedding and of what takes the position ids, below ``owner``."""
    found = {
        name: rows
        for name, module in body.get_submodule(owner).named_modules(prefix=owner)
        if isinstance(rows := stored(module, "num_embeddings"), int) and not name.startswith(f"{stack}.")
    }
    places = [path for path in found if "pos" in (name := path.rpartition(".")[2].lower()) or name == "wpe"]
    vocabulary = getattr(text_config(body), "vocab_size", None)
    words = [path for path, rows in found.items() if path not in places and rows > (vocabulary or 0)]
    tokens = next((path for path, rows in found.items() if rows == vocabulary), None) or next(
        iter(words), None
    )
    rotary = f"{owner}.rotary_emb".lstrip(".")
    if "mrope_section" in (getattr(text_config(body), "rope_parameters", None) or {}) and find(body, rotary):
        # Models that place pictures too give each token several positions, and the layers none.
        places.append(rotary)
    if places := [path for path in places if path != tokens]:
        return tokens, f"{places[0]}[{max(_argument(body.get_submodule(places[0]), 'position_ids'), 0)}]"
    first, layer = next(body.get_submodule(stack).named_children())
    index = _argument(bare(layer), "position_ids") if _is_huggingface(body) else -1
    return tokens, f"{stack}.{first}[{index}]" if index >= 0 else None


def _is_huggingface(body: nn.Module) -> bool:
    """Return whether the model's layers take positions and eager attention returns probabilities."""
    return hasattr(text_config(body), "_attn_implementation")


def _argument(module: nn.Module, name: str) -> int:
    names = list(inspect.signature(module.forward).parameters)
    return names.index(name) if name in names else -1
