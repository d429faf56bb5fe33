"""What one outside surface is to the suite, and the list of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["CATALOGUE", "Surface", "case_input", "load_surface"]


@dataclass(frozen=True)
class Surface:
    """One place where something from outside comes in.

    Attributes
    ----------
    seeds : callable
        Returns what is right, or nearly; asked once a process.
    mutate : callable
        Makes the input of one case of a seed: JSON values and bytes, so that it can be kept.
    run : callable
        Does with the input what the product does, and asserts what must hold of what was accepted. Its answer, when it is False, says that the
        input was refused in a typed way that is no exception.
    refusals : tuple of types
        The errors that are answers. Any other is a finding, as are a death, two seconds of computing, and 512 MB.
    """

    seeds: Callable[[], Sequence[Any]]
    mutate: Callable[[Random, Any], Any]
    run: Callable[[Any], Any]
    refusals: tuple[type[BaseException], ...]


# Of every thousand cases, how many are of each surface, those that cost most the fewest; each is `SURFACE` of the module of its name in `surfaces/`, or in a slice.
CATALOGUE: dict[str, int] = {
    "messages": 130,
    "frames": 150,
    "hub_talk": 30,
    "settings": 120,
    "view_options": 120,
    "widget_state": 60,
    "reductions": 100,
    "dialect_peer": 80,
    "dialect_client": 60,
    "dialect_rows": 40,
    "dialect_generate": 30,
    "rest": 50,
    "jsonl": 10,
    "csv_folders": 10,
    "traces": 20,
    "run_folder": 40,
    "changed_byte": 20,
    "patterns": 60,
    "vectors": 60,
}
# Surfaces that a slice brings, which go with it.
_OF_SLICES = {"traces": "tests.instruments.timeline.fuzzed_traces"}
_ROOT = Path(__file__).parents[2]
for _name, _module in _OF_SLICES.items():
    if not (_ROOT / f"{_module.replace('.', '/')}.py").is_file():
        del CATALOGUE[_name]


@cache
def load_surface(name: str) -> tuple[Surface, Sequence[Any]]:
    """Return a surface and its seeds."""
    module = import_module(_OF_SLICES.get(name, f"tests.fuzz.surfaces.{name}"))
    surface: Surface = module.SURFACE
    return surface, surface.seeds()


def case_input(name: str, number: int) -> Any:
    """Return the input of a case, which its number alone decides."""
    surface, seeds = load_surface(name)
    chance = Random(f"{name}:{number}")
    return surface.mutate(chance, chance.choice(seeds))
