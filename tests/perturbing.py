"""A clock set by hand, and models perturbed while it runs."""

from dataclasses import dataclass, field
from typing import Any

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
