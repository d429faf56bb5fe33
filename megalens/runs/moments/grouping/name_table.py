"""The distinct names of a run's tensors, each parsed once."""

from __future__ import annotations

from collections.abc import Iterable

from ....protocol import TensorName, parse_name

__all__ = ["NameTable", "module_of"]


class NameTable:
    """Names in the order in which they were first seen; they are only ever added at the end, so that a place in here keeps its meaning."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._ids: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.names)

    def add(self, names: Iterable[str]) -> bool:
        """Add the names that are new, and say whether there were any."""
        before = len(self.names)
        for name in names:
            if name not in self._ids:
                self._ids[name] = len(self.names)
                self.names.append(name)
        return len(self.names) > before

    def id(self, name: str) -> int:
        """Return the place of a name."""
        return self._ids[name]

    def parsed(self, name: str) -> TensorName:
        """Return what a name says."""
        return parse_name(name)


def module_of(name: str) -> str:
    """Return the name of the module of which a tensor is an input or an output."""
    return name[: max(0, name.rfind("/"), name.rfind("."))]
