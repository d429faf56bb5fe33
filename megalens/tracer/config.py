"""From settings as data to a plan that the hooks can follow: the tracer's half of checking a ``configure``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..protocol import (
    Compressor,
    Empty,
    NoOp,
    Projection,
    ProtocolError,
    Tile,
    check_message,
    compressor_from_setting,
    parse_layers,
)
from .compressors import Kernel, make_kernel
from .flags import FLAGS
from .points import ModelPoints
from .vectors import load_vectors

__all__ = ["FlagPlan", "Plan", "change_plan", "settings_from"]

PHASES = ("train", "eval", "generate")


@dataclass(eq=False)
class FlagPlan:
    """One flag in force. ``active`` is set at the start of each step and phase, everything else stays.

    Attributes
    ----------
    setting : dict
        The complete ``FlagSetting``, with every default written out.
    text : str
        Canonical text of the compressor.
    layers : tuple of int
        Layers to trace.
    """

    name: str
    setting: dict[str, Any]
    text: str
    layers: tuple[int, ...]
    every: int
    phases: tuple[str, ...]
    samples: int | None
    kernel: Kernel
    active: bool = False

    def update(self, step: int, phase: str) -> bool:
        """Decide whether this flag is traced now. Every n-th counts training steps; other phases are traced whenever they come."""
        self.active = phase in self.phases and (phase != "train" or step % self.every == 0)
        return self.active


@dataclass(frozen=True)
class Plan:
    """Everything that is traced. Never changed: a patch makes another plan."""

    flags: Mapping[str, FlagPlan] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """The ``Config`` object that messages carry."""
        return {"flags": {name: flag.setting for name, flag in self.flags.items()}}


def settings_from(
    flags: Mapping[str, Any] | Iterable[str] | None, defaults: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a ``ConfigPatch`` from what people write.

    Parameters
    ----------
    flags : mapping, iterable of str, or None
        Flag names with a compressor, a ``FlagSetting`` (whose compressor may be a :class:`Compressor`), or None for off; or just names, which take
        ``Tile(96)`` (``NoOp`` for token ids).
    defaults : mapping, optional
        ``layers``, ``every``, ``phases`` and ``samples`` where a flag does not say its own.

    Raises
    ------
    ProtocolError
        ``bad-message`` when it is none of these.
    """
    if flags is None:
        return {"flags": {}}
    if isinstance(flags, str):
        flags = [flags]
    if not isinstance(flags, Mapping):
        flags = {name: NoOp() if name in FLAGS and FLAGS[name].exact else Tile() for name in flags}
    elif set(flags) == {"flags"} and isinstance(flags["flags"], Mapping):
        flags = flags["flags"]
    settings: dict[str, Any] = {}
    for name, given in flags.items():
        if given is None:
            settings[name] = None
            continue
        setting = dict(defaults or {})
        if isinstance(given, Mapping):
            setting.update(given)
        else:
            setting["compressor"] = given
        compressor = setting.get("compressor")
        if isinstance(compressor, Compressor):
            setting["compressor"] = compressor.to_setting()
        if "phases" in setting:
            phases = setting["phases"]
            setting["phases"] = [phases] if isinstance(phases, str) else list(phases)
        if "layers" in setting:
            setting["layers"] = _layers_text(setting["layers"])
        settings[name] = setting
    patch = {"flags": settings}
    check_message({"type": "configure", "id": "local", "patch": patch})
    return patch


def _layers_text(layers: Any) -> Any:
    if isinstance(layers, int) and not isinstance(layers, bool):
        return str(layers)
    if isinstance(layers, Sequence) and not isinstance(layers, str):
        return ",".join(str(layer) for layer in layers)
    return layers


def change_plan(
    plan: Plan,
    patch: Mapping[str, Any],
    points: ModelPoints,
    folders: Sequence[Path] = (),
    features: Callable[[str], Sequence[int | None]] | None = None,
) -> Plan:
    """Return the plan after a patch. All of the patch is in it, or an error is raised and nothing has changed.

    Parameters
    ----------
    plan : Plan
        What is in force.
    patch : mapping
        A ``ConfigPatch`` that fits its schema.
    points : ModelPoints
        What the model has.
    folders : sequence of Path
        Folders in which vector files may lie.
    features : callable, optional
        Gives the sizes of a flag's parts; what the adapter knows when absent.

    Raises
    ------
    ProtocolError
        With the dotted field at fault.
    """
    flags = dict(plan.flags)
    for name, setting in patch["flags"].items():
        where = f"flags.{name}"
        if name not in FLAGS:
            known = ", ".join(FLAGS)
            raise ProtocolError(
                "unknown-flag",
                f"There is no flag {name!r:.100}. Choose one of {known}.",
                field=where,
                expected=known,
                got=str(name)[:200],
            )
        if setting is None:
            flags.pop(name, None)
        else:
            flags[name] = _flag_plan(name, setting, points, folders, features, where)
    return Plan(flags)


def _flag_plan(
    name: str,
    setting: Mapping[str, Any],
    points: ModelPoints,
    folders: Sequence[Path],
    features: Callable[[str], Sequence[int | None]] | None,
    where: str,
) -> FlagPlan:
    here = points.flags[name]
    if not here.layers:
        raise ProtocolError(
            "unavailable-flag",
            f"{FLAGS[name].title} cannot be traced in this model. {here.reason or ''}".strip(),
            field=where,
        )
    layers = tuple(parse_layers(setting.get("layers", "all"), here.layers, f"{where}.layers"))
    compressor = compressor_from_setting(setting["compressor"], f"{where}.compressor")
    if FLAGS[name].exact and not isinstance(compressor, (NoOp, Empty)):
        raise ProtocolError(
            "unknown-compressor",
            f"{name} holds token ids, of which no average means anything. Choose NoOp or Empty.",
            field=f"{where}.compressor.name",
            expected="NoOp, Empty",
            got=type(compressor).__name__,
        )
    vectors = None
    if isinstance(compressor, Projection):
        first = next(iter(here.layers.values()))
        sizes = features(name) if features else [size for source in first for size in source.features]
        vectors = load_vectors(
            compressor.vectors,
            folders,
            layers=points.layers,
            features=sizes,
            field=f"{where}.compressor.params.vectors",
        )
    every = setting.get("every", 1)
    phases = tuple(phase for phase in PHASES if phase in setting.get("phases", ("train",)))
    samples = setting.get("samples", 1)
    complete = {
        "layers": setting.get("layers", "all"),
        "every": every,
        "phases": list(phases),
        "samples": samples,
        "compressor": compressor.to_setting(),
    }
    kernel = make_kernel(compressor, vectors, f"{where}.compressor")
    return FlagPlan(name, complete, str(compressor), layers, every, phases, samples, kernel)
