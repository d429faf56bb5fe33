"""The seam of slices: what the folder of an instrument adds to a training, a run, the server and the command
line.

A slice is found by an entry point of the group ``megalens.slices``, ours and those of other packages alike.
It names what it brings as ``"module:object"``, which is imported when it is first used.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

__all__ = ["GROUP", "Commands", "Slice", "find_slices", "load", "named", "run_attributes"]

GROUP = "megalens.slices"
Commands = Callable[["argparse._SubParsersAction[argparse.ArgumentParser]"], None]


@dataclass(frozen=True)
class Slice:
    """What one instrument adds. All but its name is ``"module:object"``, or nothing.

    Attributes
    ----------
    name : str
        The instrument's name.
    traced : str
        Called by ``megalens.trace`` with the model, :class:`~megalens.tracer.settings.TraceSettings` and the
        process's :class:`~megalens.tracer.Place`; gives an :class:`~megalens.tracer.Instrument`, or None
        where the settings want none.
    run : mapping
        Attributes of a run by name: functions whose first argument is the run, or properties.
    notebook : mapping
        The same of a run in a notebook, which has views; these come before the run's own.
    answers : mapping
        What a view may ask of a run, by name: called with its rows, the request, the run's id and the event
        that cancels; gives JSON.
    exports : mapping
        Files that ``run.export`` writes, by the name of their format: a
        :class:`~megalens.runs.exports.Format`.
    opens : str or tuple of str
        Each a :class:`~megalens.runs.foreign_files.ForeignFiles`, asked in order: files of other tools that
        are opened as a run.
    endpoints : str
        Pairs of a path below ``megalens/api/runs/<id>`` and the handler that answers there.
    commands : str
        Called with the subparsers of ``megalens``; adds its commands.
    """

    name: str
    traced: str = ""
    run: Mapping[str, str] = field(default_factory=dict)
    notebook: Mapping[str, str] = field(default_factory=dict)
    answers: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    opens: str | tuple[str, ...] = ""
    endpoints: str = ""
    commands: str = ""


@functools.cache
def find_slices() -> tuple[Slice, ...]:
    """Return every slice of this installation, by name. One that cannot be loaded is left out with a
    warning.
    """
    # They take as long to import as what a short command is made of.
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    found: dict[str, Slice] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda each: each.name):
        try:
            if find_spec(entry.module) is not None:
                found[entry.name] = _checked(entry.load())
        except Exception as error:
            if not _is_gone(error, entry.module):
                warnings.warn(f"The slice {entry.name} could not be loaded: {error}", stacklevel=2)
    return tuple(found.values())


def _checked(loaded: Any) -> Slice:
    if not isinstance(loaded, Slice):
        raise TypeError(f"its entry point must name a Slice, got {type(loaded).__name__}")
    return loaded


def _is_gone(error: Exception, module: str) -> bool:
    """Whether the folder of a slice was deleted since it was installed, which is no fault; a package that it
    imports may be missing too.
    """
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    return missing is not None and f"{module}.".startswith(f"{missing}.")


def load(path: str) -> Any:
    """Return the object that ``"module:object"`` names."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def named(part: str) -> dict[str, str]:
    """Return what all slices name in a mapping: ``run``, ``notebook``, ``answers`` or ``exports``."""
    return {name: path for each in find_slices() for name, path in getattr(each, part).items()}


def run_attributes(part: str, owner: Any, name: str) -> Any:
    """Return an attribute that a slice gives to ``owner``, a run.

    Raises
    ------
    AttributeError
        When no slice has one of that name.
    """
    path = None if name.startswith("_") else named(part).get(name)
    if path is None:
        raise AttributeError(f"{type(owner).__name__!r} object has no attribute {name!r}")
    return load(path).__get__(owner, type(owner))
