"""Which module of a transformer layer is what, by how its modules fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from .sizes import input_features, output_features

_TAIL = r"(_?(proj|projection|lin|linear|layer))?"
_NAMES = {
    **{
        role: re.compile(rf"(to_?|w_?)?({role}|{word}){_TAIL}")
        for role, word in (("q", "query|queries"), ("k", "keys?"), ("v", "values?"))
    },
    "qkv": re.compile(rf"(c_attn|query_key_value|att_proj|([wc]_?|fused_?|linear_?)?qkv){_TAIL}"),
}
"""Queries, keys and values have one shape, so that only names tell them apart."""


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts below a layer; paths are relative to the layer.

    ``block`` contains router and experts, and gives what all give together; empty where it is the layer
    itself. ``experts`` are a list of modules, or one whose weights have the expert as their first axis; the
    ``router`` gives each token a number for each of them.
    """

    block: str
    experts: str
    count: int
    router: str | None


Roles = dict[str, Any]
"""Fields of ``Adapter`` for one layer, where there is something."""


def projections(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Give what maps features to features, by path, without looking inside of one.

    These are ``nn.Linear``, Hugging Face's ``Conv1D``, quantised and LoRA-wrapped ones.
    """
    for name, child in module.named_children():
        path = f"{prefix}{name}"
        if output_features(child) is not None and input_features(child) is not None:
            yield path, child
        else:
            yield from projections(child, f"{path}.")


def layer_roles(layer: nn.Module, hidden: int | None) -> Roles:
    """Return what the modules of ``layer`` are; ``hidden`` is the width of the residual stream."""
    mixture = mixture_of(layer)
    inside = f"{mixture.block or mixture.experts}." if mixture else None
    linears = {
        path: module
        for path, module in projections(layer)
        if mixture is None or not (path.startswith(inside or "") or path == mixture.router)
    }
    roles, taken = _attention(layer, linears, hidden)
    if mixture is not None:
        roles["mixture"] = mixture
    if mixture is None or not mixture.block:
        roles |= _mlp({path: module for path, module in linears.items() if path not in taken}, hidden)
    return roles


def mixture_of(layer: nn.Module) -> Mixture | None:
    """Return the mixture of experts below ``layer``, with a router that has a row for each expert.

    Experts are several like modules with weights in a list, or weights with one more axis.
    """
    for path, module in layer.named_modules():
        count = _experts(module)
        if not path or not count:
            continue
        # What peft wraps has the name of its wrapper.
        path = path.partition(".base_layer")[0]
        block = path.rpartition(".")[0]
        holder = layer.get_submodule(block) if block else layer
        router = next(
            (
                name
                for name, child in holder.named_modules(prefix=block)
                if _rows(child) == count and not name.startswith(path)
            ),
            None,
        )
        if router is not None:
            return Mixture("" if contains(holder) else block, path, count, router)
    return None


def _experts(module: nn.Module) -> int:
    """Return how many experts ``module`` contains; 0 where it is no such container."""
    if contains(module):
        children = list(module.children())
        alike = len(children) > 1 and len({type(child) for child in children}) == 1
        return len(children) if alike and any(projections(children[0])) else 0
    return stacked_experts(module)


def stacked_experts(module: nn.Module) -> int:
    """Return the number of experts where each weight has the expert as its first axis, else 0."""
    stacked = [parameter.shape[0] for parameter in module.parameters(recurse=False) if parameter.ndim == 3]
    return stacked[0] if len(stacked) > 1 and len(set(stacked)) == 1 and stacked[0] > 1 else 0


def _rows(module: nn.Module) -> int | None:
    """Return how many outputs a router has: of a linear layer, or of a module with a matrix of its own."""
    weight = module._parameters.get("weight")
    if weight is not None and weight.ndim == 2 and output_features(module) is None:
        return int(weight.shape[0])
    return output_features(module)


def _attention(
    layer: nn.Module, linears: Mapping[str, nn.Module], hidden: int | None
) -> tuple[Roles, set[str]]:
    """Return the roles of the first attention, and the linear layers of any."""
    found: dict[str, dict[str, str]] = {}
    for path in linears:
        holder, _, name = path.rpartition(".")
        for role, pattern in _NAMES.items():
            if pattern.fullmatch(name.lower()):
                found.setdefault(holder, {})[role] = path
    roles: Roles = {}
    taken = set[str]()
    for holder, parts in found.items():
        taken |= {path for path in linears if holder and path.startswith(f"{holder}.")} | set(parts.values())
        fused = ("qkv",) if "qkv" in parts else ("q", "k", "v")
        if roles or not parts.keys() >= set(fused):
            continue
        roles = {role: parts[role] for role in fused}
        # Nobody calls a container.
        called = bool(holder) and not contains(layer.get_submodule(holder))
        if called:
            roles |= {"attention": holder, "probabilities": f"{holder}[1]"}
        # The output projection is below it, or next to it.
        context = next(
            (
                path
                for below in (holder, holder.rpartition(".")[0])
                for path, module in linears.items()
                if path not in parts.values() and (not below or path.startswith(f"{below}."))
                if hidden in (None, output_features(module))
            ),
            None,
        )
        if context is not None:
            # One whose output projection stands elsewhere does not give the attention's own output.
            inside = called and context.startswith(f"{holder}.")
            roles |= {"context": context, "attention": holder if inside else context}
            taken.add(context)
    return roles, taken


def contains(module: nn.Module) -> bool:
    return isinstance(module, (nn.ModuleList, nn.ModuleDict))


def _mlp(linears: Mapping[str, nn.Module], hidden: int | None) -> dict[str, Any]:
    """Return the paths of the MLP among ``linears``: those of one holder, or all of them together."""
    holders: dict[str, dict[str, nn.Module]] = {}
    for path, module in linears.items():
        holders.setdefault(path.rpartition(".")[0], {})[path] = module
    for group in (*holders.values(), dict(linears)):
        sizes = {path: (input_features(m) or 0, output_features(m) or 0) for path, m in group.items()}
        for down, (inner, outer) in reversed(sizes.items() if len(sizes) in (2, 3) else ()):
            ups = [path for path in sizes if path != down]
            widths = {sizes[up] for up in ups}
            if hidden not in (None, outer) or not widths <= {(outer, inner), (outer, 2 * inner)}:
                continue
            if len(ups) == 2:
                return {"gate": ups[0], "up": ups[1], "fc2": down}
            return {"fc1" if widths == {(outer, inner)} else "gate_up": ups[0], "fc2": down}
    return {}
