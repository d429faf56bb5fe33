"""What one outside surface is to the suite, and the list of all of them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

__all__ = ["CATALOGUE", "Surface", "byte_changes", "case_input", "every_byte", "load_surface"]

_CHANGES = (0x01, 0x80, 0xFF)


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
    every_byte : callable
        Returns inputs that each have one byte of small files changed: together each byte of each format.
    """

    seeds: Callable[[], Sequence[Any]]
    mutate: Callable[[Random, Any], Any]
    run: Callable[[Any], Any]
    refusals: tuple[type[BaseException], ...]
    every_byte: Callable[[], list[Any]] = list


# Of every thousand cases, how many are of each surface, those that cost most the fewest; each is `SURFACE` of the module of its name in `surfaces/`, or in a slice.
CATALOGUE: dict[str, int] = {
    "messages": 130,
    "frames": 135,
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
    "titan_logs": 5,
    "flight_dumps": 5,
    "memory_snapshots": 5,
    "event_files": 5,
    "inspect_logs": 5,
    "anomalies": 10,
    "run_folder": 40,
    "changed_byte": 20,
    "patterns": 60,
    "vectors": 60,
}
# Surfaces that a slice brings, which go with it.
_OF_SLICES = {
    "traces": "tests.instruments.timeline.fuzzed_traces",
    "titan_logs": "tests.instruments.timeline.fuzzed_titan_logs",
    "flight_dumps": "tests.instruments.timeline.fuzzed_flight_dumps",
    "memory_snapshots": "tests.instruments.timeline.fuzzed_memory_snapshots",
    "anomalies": "tests.instruments.monitor.fuzzed_anomalies",
}
_ROOT = Path(__file__).parents[2]
for _name, _module in _OF_SLICES.items():
    if not (_ROOT / f"{_module.replace('.', '/')}.py").is_file():
        del CATALOGUE[_name]


@cache
def load_surface(name: str) -> tuple[Surface, Sequence[Any]]:
    """Return a surface and its seeds."""
    # Helpers of the tests, which pytest has on its path.
    sys.path += [path for part in ("kit", "runs") if (path := str(_ROOT / "tests" / part)) not in sys.path]
    module = import_module(_OF_SLICES.get(name, f"tests.fuzz.surfaces.{name}"))
    surface: Surface = module.SURFACE
    return surface, surface.seeds()


def case_input(name: str, number: int, seed: int | None = None) -> Any:
    """Return the input of a case, which its number decides, and a seed if there is one."""
    surface, seeds = load_surface(name)
    chance = Random(f"{name}:{number}" if seed is None else f"{seed}:{name}:{number}")
    return surface.mutate(chance, chance.choice(seeds))


def byte_changes(data: bytes) -> list[bytes]:
    """Return the bytes of a file with each changed once; which way goes by its place."""
    return [
        data[:at] + bytes([byte ^ _CHANGES[at % len(_CHANGES)]]) + data[at + 1 :]
        for at, byte in enumerate(data)
    ]


def every_byte() -> dict[str, list[Any]]:
    """Return the inputs of all surfaces that change each byte of small files."""
    found = {name: load_surface(name)[0].every_byte() for name in CATALOGUE}
    return {name: inputs for name, inputs in found.items() if inputs}
