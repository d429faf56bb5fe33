"""The hooks that perturb, put on while a perturbation is armed and taken off again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from ..points import ModelPoints
from .hooks import IClock, OutputHook, PerturbHook, WeightHook
from .plan import (
    PerturbPlan,
    SitePlan,
    owner_of_weight,
    piece_of_output,
    replica_of_output,
    replica_of_weight,
)

__all__ = ["Installed", "install_perturbations"]

_MOST_REASONS = 20


class Installed:
    """Perturbations that are on. Calling it takes them off, and leaves the model as it was; safe twice.

    Attributes
    ----------
    hooks : list of PerturbHook
        One for each perturbed module; none once it is off.
    """

    def __init__(self) -> None:
        self.hooks: list[PerturbHook] = []
        self._calls = self._errors = 0
        self._last_step: int | None = None

    def __call__(self) -> None:
        """Take every hook off."""
        self._calls, self._errors, self._last_step = self.calls, self.errors, self.last_step
        hooks, self.hooks = self.hooks, []
        for hook in hooks:
            hook.remove()

    @property
    def calls(self) -> int:
        """Tensors that were perturbed so far."""
        return self._calls + sum(hook.calls for hook in self.hooks)

    @property
    def errors(self) -> int:
        """Tensors that were to be perturbed and passed as they were."""
        return self._errors + sum(hook.errors for hook in self.hooks)

    @property
    def last_step(self) -> int | None:
        """Newest step in which a tensor was perturbed."""
        steps = [self._last_step, *(hook.last_step for hook in self.hooks)]
        return max((step for step in steps if step is not None), default=None)

    def unfired(self) -> list[str]:
        """Return the names of the places that have not been reached yet, such as those that a compiled model passes by."""
        return [hook.label for hook in self.hooks if hook.calls + hook.errors == 0]


def install_perturbations(
    points: ModelPoints, plan: PerturbPlan, clock: IClock, warn: Callable[[str], None]
) -> Installed:
    """Put a plan's hooks on the model. Where it perturbs nothing in this process, there are none.

    Never raises: what goes wrong is warned of, and then no hook stays.

    Parameters
    ----------
    points : ModelPoints
        The model that the plan was made for.
    plan : PerturbPlan
        What to do.
    clock : IClock
        Where the training is.
    warn : callable
        Takes a sentence for the user; never raises and never waits.

    Returns
    -------
    Installed
        Call it to take them off.
    """
    installed = Installed()
    said: set[str] = set()

    def once(reason: str, text: str) -> None:
        # One cause can hold in every layer and every step.
        if reason not in said and len(said) < _MOST_REASONS:
            said.add(reason)
            warn(text)

    try:
        for site in plan.sites:
            for hook in _hooks(points, plan, site, clock, once):
                installed.hooks.append(hook)
    except Exception as error:
        installed()
        warn(
            f"Nothing is perturbed on {points.place.name}: {str(error)[:200] or type(error).__name__}. "
            "Other processes may perturb. Disarm it."
        )
    return installed


def _hooks(
    points: ModelPoints,
    plan: PerturbPlan,
    site: SitePlan,
    clock: IClock,
    warn: Callable[[str, str], None],
) -> Iterator[PerturbHook]:
    owner = owner_of_weight(points) if site.name == "weight" else None
    for layer, number, module in _modules(points, site):
        label = _label(points, site, layer, module)
        if owner is not None:
            counted = owner(module) or (layer, number)
            cut = replica_of_weight(module._parameters["weight"], points.place)
            yield WeightHook(module, site, label, (plan.seed, site.name, *counted, *cut), clock, warn)
        else:
            key = (plan.seed, site.name, layer, number, *replica_of_output(points.place))
            piece = piece_of_output(points, site.name, layer)
            vector = None if site.vectors is None else site.vectors[layer]
            yield OutputHook(
                module, site, label, key, clock, warn, piece=piece, vector=vector, place=points.place
            )


def _modules(points: ModelPoints, site: SitePlan) -> list[tuple[int, int, nn.Module]]:
    """Give layer, number in the layer and module. A module that several layers share is perturbed once a call."""
    found: dict[Any, tuple[int, int, nn.Module]] = {}
    for layer in site.layers:
        for number, module in enumerate(points.sites[site.name].layers[layer]):
            found.setdefault(module, (layer, number, module))
    return list(found.values())


def _label(points: ModelPoints, site: SitePlan, layer: int, module: nn.Module) -> str:
    names = (name for root in points.roots for name, one in root.named_modules() if one is module)
    name = next(names, "") or type(module).__name__
    many = points.place.world_size > 1
    return f"{site.name} of layer {layer} ({name})" + (f" on {points.place.name}" if many else "")
