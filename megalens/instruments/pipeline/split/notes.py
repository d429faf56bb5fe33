"""What processes tell each other once, before a training or around a checkpoint: texts in the store that the job was started with."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from datetime import timedelta
from typing import Any

from torch.distributed import distributed_c10d
from torch.distributed.distributed_c10d import PrefixStore

from ....protocol import parse_json
from .errors import SplitError
from .place import SplitPlace

__all__ = ["SplitNotes"]

_made: Counter[str] = Counter()


class SplitNotes:
    """Notes of one training, by name. Every process makes its trainings in the same order.

    Parameters
    ----------
    place : SplitPlace
        Of this process.
    timeout : float
        Seconds that a note may take to come.
    """

    def __init__(self, place: SplitPlace, timeout: float) -> None:
        self._place, self._timeout = place, timeout
        number = _made["split"]
        _made["split"] += 1
        store = distributed_c10d._get_default_store()
        self._store = PrefixStore(f"megalens/instruments/pipeline/split/{number}", store)

    def say(self, name: str, value: Any) -> None:
        """Leave a note."""
        try:
            self._store.set(name, json.dumps(value))
        except (RuntimeError, OSError) as error:
            raise self._gone(name, error) from error

    def hear(self, name: str, whose: str) -> Any:
        """Return a note, waiting for it; ``whose`` is who is to leave it, for the error's words."""
        try:
            self._store.wait([name], timedelta(seconds=self._timeout))
            return parse_json(self._store.get(name))
        except (RuntimeError, OSError) as error:
            raise self._gone(whose, error) from error

    def part(self, world: int) -> None:
        """Say farewell. Where the store is, it stays until everybody has: others may still read in it."""
        with contextlib.suppress(SplitError):
            self.say(f"farewell/{self._place.rank}", True)
            if self._place.rank == 0:
                for rank in range(1, world):
                    self.hear(f"farewell/{rank}", f"rank {rank} to end")

    def _gone(self, whose: str, error: BaseException) -> SplitError:
        return SplitError(
            f"{self._place.name.capitalize()} waited up to {self._timeout:.3g} s for {whose}, and nothing came: every process makes its SplitTraining, and calls save(…) and load(…), like the others ({str(error)[:200]}).",
            code="waited",
            role=self._place.role,
            stage=self._place.stage,
            rank=self._place.rank,
        )
