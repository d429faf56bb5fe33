"""The names of a process's tensors, by which rows travel as numbers."""

from __future__ import annotations

from ....protocol import Readings
from .part import Figures

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
        self._dtypes: dict[int, str] = {}
        self._noted: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._names)

    def place(self, name: str) -> int:
        """Return the place of a name, which is added where it is new."""
        at = self._places.get(name)
        if at is None:
            at = self._places[name] = len(self._names)
            self._names.append(name)
        return at

    def note(self, at: int, dtype: str) -> None:
        """Note of what type of number the tensor at a place is; asked for every measured tensor, and new only once for most."""
        if self._dtypes.get(at) != dtype:
            self._dtypes[at] = dtype
            self._noted.append((at, dtype))

    def noted(self, first: int = 0) -> list[tuple[int, str]]:
        """Return what was noted from the entry ``first`` on: places, and types such as ``bfloat16``."""
        return self._noted[first:]

    def readings(self, figures: Figures, rank: int) -> Readings:
        """Return what this process measured of one statistic, with its names."""
        ids = figures.ids.tolist()
        return Readings(
            *(figures.stat, rank, tuple(self._names[at] for at in ids), figures.rows),
            dtypes=tuple(self._dtypes.get(at, "") for at in ids),
            stage=self.stage,
            micro_batch=figures.micro_batch,
            counted=figures.counted,
            gradient_stage=figures.gradient_stage,
            loss_scale=figures.loss_scale,
        )

    def since(self, first: int) -> list[str]:
        """Return the names from the place ``first`` on."""
        return self._names[first:]
