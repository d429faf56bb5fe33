"""Where perturbations can be done, in the form that the tracer takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import nn

from ..tracer import SitePoints

__all__ = ["sites_of"]

_NONE = {
    "weight": "This model names no linear modules whose weights could be perturbed.",
    "calculation": "This model names no module whose output is the MLP's.",
    "system": "This model names no layers.",
}

Modules = Mapping[int, Iterable[nn.Module | None]]


def sites_of(
    *,
    weight: Modules | None = None,
    calculation: Modules | None = None,
    system: Modules | None = None,
) -> dict[str, SitePoints]:
    """Return ``ModelPoints.sites``. What cannot be perturbed as it is (a fused or quantised weight) need not
    be left out: the tracer refuses it by name.

    Parameters
    ----------
    weight : mapping
        By layer, counted from 0 over all stages: its linear modules, those of queries, keys and values, of
        the attention's output, and of the MLP. None among them is skipped, as is a module that stands there
        twice.
    calculation : mapping
        By layer: the module whose output, the first of a tuple, is that of the MLP before it is added to the
        residual stream.
    system : mapping
        By layer: the layer itself.
    """
    given = {"weight": weight or {}, "calculation": calculation or {}, "system": system or {}}
    sites: dict[str, SitePoints] = {}
    for name, layers in given.items():
        found = {
            number: tuple(dict.fromkeys(module for module in modules if module is not None))
            for number, modules in layers.items()
        }
        found = {number: modules for number, modules in found.items() if modules}
        sites[name] = SitePoints(found, None if found else _NONE[name])
    return sites
