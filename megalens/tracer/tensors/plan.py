"""What is in force, as the hooks follow it, and what the budget takes from it. Plans never change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from ...protocol import Compressor
from ...protocol.messages_generated import Config, Control, FlagSetting, Mode, Phase
from ..budget.budget import Ladder
from ..points import FLAGS
from .compression_error import CompressionError
from .compressors import Kernel

if TYPE_CHECKING:
    from ..perturb import PerturbPlan

CONTROLS: tuple[Control, ...] = ("pause", "watched", "perturb", "generate")
"""What a training script can allow viewers to do beyond looking."""

_FEWEST_TILES = 8
_PARTS = {"Tile": ("tiles", 96), "Peaks": ("cells", 256)}
"""By compressor the parameter that says how many parts there are at most, and its default."""


@dataclass(frozen=True)
class CostReduction:
    """What is given up. The default gives up nothing.

    Attributes
    ----------
    every_factor : int
        Each flag's ``every`` is multiplied by it.
    samples_limit : int or None
        At most this many samples of a micro-batch.
    tiles_divisor : int
        A :class:`Tile`'s number of tiles is divided by it, down to 8, and so is a :class:`Peaks`' number of
        cells.
    whole_to_tiles : int or None
        Whole tensors (``NoOp``) become this many tiles; token ids stay.
    forward_only : bool
        Gradients are left out where the forward pass is traced too.
    """

    every_factor: int = 1
    samples_limit: int | None = None
    tiles_divisor: int = 1
    whole_to_tiles: int | None = None
    forward_only: bool = False

    def sentences(self) -> list[str]:
        """Return what was given up, in words, in the order in which it is given up."""
        sentences = []
        if self.every_factor > 1:
            sentences.append(f"Only every {_ordinal(self.every_factor)} of the chosen steps is traced.")
        if self.samples_limit is not None:
            count = f"{self.samples_limit} sample{'s' if self.samples_limit > 1 else ''}"
            sentences.append(f"At most {count} of each micro-batch are kept.")
        if self.tiles_divisor > 1:
            sentences.append(f"The number of tiles is divided by {self.tiles_divisor}.")
        if self.whole_to_tiles is not None:
            sentences.append(f"Whole tensors are kept as means of {self.whole_to_tiles} tiles.")
        if self.forward_only:
            sentences.append("Gradients are not traced.")
        return sentences


def apply_cost_reduction(
    settings: Mapping[str, Mapping[str, Any]], cost_reduction: CostReduction
) -> dict[str, dict[str, Any]]:
    """Return the settings under a cost reduction: never more than the user's ``FlagSetting`` by name."""
    return {name: _smaller(name, setting, cost_reduction) for name, setting in settings.items()}


def _smaller(name: str, setting: Mapping[str, Any], cost_reduction: CostReduction) -> dict[str, Any]:
    changed = dict(setting)
    if cost_reduction.every_factor > 1:
        changed["every"] = setting.get("every", 1) * cost_reduction.every_factor
    if cost_reduction.samples_limit is not None:
        asked = setting.get("samples", 1)
        changed["samples"] = (
            cost_reduction.samples_limit if asked is None else min(asked, cost_reduction.samples_limit)
        )
    passes = setting.get("passes", ["forward"])
    if cost_reduction.forward_only and "forward" in passes and "backward" in passes:
        changed["passes"] = ["forward"]
    changed["compressor"] = _coarser(name, setting["compressor"], cost_reduction)
    return changed


