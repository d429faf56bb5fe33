"""Rank 0's side: the statistics of a step of all processes become rows of complete tensors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...protocol import MOMENT_COLUMNS, Readings, merge_moments, natural_key
from .part import Figures

_PATIENCE_SECONDS = 30.0
_MOST_BYTES = 64 << 20
_FOLD_BYTES = 16 << 20
_MOST_LISTED = 1024

Names = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tensors:
    """The tensors of some rows. One object serves all steps in which they are the same, so it identifies
    them.

    ``names`` are in natural order, ``stages`` (int32) are their pipeline stages.
    """

    names: Sequence[str]
    stages: NDArray[np.int32]


@dataclass(frozen=True)
class Merged:
    """One statistic of a step, over all processes; ``rows`` is float64 ``[n, 11]``, one for each tensor."""

    stat: str
    gradient_stage: str
    loss_scale: float
    tensors: Tensors
    rows: NDArray[np.float64]


@dataclass(frozen=True)
class CompleteStep:
    step: int
    samples: int
    stats: list[Merged]
    left_out: int
    """Rows that a process's part is missing of."""
    readings: Sequence[Readings] = ()
    """What each process measured, by rank, where somebody asked for it."""


@dataclass
class _GatheredStat:
    """What came of one statistic of one step."""

    ids: list[Names] = field(default_factory=list)
    rows: list[NDArray[np.float64]] = field(default_factory=list)
    nbytes: int = 0
    gradient_stage: str = ""
    loss_scale: float = 1.0


@dataclass
class _Step:
    since: float = field(default_factory=time.monotonic)
    samples: int = -1
    heard: set[int] = field(default_factory=set)
    stats: dict[str, _GatheredStat] = field(default_factory=dict)
    readings: list[Readings] = field(default_factory=list)
    replica_bytes: int = 0

    @property
    def nbytes(self) -> int:
        return self.replica_bytes + sum(stat.nbytes for stat in self.stats.values())


class _Rank:
    """What is known of one process."""

    def __init__(self) -> None:
        self.indices: Names = np.empty(0, np.int64)
        """Of its names in the list of all."""
        self.step = 0
        """Newest step that it sent."""
        self.gave: dict[str, Names] = {}
        """Of each statistic the names that it ever counted a part of."""
        self._last: dict[str, tuple[NDArray[np.int32], Names]] = {}

    def add_names(self, first: int, indices: Sequence[int]) -> None:
        """Note where its names are, from its index ``first`` on."""
        if indices or first < len(self.indices):
            self.indices = np.concatenate((self.indices[:first], np.array(indices, np.int64)))
            self._last.clear()

    def gives(self, stat: str, ids: NDArray[np.int32]) -> Names:
        """Return the indices in the list of all of names that it counted a part of."""
        last = self._last.get(stat)
        here = self.indices_of(stat, ids)
        if last is None or last[1] is not here:
            known = self.gave.get(stat)
            self.gave[stat] = here if known is None else np.union1d(known, here)
        return here

    def indices_of(self, kind: str, ids: NDArray[np.int32]) -> Names:
        """Return the indices of ids; the same array as in the last step where they are the same."""
        last = self._last.get(kind)
        if last is not None and _same(last[0], ids):
            return last[1]
        here = self.indices[ids]
        self._last[kind] = ids, here
        return here


@dataclass(frozen=True)
class _Arranged:
    """Names of one statistic as they came, with their natural order."""

    ids: Names
    order: NDArray[np.intp]
    tensors: Tensors


