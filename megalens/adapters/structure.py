"""Models that are recognised by structure: a stack of layers with attention and MLP, and an embedding."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torch import nn

from ..tracer import ModelPoints
from .adapter import Adapter
from .layer_roles import Roles, layer_roles, mixture_of, projections
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


LATER = "It is found when the first forward pass is watched."


@dataclass(frozen=True)
class Stack:
    """A list of layers; ``path`` is where it lies in the model."""

    path: str
    layers: Sequence[tuple[nn.Module, Roles]]
    tokens: str | None
    positions: str | None


class StructureAdapter:
    """Adapter of every model that has lists of layers. What its modules are is supposed by their names and
    sizes, until a forward pass shows it.

    Layers are numbered over all lists in the order in which the model has them: in an encoder and a decoder,
    those of the encoder first. Where one list reads tokens to predict them, and others see or hear for it,
    the layers are those of that list.
    """

    name = "structure"

    def fits(self, model: nn.Module) -> bool:
        return bool(stacks_of(unwrapped(model)))

    def points(self, model: nn.Module) -> ModelPoints:
        """Return what can be supposed of ``model``; each flag of which that is nothing has its reason."""
        body = unwrapped(model)
        stacks = stacks_of(body)
        returns_probabilities = _is_huggingface(body)
        layers: dict[int, tuple[nn.Module, Adapter]] = {}
        for stack in stacks:
            for layer, paths in stack.layers:
                if not returns_probabilities:
                    paths.pop("probabilities", None)
                if torch_order(layer) == "SBH":
                    paths["layout"] = "SBH"
                layers[len(layers)] = layer, Adapter(layer="layers.{i}", name=self.name, **paths)
        reading = next((stack for stack in stacks if stack.tokens is not None), None)
        table = Adapter(
            layer="layers.{i}",
            name=self.name,
            tokens=None if reading is None else reading.tokens,
            positions=None if reading is None else reading.positions,
            missing=probabilities_missing,
        )
        return table.points_of(model, layers, supposed=LATER if layers else NO_LAYERS)


NO_LAYERS = "This model has no list of layers, of which each is called with what the one before it gave."


def torch_order(layer: nn.Module) -> str:
    """Return whether torch's own transformer layers in ``layer`` take samples or positions first."""
    own = [each for each in layer.modules() if isinstance(each, nn.MultiheadAttention)]
    return "SBH" if own and not any(each.batch_first for each in own) else "BSH"


def stacks_of(body: nn.Module) -> list[Stack]:
    """Return the lists of layers of ``body``, in their order."""
    found: list[Stack] = []
    hidden = hidden_size(body)
    lists: dict[nn.Module, str] = {}
    for path, holder in _lists(body, ""):
        # One that has several names is one.
        lists.setdefault(holder, path)
    for holder, path in lists.items():
        layers = [(layer, layer_roles(layer, hidden)) for layer in map(bare, holder.children())]
        found.append(Stack(path, layers, *embeddings_of(body, path, path.rpartition(".")[0])))
    reading = [each for each in found if each.tokens is not None]
    if len(found) > 1 and len(reading) == 1 and _predicts(body, reading[0]):
        # What sees or hears has layers too.
        return reading
    if not reading and found:
        # Every embedding is before the first list.
        tokens = embeddings_of(body, found[0].path, "")[0]
        found[0] = replace(found[0], tokens=tokens)
    return found


def _predicts(body: nn.Module, stack: Stack) -> bool:
    """Return whether a list is that of a language model which attends to nothing but itself."""
    assert stack.tokens is not None
    words = stored(body.get_submodule(stack.tokens), "num_embeddings")
    heads = [each for each in body.modules() if isinstance(each, nn.Linear) and each.out_features == words]
    layer, _ = stack.layers[0]
    attentions = {
        path.rpartition(".")[0]
        for path, module in projections(layer)
        if "k" in path.rpartition(".")[2].lower()
    }
    return bool(heads) and len(attentions) < 2


def _lists(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
    """Give the lists of layers below ``module``; of stages, those that are in them."""
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if not _is_list(child):
            yield from _lists(child, f"{path}.")
            continue
        inner = list(_lists(child, f"{path}."))
        if inner and _are_stages(child, inner, path):
            yield from inner
        else:
            yield path, child


def _is_list(module: nn.Module) -> bool:
    """Return whether ``module`` is a list of like modules that have several others with weights in them."""
    children = dict(module.named_children())
    if not isinstance(module, _CONTAINERS) or not all(name.isdecimal() for name in children):
        return False
    layers = [bare(child) for child in children.values()]
    return bool(layers) and all(_holds_several(layer) for layer in layers)


_CONTAINERS = (nn.ModuleList, nn.Sequential, nn.ModuleDict)


def _holds_several(layer: nn.Module) -> bool:
    # Where FullyShardedDataParallel flattens parameters, modules have none of their own.
    own = [
        each
        for each in layer.modules()
        if output_features(each) is not None or any(True for _ in each.parameters(recurse=False))
    ]
    return len(own) > 1


def _are_stages(holder: nn.Module, inner: Sequence[tuple[str, nn.Module]], path: str) -> bool:
    """Return whether the layers are those of lists within the modules of a list."""
    for name, child in holder.named_children():
        below = [each for at, each in inner if f"{at}.".startswith(f"{path}.{name}.")]
        mixture = mixture_of(child)
        if len(below) != 1 or mixture is not None:
            return False
        kinds = {type(bare(each)) for each in below[0].children()}
        weights = sum(each.numel() for each in child.parameters())
        if len(kinds) != 1 or 2 * sum(each.numel() for each in below[0].parameters()) < weights:
            return False
    return True


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
        rows = stored(module, "num_embeddings")
        if isinstance(rows, int) and not name.startswith(f"{stack}."):
            yield name, rows


def _is_position(path: str) -> bool:
    name = path.rpartition(".")[2].lower()
    return "pos" in name or name == "wpe"


def _argument_index(module: nn.Module, argument: str, default: int = 0) -> int:
    names = list(inspect.signature(module.forward).parameters)
    return names.index(argument) if argument in names else default
