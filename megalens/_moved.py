"""Import paths of earlier versions, for one version more."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    # Importing the class takes 10 ms, and the import system does not ask for it.
    Loader = object

__all__ = ["follow_moves"]

# What the documentation names by its path. Deeper modules follow the longest path that they begin with.
_MOVED = {
    "client": "runs",
    "client.alarms": "instruments.monitor.recorded",
    "client.direction": "instruments.generation.requests",
    "client.generation": "instruments.generation.written_text",
    "contrast": "instruments.generation.contrast",
    "dialects": "hub.dialects",
    "engine": "pictures.engine",
    "generation": "instruments.generation",
    "launch": "api.launch",
    "monitoring": "instruments.monitor",
    "notebook": "api.notebook",
    "replay": "hub.replay",
    "report": "pictures.report",
    "serving": "instruments.generation.serving",
    "stages": "instruments.pipeline.stages",
    "timeline": "instruments.timeline",
    "trainer_callback": "api.callback",
    "trainermon": "instruments.monitor.trainermon.trainermon",
    "training": "api.trace",
    "training_monitor": "instruments.monitor.training_monitor",
    "training_statistics": "api.statistics",
    "widgets": "pictures.widgets",
}
# Public names whose files lie elsewhere: these paths stay.
_PUBLIC = {"pipeline": "instruments.pipeline", "split": "instruments.pipeline.split"}
_PATHS = {**_MOVED, **_PUBLIC}


class _Moves(Loader):
    """Finds a module of an old path, and gives the module of the new one under both names."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how the module of an old path is loaded; None of any other."""
        package, _, old = name.partition(".")
        new = _new_path(old) if package == "megalens" else None
        if new is None:
            return None
        from importlib.util import find_spec

        if find_spec(f"megalens.{new}") is None:
            return None
        return ModuleSpec(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module where it lies now."""
        old = spec.name.partition(".")[2]
        new = f"megalens.{_new_path(old)}"
        if old.partition(".")[0] not in _PUBLIC:
            warnings.warn(
                f"{spec.name} is now {new}. The old path goes with the next version.",
                DeprecationWarning,
                stacklevel=2,
            )
        module = import_module(new)
        # The import system writes the old path's spec over the module's own.
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module, which has run already, as it was."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def _new_path(old: str) -> str | None:
    parts = old.split(".")
    for count in range(len(parts), 0, -1):
        new = _PATHS.get(".".join(parts[:count]))
        if new is not None:
            return ".".join([new, *parts[count:]])
    return None


def follow_moves() -> None:
    """Have the import system find modules by their old paths too. Safe twice."""
    if not any(isinstance(finder, _Moves) for finder in sys.meta_path):
        # First: the folder of a package that has moved would otherwise give its modules a second time.
        sys.meta_path.insert(0, _Moves())