class Gathering:
    """Merges what the processes send of a step, in the order of the steps.

    A tensor of which a part is missing is left out and named, never given in part. Nobody is waited for in
    vain: a process that is gone, or that has sent a later step, sends this one no more.

    Parameters
    ----------
    name, gone : callable
        Give a rank's name for people, and whether it has left.
    by_rank : bool
        Whether what each process measured is stored until the step is complete.
    """

    def __init__(
        self,
        world_size: int,
        name: Callable[[int], str],
        gone: Callable[[int], bool],
        warn: Callable[[str], None],
        *,
        by_rank: bool = False,
    ) -> None:
        self._by_rank = by_rank
        self._listed: dict[int, tuple[Names, tuple[str, ...], tuple[str, ...]]] = {}
        self._dtypes: dict[int, str] = {}
        self._world_size = world_size
        self._name, self._gone, self._warn = name, gone, warn
        self._names: list[str] = []
        self._index: dict[str, int] = {}
        self._stages: list[int] = []
        self._order: Names = np.empty(0, np.int64)
        self._arranged: dict[str, _Arranged] = {}
        self._ranks = {rank: _Rank() for rank in range(world_size)}
        self._steps: dict[int, _Step] = {}
        self._done = 0

    @property
    def waiting(self) -> bool:
        return bool(self._steps)

    def take(
        self,
        rank: int,
        step: int,
        samples: int,
        stage: int,
        first: int,
        new: Sequence[str],
        figures: Sequence[Figures],
        dtypes: Sequence[tuple[int, str]] = (),
    ) -> None:
        """Take a process's statistics of a step, with names and types of number that are new.

        The names have indices from ``first`` on. Raises ``ValueError`` when it refers to names that never
        came.
        """
        who = self._ranks[rank]
        who.step = max(who.step, step)
        if first > len(who.indices):
            raise ValueError("names that it told before did not arrive")
        who.add_names(first, [self._index_of(name, stage) for name in new])
        for at, dtype in dtypes:
            self._dtypes[int(who.indices[at])] = dtype[:40]
            # Lists of before say it otherwise.
            self._listed.clear()
        if step <= self._done:
            # It was given up before.
            return
        here = self._steps.setdefault(step, _Step())
        here.samples = max(here.samples, samples)
        for part in figures:
            if not part.counted:
                if self._by_rank:
                    here.replica_bytes += part.rows.nbytes
                    ids = who.indices_of(f"replicas of {part.stat}", part.ids)
                    here.readings.append(self._reading(part, rank, stage, ids))
                continue
            ids = who.gives(part.stat, part.ids)
            stat = here.stats.get(part.stat)
            if stat is None:
                stat = here.stats[part.stat] = _GatheredStat(
                    gradient_stage=part.gradient_stage, loss_scale=part.loss_scale
                )
            elif part.gradient_stage != stat.gradient_stage:
                # What holds of all of them is the weaker of the two.
                stat.gradient_stage = max(stat.gradient_stage, part.gradient_stage)
            stat.ids.append(ids)
            stat.rows.append(part.rows)
            stat.nbytes += part.rows.nbytes
            if self._by_rank:
                here.readings.append(self._reading(part, rank, stage, ids))
            if stat.nbytes > _FOLD_BYTES:
                self._fold(stat)
        here.heard.add(rank)

    def ready(
        self, caught_up: Callable[[], bool] = lambda: True, *, everything: bool = False
    ) -> Iterator[CompleteStep]:
        """Give the steps that are complete, or that nothing more can come of.

        ``caught_up`` gives whether all that has arrived was taken; before, nobody is late. With
        ``everything`` nothing is waited for.
        """
        while self._steps:
            step = min(self._steps)
            here = self._steps[step]
            missing = [rank for rank in self._ranks if rank not in here.heard]
            if missing and not everything:
                # A step that alone is larger still waits for its parts.
                full = len(self._steps) > 1 and (
                    sum(each.nbytes for each in self._steps.values()) > _MOST_BYTES
                )
                late = time.monotonic() - here.since > _PATIENCE_SECONDS
                lost = all(self._ranks[rank].step > step or self._gone(rank) for rank in missing)
                # Asked last: what a process sent before it left has come by the time that it is known to be
                # gone.
                if not full and not ((late or lost) and caught_up()):
                    return
            del self._steps[step]
            self._done = step
            for rank in here.heard:
                for stat in here.stats:
                    # From now on it is known what this process has of it, if that is nothing.
                    self._ranks[rank].gave.setdefault(stat, np.empty(0, np.int64))
            yield self._complete(step, here, missing)

    def _index_of(self, name: str, stage: int) -> int:
        at = self._index.get(name)
        if at is None:
            at = self._index[name] = len(self._names)
            self._names.append(name)
            self._stages.append(stage)
        return at

    def _reading(self, part: Figures, rank: int, stage: int, ids: Names) -> Readings:
        names, dtypes = self._list(ids)
        return Readings(
            *(part.stat, rank, names, part.rows),
            dtypes=dtypes,
            stage=stage,
            counted=part.counted,
            gradient_stage=part.gradient_stage,
            loss_scale=part.loss_scale,
            micro_batch=part.micro_batch,
        )

    def _list(self, ids: Names) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of ids and the types of their numbers ('' where unknown); cached by the array."""
        known = self._listed.get(id(ids))
        if known is None or known[0] is not ids:
            if len(self._listed) >= _MOST_LISTED:
                self._listed.clear()
            known = self._listed[id(ids)] = (
                ids,
                tuple(self._names[at] for at in ids.tolist()),
                tuple(self._dtypes.get(at, "") for at in ids.tolist()),
            )
        return known[1:]

    def _fold(self, stat: _GatheredStat) -> None:
        """Merge what came so far, to bound the memory of a job of a thousand processes."""
        ids, rows = self._merge(stat)
        stat.ids, stat.rows, stat.nbytes = [ids], [rows], rows.nbytes

    def _merge(self, stat: _GatheredStat) -> tuple[Names, NDArray[np.float64]]:
        # The usual job of one process: nothing to merge, and no copy.
        if len(stat.ids) == 1:
            return stat.ids[0], stat.rows[0]
        rows = np.concatenate(stat.rows)
        # Central moments of parts merge exactly, in whatever order the ranks sent them (Pébay); raw sums
        # would lose the higher ones here.
        known, where = np.unique(np.concatenate(stat.ids), return_inverse=True)
        columns = {name: rows[:, at] for at, name in enumerate(MOMENT_COLUMNS)}
        merged = merge_moments(columns, where, len(known))
        return known, np.stack([merged[name] for name in MOMENT_COLUMNS], axis=1)

    def _complete(self, step: int, here: _Step, missing: Sequence[int]) -> CompleteStep:
        stats, left_out = [], 0
        for name, stat in here.stats.items():
            ids, rows = self._merge(stat)
            partial = self._partial(name, missing)
            if partial is None or partial:
                keep = np.array([partial is not None and at not in partial for at in ids.tolist()], bool)
                left_out += len(ids) - int(keep.sum())
                ids, rows = ids[keep], rows[keep]
            arranged = self._arrange(name, ids)
            stats.append(
                Merged(name, stat.gradient_stage, stat.loss_scale, arranged.tensors, rows[arranged.order])
            )
        if left_out:
            who = ", ".join(self._name(rank) for rank in missing[:5])
            self._warn(
                f"Statistics of {left_out} tensors of step {step} are left out: {who} had not sent a part "
                "of them."
            )
        return CompleteStep(
            *(step, here.samples, stats, left_out), sorted(here.readings, key=lambda each: each.rank)
        )

    def _partial(self, stat: str, missing: Sequence[int]) -> set[int] | None:
        """Return the names that a part is missing of; None when that is unknown."""
        found: set[int] = set()
        for rank in missing:
            gave = self._ranks[rank].gave.get(stat)
            if gave is None:
                return None
            found.update(gave.tolist())
        return found

    def _arrange(self, stat: str, ids: Names) -> _Arranged:
        arranged = self._arranged.get(stat)
        if arranged is None or not _same(arranged.ids, ids):
            self._sort()
            order = np.argsort(self._order[ids], kind="stable")
            indices = ids[order].tolist()
            stages = np.array([self._stages[at] for at in indices], np.int32)
            arranged = _Arranged(ids, order, Tensors([self._names[at] for at in indices], stages))
            self._arranged[stat] = arranged
        return arranged

    def _sort(self) -> None:
        if len(self._order) != len(self._names):
            order = sorted(range(len(self._names)), key=lambda at: natural_key(self._names[at]))
            self._order = np.empty(len(order), np.int64)
            self._order[order] = np.arange(len(order))


def _same(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one is other or np.array_equal(one, other)