def _coarser(name: str, compressor: Mapping[str, Any], cost_reduction: CostReduction) -> dict[str, Any]:
    params = dict(compressor.get("params") or {})
    if compressor["name"] in _PARTS and cost_reduction.tiles_divisor > 1:
        member, default = _PARTS[compressor["name"]]
        parts = params.get(member, default)
        params[member] = min(parts, max(_FEWEST_TILES, parts // cost_reduction.tiles_divisor))
        return {"name": compressor["name"], "params": params}
    exact = name in FLAGS and FLAGS[name].exact
    if compressor["name"] == "NoOp" and cost_reduction.whole_to_tiles is not None and not exact:
        return {"name": "Tile", "params": {"tiles": cost_reduction.whole_to_tiles, "reduction": "mean"}}
    return dict(compressor)


def _ordinal(number: int) -> str:
    words = {2: "second", 3: "third", 4: "fourth"}
    last = "st" if number % 10 == 1 else "nd" if number % 10 == 2 else "rd" if number % 10 == 3 else "th"
    return words.get(number) or f"{number}{'th' if number % 100 in (11, 12, 13) else last}"


LADDER = Ladder(
    (
        CostReduction(),
        CostReduction(samples_limit=1),
        CostReduction(samples_limit=1, tiles_divisor=2),
        CostReduction(samples_limit=1, tiles_divisor=4, whole_to_tiles=96),
        CostReduction(samples_limit=1, tiles_divisor=8, whole_to_tiles=96, forward_only=True),
    ),
    apply_cost_reduction,
)
"""Stages in which compression of tensors is given up."""
_MEASURED = 50
"""The compressor's error is measured in the first traced step and every so many after it."""


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
        Layers to trace, of those that this process has.
    forward, backward : bool
        Whether values and gradients are traced.
    measured : bool
        Whether the compressor's error is measured in this step.
    """

    name: str
    setting: FlagSetting
    text: str
    layers: tuple[int, ...]
    every: int
    phases: tuple[str, ...]
    samples: int | None
    kernel: Kernel
    compressor: Compressor
    error: CompressionError
    vectors: Tensor | None = None
    forward: bool = True
    backward: bool = False
    active: bool = False
    measured: bool = False
    _traced: int = 0

    def update(self, step: int, phase: str) -> bool:
        """Decide whether this flag is traced now: at every n-th training step, in other phases always."""
        self.active = phase in self.phases and (phase != "train" or step % self.every == 0)
        if self.active:
            self.measured = self._traced % _MEASURED == 0
            self._traced += 1
        return self.active


@dataclass(frozen=True)
class ModePlan:
    """Whether the training waits.

    Attributes
    ----------
    paused : bool
        Before the step after ``until``; before the next one where that is None.
    while_watched : bool
        Whether it waits as long as no viewer is attached.
    steps : int or None
        How many steps to take before the pause, counted from the step at which the change applies.
    until : int or None
        The last of these steps, once it is known.
    """

    paused: bool = False
    while_watched: bool = False
    steps: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class TracingPlan:
    """Everything that is in force. Never changed: a patch makes another plan.

    Attributes
    ----------
    flags : mapping
        What is traced: what was asked for, or less of it for a budget.
    asked : mapping
        What was asked for.
    cost_reduction : CostReduction
        What was given up for the budget.
    perturb : PerturbPlan or None
        An armed perturbation.
    perturb_until : int or None
        Last step that it touches; None until the step of the change is known.
    mode : ModePlan
        Whether the training waits.
    budget : float or None
        What tracing may cost, in per cent of step time.
    instruments : mapping
        Settings of instruments, by name.
    phase : str
        What the steps are: the phase of flags and perturbations that do not say their own.
    """

    flags: Mapping[str, FlagPlan] = field(default_factory=dict)
    asked: Mapping[str, FlagPlan] = field(default_factory=dict)
    cost_reduction: CostReduction = field(default_factory=CostReduction)
    perturb: PerturbPlan | None = None
    perturb_until: int | None = None
    mode: ModePlan = field(default_factory=ModePlan)
    budget: float | None = None
    instruments: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    phase: Phase = "train"

    @property
    def config(self) -> Config:
        config: Config = {"flags": {name: flag.setting for name, flag in self.asked.items()}}
        if self.perturb is not None:
            config["perturb"] = self.perturb.setting
            if self.perturb_until is not None:
                config["perturb"]["until"] = self.perturb_until
        mode: Mode = {}
        if self.mode.paused:
            mode["paused"] = True
        if self.mode.while_watched:
            mode["while_watched"] = True
        if mode:
            config["mode"] = mode
        if self.budget is not None:
            config["budget"] = self.budget
        if self.instruments:
            config["instruments"] = {name: dict(each) for name, each in self.instruments.items()}
        return config

    def starting(self, step: int) -> TracingPlan:
        """Return the plan with the steps that count from ``step``, at which it applies."""
        plan = self
        if self.perturb is not None and self.perturb_until is None:
            plan = replace(plan, perturb_until=step + int(self.perturb.setting["steps"]) - 1)
        if self.mode.steps is not None:
            plan = replace(plan, mode=replace(plan.mode, steps=None, until=step + self.mode.steps - 1))
        return plan

    def unperturbed(self) -> TracingPlan:
        return replace(self, perturb=None, perturb_until=None)

    def unpaused(self) -> TracingPlan:
        return replace(self, mode=replace(self.mode, paused=False, until=None, steps=None))

    def patch_from(self, step: int) -> dict[str, Any]:
        """Return a patch that, applied at ``step``, makes this plan of a process's first plan."""
        patch = self.config
        if self.perturb is not None:
            patch["perturb"].pop("until", None)
            if self.perturb_until is not None:
                patch["perturb"]["steps"] = max(1, self.perturb_until - step + 1)
        mode: Mode = {"paused": self.mode.paused, "while_watched": self.mode.while_watched}
        if self.mode.until is not None and self.mode.until >= step:
            mode["steps"] = self.mode.until - step + 1
        return {**patch, "mode": mode, "budget": self.budget, "cost_reduction": asdict(self.cost_reduction)}
