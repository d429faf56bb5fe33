"""What a training node is without: one sentence where a module of Megalens imports it all the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["NotInstalledError", "say_what_is_missing"]

# What `megalens` asks for and `megalens-tracer` does not.
_READERS = frozenset(
    ("duckdb", "ipywidgets", "jupyter_core", "jupyter_server", "msgspec", "orjson", "pandas", "py_mini_racer")
)


class NotInstalledError(ModuleNotFoundError):
    """A package for reading and showing runs is not installed."""


class _Missing:
    """Asked last of all finders, so that only what is not installed comes here."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise where a module of ours imports what is not there; nobody else's question is answered."""
        if name not in _READERS:
            return None
        from inspect import currentframe

        # Who imports: the first below this one that is not the import system's own.
        frame = currentframe()
        while frame is not None and frame.f_globals.get("__name__") in (__name__, "importlib._bootstrap"):
            frame = frame.f_back
        if frame is None or not str(frame.f_globals.get("__name__")).startswith("megalens."):
            return None
        raise NotInstalledError(
            f"Reading and showing runs needs {name}, which is not installed here: megalens-tracer trains and "
            "records. Install all of Megalens (pip install megalens), or open the run where it is installed.",
            name=name,
        )


def say_what_is_missing() -> None:
    """Have imports of ours say what to install. Safe twice."""
    if not any(isinstance(finder, _Missing) for finder in sys.meta_path):
        sys.meta_path.append(_Missing())
