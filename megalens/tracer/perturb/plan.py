"""From a ``Perturb`` object to a plan that hooks can follow."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch

from ...protocol import BitFlip, Perturbation, ProtocolError, no_such, parse_layers, perturbation_from_setting
from ...protocol.messages_generated import Perturb, PerturbSite, Phase
from ..points import ModelPoints
from .refusals import refused_layers
from .sites import SITES

__all__ = ["PerturbPlan", "SitePlan", "perturb_plan"]

_PHASES: tuple[Phase, ...] = ("train", "eval", "generate")
_SEED = 0
_STEPS = 100


@dataclass(frozen=True)
class SitePlan:
    """What is done at one site.

    Attributes
    ----------
    name : str
        ``weight``, ``calculation`` or ``system``.
    kind : Perturbation
        What is done to each tensor.
    layers : tuple of int
        Layers of this process that it is done in; none when all that were asked for are in other processes.
    phases : tuple of str
        When.
    """

    name: str
    kind: Perturbation
    layers: tuple[int, ...]
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class PerturbPlan:
    """A checked perturbation. Never changed."""

    sites: tuple[SitePlan, ...]
    seed: int
    steps: int
    _setting: Perturb

    @property
    def setting(self) -> Perturb:
        """The complete ``Perturb`` object, with every default written out; a copy each time."""
        return copy.deepcopy(self._setting)


def perturb_plan(setting: Perturb, points: ModelPoints) -> PerturbPlan:
    """Return the plan that a ``Perturb`` object means. All of it can be done, or an error is raised and nothing has changed.

    In a pipeline a process knows its own layers only: of the others it believes that they are there, and the process that holds them checks.

    Parameters
    ----------
    setting : mapping
        A ``Perturb`` object that fits its schema.
    points : ModelPoints
        The model, with its sites.

    Raises
    ------
    ProtocolError
        ``bad-parameter`` or ``unknown-layer``, with a field such as ``perturb.sites.weight.kind.params.coefficient``.
    """
    if "until" in setting:
        raise ProtocolError(
            "bad-parameter",
            "until is told, not asked for. Say how many training steps it is to last: steps.",
            field="perturb.until",
        )
    plans = [_site_plan(name, given, points) for name, given in setting["sites"].items()]
    seed, steps = setting.get("seed", _SEED), setting.get("steps", _STEPS)
    complete: Perturb = {
        "sites": {
            plan.name: {
                "kind": plan.kind.to_setting(),
                "layers": setting["sites"][plan.name].get("layers", "all"),
                "phases": list(plan.phases),
            }
            for plan in plans
        },
        "seed": seed,
        "steps": steps,
    }
    return PerturbPlan(tuple(plans), seed, steps, complete)


def _site_plan(name: str, given: PerturbSite, points: ModelPoints) -> SitePlan:
    where = f"perturb.sites.{name}"
    if name not in SITES:
        raise no_such("site", name, SITES, where[:300])
    kind = perturbation_from_setting(given["kind"], f"{where}.kind")
    here = points.sites.get(name)
    own = set() if here is None else set(here.layers)
    refused = {} if here is None else refused_layers(points, name)
    elsewhere = set(range(points.layers)) - own if points.place.pp_size > 1 else set()
    if not own - set(refused) and not elsewhere:
        reason = next(iter(refused.values()), None) or (None if here is None else here.reason)
        raise ProtocolError(
            "bad-parameter",
            f"{SITES[name]} cannot be perturbed in this model. {reason or ''}".strip(),
            field=where,
        )
    text = given.get("layers", "all")
    asked = parse_layers(text, own | elsewhere, f"{where}.layers")
    if text != "all":
        for layer in asked:
            if layer in refused:
                raise ProtocolError("bad-parameter", refused[layer], field=f"{where}.layers", got=str(layer))
    layers = tuple(layer for layer in asked if layer in own and layer not in refused)
    if isinstance(kind, BitFlip):
        _check_bit(kind, name, layers, points, f"{where}.kind.params.bit")
    phases = tuple(phase for phase in _PHASES if phase in given.get("phases", ("train",)))
    return SitePlan(name, kind, layers, phases)


def _check_bit(kind: BitFlip, site: str, layers: tuple[int, ...], points: ModelPoints, field: str) -> None:
    if isinstance(kind.bit, str):
        return
    if site == "weight":
        modules = [module for layer in layers for module in points.sites[site].layers[layer]]
        types = {weight.dtype for module in modules if (weight := module._parameters["weight"]) is not None}
    else:
        # What a module gives may be narrower than its weights, under autocast, and is never wider.
        named = getattr(torch, str(points.model.get("dtype")), None)
        types = {named} if isinstance(named, torch.dtype) else set()
    for dtype in types:
        if kind.bit >= 8 * dtype.itemsize:
            raise ProtocolError(
                "bad-parameter",
                f"{dtype} has the bits 0 to {8 * dtype.itemsize - 1}, and no {kind.bit}.",
                field=field,
                expected=f"'any' or a whole number from 0 to {8 * dtype.itemsize - 1}",
                got=str(kind.bit),
            )
