"""The names of a process's tensors, by which rows travel as numbers."""

from __future__ import annotations

__all__ = ["NameList"]


class NameList:
    """Names in the order in which they came; they are only ever added.

    Parameters
    ----------
    stage : int
        Pipeline stage of this process; -1 where there are none.
    """

    def __init__(self, stage: int = -1) -> None:
        self.stage = stage
        self._places: dict[str, int] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._names)

    def place(self, name: str) -> int:
        """Return the place of a name, which is added where it is new."""
        at = self._places.get(name)
        if at is None:
            at = self._places[name] = len(self._names)
            self._names.append(name)
        return at

    def since(self, first: int) -> list[str]:
        """Return the names from the place ``first`` on."""
        return self._names[first:]
