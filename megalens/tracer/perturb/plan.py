"""From a ``Perturb`` object to a plan that hooks can follow."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from ...protocol import (
    AddVector,
    BitFlip,
    Perturbation,
    ProtocolError,
    no_such,
    parse_layers,
    perturbation_from_setting,
)
from ...protocol.messages_generated import Perturb, PerturbSite, Phase
from ..points import ModelPoints
from ..vectors import load_vectors
from .key import SAME_TENSOR
from .refusals import refused_layers
from .sites import SITES

__all__ = ["PerturbPlan", "SitePlan", "perturb_plan"]

_PHASES: tuple[Phase, ...] = ("train", "eval", "generate")
_SEED = 0
_STEPS = 100


@dataclass(frozen=True, eq=False)
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
    vectors : torch.Tensor or None
        What is added in each of the model's layers, ``[layers, features]``, with its coefficient.
    """

    name: str
    kind: Perturbation
    layers: tuple[int, ...]
    phases: tuple[Phase, ...]
    vectors: Tensor | None = None


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


def perturb_plan(
    setting: Perturb, points: ModelPoints, folders: Sequence[Path] = (), phase: Phase = "train"
) -> PerturbPlan:
    """Return the plan that a ``Perturb`` object means. All of it can be done, or an error is raised and nothing has changed.

    In a pipeline a process knows its own layers only: of the others it believes that they are there, and the process that holds them checks.

    Parameters
    ----------
    setting : mapping
        A ``Perturb`` object that fits its schema.
    points : ModelPoints
        The model, with its sites.
    folders : sequence of Path
        Folders in which vector files may lie.
    phase : str
        Phase of sites that do not say their own.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, ``bad-vectors`` or ``unknown-layer``, with a field such as ``perturb.sites.weight.kind.params.coefficient``.
    """
    if "until" in setting:
        raise ProtocolError(
            "bad-parameter",
            "until is told, not asked for. Say how many training steps it is to last: steps.",
            field="perturb.until",
        )
    plans = [_site_plan(name, given, points, folders, phase) for name, given in setting["sites"].items()]
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


def _site_plan(
    name: str, given: PerturbSite, points: ModelPoints, folders: Sequence[Path], phase: Phase
) -> SitePlan:
    where = f"perturb.sites.{name}"
    if name not in SITES:
        raise no_such("site", name, SITES, where[:300])
    kind = perturbation_from_setting(given["kind"], f"{where}.kind")
    if name not in kind.sites:
        expected = " or ".join(kind.sites)
        raise ProtocolError(
            "bad-parameter",
            f"{kind.title} cannot be done at the site {name}, only at {expected}: it adds to what a layer gives at each position.",
            field=f"{where}.kind.name",
            expected=expected,
            got=name,
        )
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
    phases = tuple(each for each in _PHASES if each in given.get("phases", (phase,)))
    vectors = _vectors(kind, name, points, folders, where) if isinstance(kind, AddVector) else None
    return SitePlan(name, kind, layers, phases, vectors)


def _vectors(kind: AddVector, site: str, points: ModelPoints, folders: Sequence[Path], where: str) -> Tensor:
    flag = points.flags.get(SAME_TENSOR[site])
    vectors = load_vectors(
        kind.vectors,
        folders,
        layers=points.layers,
        features=(flag and flag.widths) or (),
        field=f"{where}.kind.params.vectors",
        several=False,
        unit=kind.normalise,
    )
    return vectors[:, 0] * kind.coefficient


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
