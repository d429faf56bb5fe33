"""From a ``Perturb`` object to a plan that hooks follow: which modules, and who draws the same numbers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...protocol import (
    PHASES,
    AddVector,
    BitFlip,
    Perturbation,
    ProtocolError,
    no_such,
    parse_layers,
    perturbation_from_setting,
    perturbation_infos,
)
from ...protocol.messages_generated import Perturb, PerturbSite, Phase, SiteInfo
from ..coordinates import RankCoordinates
from ..graph_probes import changes_of, compiled_in
from ..own_hooks import hooks_of
from ..points import ModelPoints, Source
from ..vectors import load_vectors
from .arithmetic import FLOATS, is_sharded

_SEED = 0
_STEPS = 100

SITES = {
    "weight": "Weights",
    "calculation": "MLP output",
    "system": "Between layers",
}
"""Sites by name, with their titles for people."""

SAME_TENSOR = {"calculation": "MLP2_mat_mul", "system": "HiddenStates"}
"""By site the flag that shows what is perturbed there."""


def replica_of_output(coords: RankCoordinates) -> tuple[object, ...]:
    """Return the key of processes with other samples or parts of a sequence: both count as replicas."""
    return ("data", coords.dp)


def piece_of_output(points: ModelPoints, site: str, layer: int) -> Callable[[Tensor], tuple[object, ...]]:
    """Return a function that gives the key of this process's piece of a site's tensor.

    The trace point of the same tensor knows whether it is cut, as under sequence parallelism.
    """
    coords = points.place
    flag = points.flags.get(SAME_TENSOR[site])
    sources = flag.layers.get(layer, ()) if flag is not None else ()
    if coords.tp_size == 1 or not sources:
        return lambda tensor: ()
    source: Source = sources[0]

    def piece(tensor: Tensor) -> tuple[object, ...]:
        shards: Any = source.shards
        if callable(shards):
            shards = shards(tensor.detach().transpose(0, 1) if source.sequence_first else tensor.detach())
        return () if shards == "none" else ("piece", coords.tp)

    return piece


def replica_of_weight(weight: Any, coords: RankCoordinates) -> tuple[object, ...]:
    """Return the key of this process's piece of a weight, by the marks of Megatron-Core.

    Data-parallel replicas have the same weight and must perturb it alike. (A DTensor knows how it is cut.)
    """
    cut: tuple[object, ...] = ()
    if coords.tp_size > 1 and getattr(weight, "tensor_model_parallel", False):
        cut += ("piece", coords.tp)
    if coords.ep_size > 1 and getattr(weight, "allreduce", True) is False:
        # Expert-parallel groups are made of neighbouring data-parallel replicas.
        cut += ("experts", coords.dp % coords.ep_size)
    return cut


def owner_of_weight(points: ModelPoints) -> Callable[[nn.Module], tuple[int, int] | None]:
    """Return a function that gives layer and number of the first module with the same weight.

    What is stored once is perturbed alike wherever it is used.
    """
    owners: dict[int, tuple[int, int]] = {}
    for layer in sorted(points.sites["weight"].layers):
        for number, module in enumerate(points.sites["weight"].layers[layer]):
            owners.setdefault(id(module._parameters.get("weight")), (layer, number))
    return lambda module: owners.get(id(module._parameters.get("weight")))


def refused_layers(points: ModelPoints, site: str) -> dict[int, str]:
    """Return the layers of a site that cannot be perturbed, each with a reason that names the module."""
    names = {module: name for root in points.roots for name, module in root.named_modules()}
    compiled = {inner for module in compiled_in(points.roots) for inner in module.modules()}
    # A function that calls the model is compiled, or so it may be.
    probed = any(hooks_of.get(root) is not None for root in points.roots)
    flat = set(_below(points, _is_flat)) if site == "weight" else set()
    refused: dict[int, str] = {}
    for layer, modules in points.sites[site].layers.items():
        for module in modules:
            reason = None
            if site == "weight" and (probed or module in compiled):
                reason = (
                    "is compiled, and compiled code reads weights past any hook. Perturb the model as it "
                    "is before torch.compile, or what its modules give"
                )
            elif isinstance(module, torch.jit.ScriptModule) or (
                module in compiled and changes_of(module) is None
            ):
                reason = (
                    "is compiled, and compiled code passes by the hooks. Perturb the model as it is before "
                    "torch.compile"
                )
            elif module in flat:
                reason = (
                    "is inside of FullyShardedDataParallel, which keeps weights in flat parameters. Use "
                    "fully_shard"
                )
            elif site == "weight":
                reason = _weight_refusal(module)
            if reason is not None:
                name = names.get(module) or type(module).__name__
                refused[layer] = f"Layer {layer}: {name} {reason}."
                break
    return refused


def _weight_refusal(module: nn.Module) -> str | None:
    weight = module._parameters.get("weight")
    home = type(module).__module__
    if home.startswith("transformer_engine"):
        return "is a layer of Transformer Engine, which reads its weight past any hook"
    if getattr(module, "gradient_accumulation_fusion", False):
        return (
            "accumulates its weight's gradient inside of its kernel (gradient_accumulation_fusion), past "
            "autograd"
        )
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return "is never called: nn.MultiheadAttention reads its weight"
    if weight is None:
        return (
            "has no parameter 'weight' of its own, such as one that is quantised, parametrised or inside "
            "of an adapter"
        )
    if weight.dtype not in FLOATS:
        return f"has a weight of {weight.dtype}, which cannot be perturbed"
    if type(weight) not in (nn.Parameter, torch.Tensor) and not is_sharded(weight):
        return f"has a weight that is a {type(weight).__name__}, which is not understood here"
    if weight.device.type == "meta":
        return "has a weight that is not loaded"
    return None


def _below(points: ModelPoints, test: Callable[[nn.Module], bool]) -> Iterator[nn.Module]:
    for root in points.roots:
        for module in root.modules():
            if test(module):
                yield from module.modules()


def _is_flat(module: nn.Module) -> bool:
    kind = type(module)
    return kind.__name__ == "FullyShardedDataParallel" and kind.__module__.startswith("torch.distributed")


def site_infos(points: ModelPoints) -> list[SiteInfo]:
    """Return the ``SiteInfo`` list of ``announce``: every site with its layers here, or with a reason."""
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


@dataclass(frozen=True, eq=False)
class SitePlan:
    """What is done at one site (``weight``, ``calculation`` or ``system``).

    Attributes
    ----------
    layers : tuple of int
        Layers of this process that it is done in; none when all that were asked for are in other processes.
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
    """Return the plan that a ``Perturb`` object means: all of it can be done, or an error is raised.

    In a pipeline a process knows its own layers only; those of others are checked there.

    Parameters
    ----------
    setting : mapping
        A ``Perturb`` object that fits its schema.
    folders : sequence of Path
        Folders in which vector files may lie.
    phase : str
        Phase of sites that do not say their own.

    Raises
    ------
    ProtocolError
        ``bad-parameter``, ``bad-vectors`` or ``unknown-layer``, with a field such as
        ``perturb.sites.weight.kind.params.coefficient``.
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
            f"{kind.title} cannot be done at the site {name}, only at {expected}: it adds to what a layer "
            "gives at each position.",
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
    phases = tuple(each for each in PHASES if each in given.get("phases", (phase,)))
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
