"""From settings as data to a plan that the hooks follow: the tracer's half of checking a ``configure``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...protocol import (
    EMBEDDING,
    PASSES,
    PHASES,
    Empty,
    NoOp,
    Peaks,
    Projection,
    ProtocolError,
    check_message,
    compressor_from_setting,
    layers_words,
    named_flags,
    no_such,
    parse_layers,
    read_flags,
    read_setting,
)
from ...protocol.messages_generated import FlagSetting, Perturb, Phase
from ..points import FLAGS, NO_EXPERTS, FlagPoints, ModelPoints
from ..vectors import load_vectors
from .compression_error import CompressionError
from .compressors import make_kernel, suited_compressor
from .plan import (
    CostReduction,
    FlagPlan,
    ModePlan,
    TracingPlan,
    apply_cost_reduction,
)

if TYPE_CHECKING:
    from ..perturb import PerturbPlan

_MOST_LAYERS = 10_000
"""Layers that can be asked for before it is known how many there are."""
_OTHERS = ("perturb", "mode", "budget", "instruments")


def settings_from(
    flags: Mapping[str, Any] | Iterable[str] | None,
    common: Mapping[str, Any] | None = None,
    points: Mapping[str, FlagPoints] | None = None,
    now: Mapping[str, FlagSetting] | None = None,
) -> dict[str, Any]:
    """Return a ``ConfigPatch`` from what people write.

    Parameters
    ----------
    flags : mapping, iterable of str, or None
        As for :func:`read_flags`; just names are switched on. A complete patch, ``{"flags": …, "perturb": …,
        "mode": …, "budget": …, "instruments": …}``, is taken too.
    common : mapping, optional
        ``layers``, ``every`` and so on where a flag does not say its own.
    now : mapping, optional
        The settings in force.

    Raises
    ------
    ProtocolError
        ``bad-parameter`` in the words of the call, ``bad-message`` for another part of a patch.
    """
    if flags is None:
        return {"flags": {}}
    others: dict[str, Any] = {}
    if (
        isinstance(flags, Mapping)
        and "flags" in flags
        and set(flags) <= {"flags", *_OTHERS}
        and isinstance(flags["flags"], Mapping)
    ):
        others = {name: value for name, value in flags.items() if name != "flags"}
        flags = flags["flags"]
    settings = read_flags(
        named_flags(flags, "flags=…"),
        now=now or {},
        suited=lambda name: suited_compressor(name, (points or {}).get(name)).to_setting(),
        common=read_setting(common or {}),
    )
    patch = {"flags": settings, **others}
    check_message({"type": "configure", "id": "local", "patch": patch})
    return patch


def change_plan(
    plan: TracingPlan,
    patch: Mapping[str, Any],
    points: ModelPoints,
    folders: Sequence[Path] = (),
    controls: Sequence[str] = (),
) -> TracingPlan:
    """Return the plan after a patch: with all of it, or an error with the dotted field is raised.

    Parameters
    ----------
    patch : mapping
        A ``ConfigPatch`` that fits its schema.
    folders : sequence of Path
        Folders in which vector files may lie.
    controls : sequence of str
        What the training script allows beyond looking.
    """
    asked = dict(plan.asked)
    make = partial(_flag_plan, points=points, folders=folders, phase=plan.phase)
    for name, setting in patch["flags"].items():
        where = f"flags.{name}"
        if name not in FLAGS:
            raise no_such("flag", name, FLAGS, where, "unknown-flag")
        if setting is None:
            asked.pop(name, None)
        else:
            asked[name] = make(name, setting, where=where)
    # Whoever asks for something else is given all of it, until it is measured anew.
    cost_reduction = (
        CostReduction(**patch["cost_reduction"]) if "cost_reduction" in patch else plan.cost_reduction
    )
    if patch["flags"] or ("budget" in patch and patch["budget"] != plan.budget):
        cost_reduction = CostReduction(**patch.get("cost_reduction", {}))
    flags = _reduced(asked, cost_reduction, make)
    plan = replace(plan, flags=flags, asked=asked, cost_reduction=cost_reduction)
    if "perturb" in patch:
        perturb = _perturb(patch["perturb"], points, controls, folders, plan.phase)
        plan = replace(plan, perturb=perturb, perturb_until=None)
    if "mode" in patch:
        plan = replace(plan, mode=_mode(plan.mode, patch["mode"], controls))
    if "budget" in patch:
        plan = replace(plan, budget=patch["budget"])
    return plan


def follow_points(
    plan: TracingPlan, points: ModelPoints, folders: Sequence[Path], refused: Callable[[str], None]
) -> TracingPlan:
    """Return the plan for points that have changed; what they do not allow any more is left out and said."""
    make = partial(_flag_plan, points=points, folders=folders, phase=plan.phase)
    asked: dict[str, FlagPlan] = {}
    for name, flag in plan.asked.items():
        here = points.traceable(name) if name in points.flags else NO_EXPERTS
        try:
            made = make(name, flag.setting, where=f"flags.{name}")
        except ProtocolError as error:
            refused(f"{name} is not traced. {error.message}")
        else:
            # One that stays counts its steps on.
            asked[name] = flag if made.layers == flag.layers else made
            if not made.layers and (why := here.reason):
                # Until a pass with gradients shows more.
                refused(f"{name} is not traced. {_unavailable(name, why)}")
                continue
            wanted = set(flag.layers)
            if flag.setting.get("layers") == "all":
                wanted |= here.reasons.keys()
            for reason, layers in _by_reason(here, wanted - set(made.layers)).items():
                refused(f"{FLAGS[name].title}{layers_words(layers)}: not traced. {reason}")
    return replace(plan, flags=_reduced(asked, plan.cost_reduction, make), asked=asked)


def _unavailable(name: str, reason: str | None) -> str:
    return f"{FLAGS[name].title} cannot be traced in this model. {reason or ''}".strip()


def _by_reason(points: FlagPoints, layers: Iterable[int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for layer in sorted(layers):
        found.setdefault(points.reasons.get(layer) or points.reason or "", []).append(layer)
    return found


def _reduced(
    asked: Mapping[str, FlagPlan], cost_reduction: CostReduction, make: Callable[..., FlagPlan]
) -> dict[str, FlagPlan]:
    """Return what is left of each flag under a cost reduction."""
    less = apply_cost_reduction({name: flag.setting for name, flag in asked.items()}, cost_reduction)
    return {
        name: flag if less[name] == flag.setting else make(name, less[name], where=f"flags.{name}")
        for name, flag in asked.items()
    }


def _perturb(
    setting: Perturb | None,
    points: ModelPoints,
    controls: Sequence[str],
    folders: Sequence[Path],
    phase: Phase,
) -> PerturbPlan | None:
    if setting is None:
        return None
    _allow("perturb", "perturb", controls)
    from ..perturb import perturb_plan

    return perturb_plan(setting, points, folders, phase)


def _mode(mode: ModePlan, setting: Mapping[str, Any], controls: Sequence[str]) -> ModePlan:
    if setting.get("paused") or "steps" in setting:
        _allow("pause", "mode.paused", controls)
    if setting.get("while_watched"):
        _allow("watched", "mode.while_watched", controls)
    paused = bool(setting.get("paused", mode.paused)) or "steps" in setting
    return ModePlan(paused, bool(setting.get("while_watched", mode.while_watched)), setting.get("steps"))


def _allow(control: str, where: str, controls: Sequence[str]) -> None:
    if control not in controls:
        raise ProtocolError(
            "refused",
            f"The training script does not allow this. It would with megalens.trace(…, allow=[{control!r}]).",
            field=where,
            expected=f"allow=[{control!r}]",
            got=f"allow={list(controls)!r}",
        )


def _flag_plan(
    name: str,
    setting: Mapping[str, Any],
    *,
    points: ModelPoints,
    folders: Sequence[Path],
    where: str,
    phase: Phase,
) -> FlagPlan:
    here = points.traceable(name) if name in points.flags else NO_EXPERTS
    elsewhere = points.place.pp_size > 1 and here.reason is None
    # The first forward pass decides.
    unseen = points.watch is not None and points.untraceable is None and not here.layers
    if not here.layers and not elsewhere and not unseen:
        raise ProtocolError(
            "unavailable-flag",
            _unavailable(name, here.reason),
            field=where,
        )
    # Of a pipeline every stage checks the numbers, and traces those of its own layers.
    everywhere = (EMBEDDING,) if FLAGS[name].exact else range(points.layers)
    existing = everywhere if elsewhere else range(_MOST_LAYERS) if unseen else here.layers
    named = parse_layers(setting.get("layers", "all"), existing, f"{where}.layers")
    replicas = setting.get("replicas", "first")
    traced = replicas == "all" or points.place.dp == 0
    layers = tuple(layer for layer in named if layer in here.layers and traced)
    compressor = compressor_from_setting(setting["compressor"], f"{where}.compressor")
    if FLAGS[name].exact and not isinstance(compressor, (NoOp, Empty)):
        raise ProtocolError(
            "unknown-compressor",
            f"{name} holds token ids, of which no average means anything. Choose NoOp or Empty.",
            field=f"{where}.compressor.name",
            expected="NoOp, Empty",
            got=type(compressor).__name__,
        )
    if isinstance(compressor, Peaks) and not FLAGS[name].attends:
        raise ProtocolError(
            "unknown-compressor",
            f"Peaks keeps blocks of queries and keys, which {name} has not. Choose Tile, with the "
            "reduction max for maxima.",
            field=f"{where}.compressor.name",
            expected="Tile, NoOp, Empty, Projection",
            got="Peaks",
        )
    vectors = None
    passes = tuple(side for side in PASSES if side in setting.get("passes", ("forward",)))
    if not FLAGS[name].gradient and "backward" in passes:
        holds = (
            "holds token ids, which have" if FLAGS[name].exact else "is computed beside the model, and has"
        )
        raise ProtocolError(
            "bad-parameter",
            f"{name} {holds} no gradient. Trace its forward pass only.",
            field=f"{where}.passes",
            expected="forward",
            got="backward",
        )
    if isinstance(compressor, Projection):
        first = next(iter(here.layers.values()), ())
        vectors = load_vectors(
            compressor.vectors,
            folders,
            layers=points.layers,
            features=[size for source in first for size in source.features],
            field=f"{where}.compressor.params.vectors",
        )
    every = setting.get("every", 1)
    phases = tuple(each for each in PHASES if each in setting.get("phases", (phase,)))
    # Each sample of a model that writes text is a text of its own.
    samples = setting.get("samples", 1 if phase == "train" else None)
    complete: FlagSetting = {
        "layers": setting.get("layers", "all"),
        "every": every,
        "phases": list(phases),
        "samples": samples,
        "compressor": compressor.to_setting(),
    }
    # Said only where they differ from what is usual, as before there was a choice.
    if passes != ("forward",):
        complete["passes"] = list(passes)
    if replicas != "first":
        complete["replicas"] = replicas
    return FlagPlan(
        name,
        complete,
        str(compressor),
        layers,
        every,
        phases,
        samples,
        make_kernel(compressor, vectors, f"{where}.compressor"),
        compressor,
        CompressionError(compressor, vectors),
        vectors,
        forward="forward" in passes,
        backward="backward" in passes,
    )
