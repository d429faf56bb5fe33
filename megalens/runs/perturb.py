"""The arguments of ``run.perturb`` as a ``Perturb`` object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol import (
    Perturbation,
    layers_text,
    perturb_from_disturbance,
    perturbation_from_setting,
    some_of,
)
from ..protocol.disturbance import perturb_of
from ..protocol.messages_generated import Perturb, PerturbSite
from .arguments import bad_argument, whole
from .query import LayerChoice

__all__ = ["build_perturb"]

_PEERS = "_perturbation"


def build_perturb(
    sites: Mapping[str, Any],
    *,
    layers: LayerChoice = None,
    phases: str | Sequence[str] | None = None,
    seed: int | None = None,
    steps: int | None = None,
) -> Perturb | None:
    """Return the ``Perturb`` object, or None where a ``disturbance_configs`` dictionary has everything off.

    Raises
    ------
    ClientError
        ``bad-parameter``, naming the argument.
    ProtocolError
        ``bad-parameter``, naming a kind's parameter or a key of ``disturbance_configs``.
    """
    if not isinstance(sites, Mapping) or not sites:
        raise bad_argument("sites", "a dictionary such as {'system': Noise1(0.01)}", sites)
    seed = None if seed is None else whole(seed, "seed")
    steps = None if steps is None else whole(steps, "steps", 1)
    extras: dict[str, Any] = {}
    if layers is not None:
        extras["layers"] = layers_text(layers)
    if phases is not None:
        extras["phases"] = some_of(phases)
    if any(isinstance(name, str) and _PEERS in name for name in sites):
        peers = perturb_from_disturbance(sites)
        if peers is None:
            return None
        chosen = peers["sites"]
    else:
        chosen = {str(name): _site(str(name), given) for name, given in sites.items()}
    for site in chosen.values():
        site.update(extras)  # type: ignore[typeddict-item]
    return perturb_of(chosen, seed, steps)


def _site(name: str, given: Any) -> PerturbSite:
    field = f"sites.{name}"
    if isinstance(given, Perturbation):
        return {"kind": given.to_setting()}
    if isinstance(given, str):
        return {"kind": perturbation_from_setting({"name": given}, field).to_setting()}
    if not isinstance(given, Mapping):
        raise bad_argument(field, "a kind such as Noise1(0.01), its name, or a dict with kind in it", given)
    site: Any = {"kind": dict(given)} if "name" in given else dict(given)
    kind = site.get("kind")
    if isinstance(kind, Perturbation):
        site["kind"] = kind.to_setting()
    elif isinstance(kind, str):
        site["kind"] = perturbation_from_setting({"name": kind}, field).to_setting()
    elif isinstance(kind, Mapping):
        # Also what another version's training knows may be named: the hub checks that.
        site["kind"] = dict(kind)
    else:
        raise bad_argument(
            field, "a dict with kind in it, such as {'kind': Noise1(0.01), 'layers': '2-3'}", given
        )
    if "layers" in site:
        site["layers"] = layers_text(site["layers"])
    if "phases" in site:
        site["phases"] = some_of(site["phases"])
    unknown = sorted(set(site) - {"kind", "layers", "phases"})
    if unknown:
        raise bad_argument(field, "a dict of kind, layers and phases", given)
    return site  # type: ignore[no-any-return]
