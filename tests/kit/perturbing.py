"""A clock set by hand, models perturbed while it runs, and all that a model is before and after."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from megalens.adapters import find_adapter
from megalens.tracer.perturb import Installed, install_perturbations, perturb_plan


@dataclass
class HandClock:
    step: int = 1
    phase: str = "train"
    micro_batch: int = 0


@dataclass
class Perturbing:
    """``with Perturbing(model, weight=noise(0.1)) as on:``; no warning may come of it."""

    model: nn.Module
    sites: dict[str, Any]
    seed: int = 0
    points: Any = None
    clock: HandClock = field(default_factory=HandClock)
    warnings: list[str] = field(default_factory=list)
    installed: Installed = None  # type: ignore[assignment]

    def __enter__(self) -> "Perturbing":
        points = self.points or find_adapter(self.model).points(self.model)
        plan = perturb_plan({"sites": self.sites, "seed": self.seed}, points)
        self.installed = install_perturbations(points, plan, self.clock, self.warnings.append)
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        self.installed()
        if kind is None:
            assert self.warnings == []


def site(
    name: str, layers: str = "all", phases: tuple[str, ...] = ("train",), **params: Any
) -> dict[str, Any]:
    return {"kind": {"name": name, "params": params}, "layers": layers, "phases": list(phases)}


def snapshot(model: nn.Module) -> dict:
    """All that a module is: its attributes by identity, its parameters bit by bit, its hooks by identity and order."""
    found = {}
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            is_table = key.startswith("_") and isinstance(value, (dict, set))
            found[name, key] = [(k, id(value[k])) for k in value] if isinstance(value, dict) else id(value)
            if is_table and not isinstance(value, dict):
                found[name, key] = sorted(value)
    for name, value in model.state_dict().items():
        found["state", name] = value.view(torch.int32).tolist()
    return found
