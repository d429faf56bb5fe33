"""``pyarrow.compute`` by a name that costs nothing to import: it takes a fifth of ``megalens info``."""

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    found = globals()[name] = getattr(import_module("pyarrow.compute"), name)
    return found
