"""Dotted paths, such as ``attn.scores``, or ``attn[1]`` for a second value; sites of perturbations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import nn

from ..tracer import SitePoints

_NONE = {
    "weight": "This model names no linear modules whose weights could be perturbed.",
    "calculation": "This model names no module whose output is the MLP's.",
    "system": "This model names no layers.",
}

Modules = Mapping[int, Iterable[nn.Module | None]]


def sites_of(
    *, weight: Modules | None = None, calculation: Modules | None = None, system: Modules | None = None
) -> dict[str, SitePoints]:
    """Return ``ModelPoints.sites``. Fused or quantised weights may be in it: the tracer refuses them by name.

    All are by layer, counted from 0 over all stages: ``weight`` its linear modules, those of queries, keys
    and values, of the attention's output, and of the MLP; ``calculation`` the module whose output, the first
    of a tuple, is that of the MLP before it is added to the residual stream; ``system`` the layer itself.
    None is skipped, as is a module that is there twice.
    """
    sites: dict[str, SitePoints] = {}
    for name, layers in {"weight": weight, "calculation": calculation, "system": system}.items():
        found = {
            number: each
            for number, modules in (layers or {}).items()
            if (each := tuple(dict.fromkeys(module for module in modules if module is not None)))
        }
        sites[name] = SitePoints(found, None if found else _NONE[name])
    return sites


_PATH = re.compile(r"([^\s.:\[\]{}]+(?:\.[^\s.:\[\]{}]+)*)(?:\[(\d{1,3})\])?(:input)?")


def is_path(text: str, *, item: bool = False) -> bool:
    """Return whether ``text`` is a path; with ``item`` a number in brackets and ``:input`` may follow."""
    match = _PATH.fullmatch(text)
    return match is not None and (item or match[2] == match[3] is None)


def path_and_item(text: str) -> tuple[str, int]:
    """Return the path of a module and the index of a value in what it returns or takes, 0 by default."""
    path, _, item = text.removesuffix(":input").partition("[")
    return path, int(item.rstrip("]") or 0)


def find(module: nn.Module, path: str) -> nn.Module | None:
    """Return what is at ``path`` below ``module``, or None."""
    try:
        return module.get_submodule(path)
    except (AttributeError, TypeError):
        return None


def below(holder: nn.Module, path: str | None) -> nn.Module | None:
    """Return what is at ``path``; None where there is no path."""
    return None if path is None else holder.get_submodule(path)
