"""Where perturbations can be done, as viewers are told."""

from __future__ import annotations

from ...protocol import perturbation_infos
from ...protocol.messages_generated import SiteInfo
from ..points import ModelPoints
from .refusals import refused_layers

__all__ = ["SITES", "site_infos"]

SITES = {
    "weight": "Weights",
    "calculation": "MLP output",
    "system": "Between layers",
}
"""Sites by name, with what people are told."""


def site_infos(points: ModelPoints) -> list[SiteInfo]:
    """Return the ``SiteInfo`` list of ``announce``: every site, with the layers of this process where it is available, or with the reason why it is not."""
    infos: list[SiteInfo] = []
    for name, title in SITES.items():
        here = points.sites.get(name)
        refused = refused_layers(points, name) if here is not None else {}
        layers = sorted(set(here.layers) - set(refused)) if here is not None else []
        info: SiteInfo = {
            "name": name,
            "title": title,
            "layers": layers,
            "kinds": perturbation_infos(name),
        }
        if not layers:
            reason = next(iter(refused.values()), None) or (here.reason if here is not None else None)
            info["reason"] = (reason or "This process holds no such place.")[:500]
        infos.append(info)
    return infos
