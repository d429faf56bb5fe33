"""Finds the adapter of a model, or says what to fill in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from ..tracer import ModelPoints, TracerError
from ..tracer.moments.points import MomentPoints
from .adapter import Adapter
from .layer_roles import LayerRoles, layer_roles
from .megatron_core import MegatronAdapter
from .megatron_moments import MegatronMoments
from .sizes import bare, hidden_size, text_config, unwrapped
from .structure import GPT_TABLE, StructureAdapter, embeddings_of
from .torch_moments import TorchMoments

ADAPTERS: tuple[Adapter | MegatronAdapter | StructureAdapter, ...] = (
    MegatronAdapter(),
    GPT_TABLE,
    # Other blocks of that kind have no such embedding.
    replace(GPT_TABLE, positions=None),
    StructureAdapter(),
)
"""The ready adapters, in the order in which they are tried."""

_ENTRIES = (
    ("attention", "attention", "below a layer: its output is AttentionOutput_mat_mul"),
    ("qkv", "attention.qkv", "fused; or q=, k= and v="),
    ("context", "attention.projection", "its input is ContextLayer_mat_mul"),
    (
        "probabilities",
        "attention.scores",
        'its output is the probabilities; "attention[1]" for a second value',
    ),
    ("fc1", "mlp.fc1", "MLP1_mat_mul; or gate_up=; or gate= and up="),
    ("fc2", "mlp.fc2", "MLP2_mat_mul"),
)
_INSTEAD = {"qkv": ("q", "k", "v"), "fc1": ("gate_up", "gate", "up")}


def sketch(body: nn.Module) -> str:
    """Return Python that makes an ``Adapter``; what was not found is a comment."""
    stack, roles = _most_likely(body)
    tokens = embeddings_of(body, stack, "")[0] if stack else None
    path = f"{stack}.{{i}}" if stack else "blocks.{i}"
    lines = [_line("layer", path, "path of layer i; its output is HiddenStates")]
    for entry, example, says in _ENTRIES:
        found = {name: getattr(roles, name) for name in (entry, *_INSTEAD.get(entry, ()))}
        found = {name: value for name, value in found.items() if value and (entry != "probabilities")}
        lines += [_line(name, value, says) for name, value in found.items()] or [
            _line(entry, example, says, known=False)
        ]
    if roles.mixture is not None:
        lines.append(f"    mixture={roles.mixture!r},  # the experts and their router")
    lines.append(
        _line(
            "tokens",
            tokens or "embedding",
            "from the root: its input is the token ids",
            known=tokens is not None,
        )
    )
    if getattr(text_config(body), "num_attention_heads", None) is None:
        lines.append("    # heads=4, kv_heads=4,  # model.config does not say")
    return "\n".join(
        (
            "from megalens.adapters import Adapter, Mixture"
            if roles.mixture
            else "from megalens.adapters import Adapter",
            "adapter = Adapter(",
            *lines,
            ")",
        )
    )


def _line(entry: str, value: str, says: str, *, known: bool = True) -> str:
    return f'    {"" if known else "# "}{entry}="{value}",  # {says}'


def _most_likely(body: nn.Module) -> tuple[str, LayerRoles]:
    """Return the path of the list that most probably has the layers, and the roles in the first."""
    best: tuple[int, str, LayerRoles] = (0, "", LayerRoles())
    for path, stack in body.named_modules():
        if not path or not isinstance(stack, (nn.ModuleList, nn.Sequential)) or not len(stack):
            continue
        roles = layer_roles(bare(stack[0]), hidden_size(body))
        alike = sum(type(child) is type(stack[0]) for child in stack)
        # Of lists in lists the outer one comes first.
        score = 100 * len(roles.paths()) + alike
        if alike > 1 and score > best[0]:
            best = (score, path, roles)
    return best[1:]


_LINES = 60
_NOWHERE = {
    **dict.fromkeys(
        ("attention_entropy", "attention_max"),
        "In this model neither attention probabilities nor queries and keys of one shape were found.",
    ),
    **dict.fromkeys(
        ("router_entropy", "router_similarity"), "In this model no router of a mixture of experts was found."
    ),
}


def find_adapter(model: nn.Module | Sequence[nn.Module]) -> Adapter | MegatronAdapter | StructureAdapter:
    """Return the ready adapter that fits ``model``, or the list of model chunks of a pipeline stage.

    Raises ``TracerError`` when none does, with the model's module names and the table to fill in.
    """
    for adapter in ADAPTERS:
        if isinstance(adapter, MegatronAdapter):
            if adapter.fits(model):
                return adapter
        elif isinstance(model, nn.Module) and adapter.fits(model):
            return adapter
    if not isinstance(model, nn.Module):
        kinds = ", ".join(sorted({type(chunk).__name__ for chunk in model})) or "nothing"
        raise TracerError(
            "A list of model chunks is traced where they are GPT models of Megatron-Core; this one holds "
            f"{kinds}."
        )
    lines = list(_outline(model, 1))
    if len(lines) > _LINES:
        lines = [*lines[:_LINES], f"  … and {len(lines) - _LINES} more"]
    names = "\n".join(lines) or "  (no submodules)"
    raise TracerError(
        f"Megalens does not know where the trace points of {type(model).__name__} are: its structure does "
        "not tell. Its modules are:\n"
        f"{names}\n"
        "Pass where they are as megalens.trace(model, adapter=adapter). This is what can be told; fill in "
        "the comments as far as the model has such modules:\n"
        f"{sketch(unwrapped(model))}"
    )


def find_moments(
    model: nn.Module | Sequence[nn.Module],
    optimizer: Any,
    points: ModelPoints,
    adapter: Any = None,
    *,
    every_module: bool = False,
) -> MomentPoints:
    """Return what there is to measure in ``model``; raises ``TracerError`` when that is unknown.

    ``adapter`` is the user's own, which is asked first where it has ``statistics_points``.
    """
    own = [adapter] if hasattr(adapter, "statistics_points") else []
    plain = TorchMoments(points, every_module=every_module)
    for each in (*own, MegatronMoments(), plain):
        found: MomentPoints | None = each.statistics_points(model, optimizer)
        if found is not None:
            if every_module and each is not plain:
                raise TracerError("sites='all' is for models of plain PyTorch.")
            made = {point.stat for point in found.features}
            nowhere = {stat: reason for stat, reason in _NOWHERE.items() if stat not in made}
            return replace(found, unavailable={**nowhere, **found.unavailable})
    raise TracerError(
        "Statistics are logged of a torch.nn.Module, or of the model chunks of a Megatron-Core pipeline "
        "stage; these are neither."
    )


def _outline(module: nn.Module, depth: int) -> Iterator[str]:
    """Give the module tree indented; of a list of like modules only the first is opened."""
    children = list(module.named_children())
    index = 0
    while index < len(children):
        name, child = children[index]
        last = index
        if name.isdecimal():
            while last + 1 < len(children) and type(children[last + 1][1]) is type(child):
                last += 1
        label = name if last == index else f"{name} to {children[last][0]}"
        yield f"{'  ' * depth}{label}: {type(child).__name__}"
        yield from _outline(child, depth + 1)
        index = last + 1
