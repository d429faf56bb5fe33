"""What of traced tensors is given up for the budget, laid over what the user asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..budget.ladder import Ladder
from ..points import FLAGS

__all__ = ["LADDER", "CostReduction", "apply_cost_reduction"]

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
        A :class:`Tile`'s number of tiles is divided by it, down to 8, and so is a :class:`Peaks`' number of cells.
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
        said = []
        if self.every_factor > 1:
            said.append(f"Only every {_ordinal(self.every_factor)} of the chosen steps is traced.")
        if self.samples_limit is not None:
            count = f"{self.samples_limit} sample{'s' if self.samples_limit > 1 else ''}"
            said.append(f"At most {count} of each micro-batch are kept.")
        if self.tiles_divisor > 1:
            said.append(f"The number of tiles is divided by {self.tiles_divisor}.")
        if self.whole_to_tiles is not None:
            said.append(f"Whole tensors are kept as means of {self.whole_to_tiles} tiles.")
        if self.forward_only:
            said.append("Gradients are not traced.")
        return said


def apply_cost_reduction(
    settings: Mapping[str, Mapping[str, Any]], cost_reduction: CostReduction
) -> dict[str, dict[str, Any]]:
    """Return the settings in force under a cost_reduction: never more than was asked for, and what was asked for when nothing is given up.

    Parameters
    ----------
    settings : mapping
        The user's ``FlagSetting`` by flag name.
    cost_reduction : CostReduction
        What is given up.
    """
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
