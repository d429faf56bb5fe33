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
    "q": re.compile(rf"(to_?|w_?)?q(uery|ueries)?(_?(b|up))?{_TAIL}"),
    "k": re.compile(rf"(to_?|w_?)?k(ey|eys)?{_TAIL}"),
    "v": re.compile(rf"(to_?|w_?)?v(alue|alues)?{_TAIL}"),
    "kv": re.compile(rf"kv_?(b|up){_TAIL}"),
    "qkv": re.compile(rf"(c_attn|query_key_value|att_proj|([wc]_?|fused_?|linear_?)?qkv){_TAIL}"),
}
"""Queries, keys and values have one shape, so that only names tell them apart."""


@dataclass(frozen=True)
class Mixture:
    """A mixture of experts below a layer; paths are relative to the layer.

    Attributes
    ----------
    block : str
        What contains router and experts; its output is that of all of them together. Empty where it is the
        layer itself.
    experts : str
        The experts: a list of modules, or one module whose weights have the expert as their first axis.
    router : str or None
        What gives each token a number for each expert.
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
        if inside is None or not path.startswith(inside)
        if mixture is None or path != mixture.router
    }
    roles, taken = _attention(layer, linears, hidden)
    rest = {path: module for path, module in linears.items() if path not in taken}
    if mixture is not None:
        roles["mixture"] = mixture
    if mixture is None or not mixture.block:
        roles |= _mlp(rest, hidden)
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
                f"{block}.{name}" if block else name
                for name, child in holder.named_modules()
                if _rows(child) == count and not f"{block}.{name}".lstrip(".").startswith(path)
            ),
            None,
        )
        if router is not None:
            return Mixture("" if _contains(holder) else block, path, count, router)
    return None


def _experts(module: nn.Module) -> int:
    """Return how many experts ``module`` contains; 0 where it is no such container."""
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
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
        whole = "qkv" in parts or {"q", "k", "v"} <= set(parts) or {"q", "kv"} <= set(parts)
        if roles or not whole:
            continue
        context = _context(linears, holder, set(parts.values()), hidden)
        # Nobody calls a container.
        called = bool(holder) and not _contains(layer.get_submodule(holder))
        fused = ("qkv",) if "qkv" in parts else ("q", "k", "v") if "k" in parts else ("q", "kv")
        roles = {role: parts[role] for role in fused if role in parts}
        if called:
            roles |= {"attention": holder, "probabilities": f"{holder}[1]"}
        if context is not None:
            # One whose output projection stands elsewhere does not give the attention's own output.
            inside = called and context.startswith(f"{holder}.")
            roles |= {"context": context, "attention": holder if inside else context}
            taken.add(context)
    return roles, taken


def _context(
    linears: Mapping[str, nn.Module], holder: str, taken: set[str], hidden: int | None
) -> str | None:
    """Return the output projection of the attention in ``holder``: below it, or next to it."""
    for below in (holder, holder.rpartition(".")[0]):
        for path, module in linears.items():
            inside = path not in taken and (not below or path.startswith(f"{below}."))
            if inside and (hidden is None or output_features(module) == hidden):
                return path
    return None


def _contains(module: nn.Module) -> bool:
    return isinstance(module, (nn.ModuleList, nn.ModuleDict))


def _mlp(linears: Mapping[str, nn.Module], hidden: int | None) -> dict[str, Any]:
    """Return the paths of the MLP among ``linears``: those of one holder, or all of them together."""
    holders: dict[str, dict[str, nn.Module]] = {}
    for path, module in linears.items():
        holders.setdefault(path.rpartition(".")[0], {})[path] = module
    for group in (*holders.values(), dict(linears)):
        found = _fits_mlp(group, hidden)
        if found:
            return found
    return {}


def _fits_mlp(group: Mapping[str, nn.Module], hidden: int | None) -> dict[str, Any]:
    if len(group) not in (2, 3):
        return {}
    paths = list(group)
    sizes = {path: (input_features(module), output_features(module)) for path, module in group.items()}
    downs = [
        path
        for path in paths
        if all(
            sizes[path][::-1] in (sizes[other], (sizes[other][0], (sizes[other][1] or 0) // 2))
            for other in paths
            if other != path
        )
        and hidden in (None, sizes[path][1])
    ]
    if not downs:
        return {}
    down = downs[-1]
    ups = [path for path in paths if path != down]
    if len(ups) == 1:
        twice = sizes[ups[0]][1] == 2 * (sizes[down][0] or 0)
        return {"gate_up" if twice else "fc1": ups[0], "fc2": down}
    return {"gate": ups[0], "up": ups[1], "fc2": down}
