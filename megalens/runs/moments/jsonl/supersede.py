"""Which records a later one supersedes: of a run that went back to an earlier step, and of writers of another world size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ....protocol import MOMENT_STATS
from .cached_file import CachedFile

__all__ = ["Hidden", "Superseded", "supersede"]

_FOREVER = 1 << 62


@dataclass(frozen=True)
class Hidden:
    """Rows of some names of a stat that lie in ranges of steps."""

    stat: str
    names: frozenset[str]
    spans: tuple[tuple[int, int], ...]


@dataclass
class Superseded:
    """What of one file does not count any more.

    Attributes
    ----------
    dead : ndarray
        Where the lines of superseded records begin.
    alive : ndarray
        The records that count, as :meth:`CachedFile.records` has them.
    hidden : list of Hidden
        Rows that another file has newer ones for.
    """

    dead: NDArray[np.int64]
    alive: NDArray[np.int64]
    hidden: list[Hidden] = field(default_factory=list)


def supersede(files: Sequence[CachedFile]) -> tuple[list[Superseded], list[str]]:
    """Return what of each file counts, and sentences about what does not.

    A record whose step is not after that of the one before it, of the same stat in the same file, says that the run went back: every older record at or after that step is
    superseded. Of two files that have the same names at the same steps the one written to last counts, from where it begins; gaps in it leave the other's rows.
    """
    warnings: dict[str, None] = {}
    found = [_within(file, warnings) for file in files]
    for code, stat in enumerate(MOMENT_STATS):
        writers = [at for at, one in enumerate(found) if (one.alive[:, 1] == code).any()]
        # Newest last; of equals the one that began later.
        writers.sort(
            key=lambda at: (files[at].written, int(found[at].alive[found[at].alive[:, 1] == code, 2].min()))
        )
        for place, older in enumerate(writers):
            for newer in writers[place + 1 :]:
                said = _between(files[older], found[older], files[newer], found[newer], code, stat)
                if said:
                    warnings[said] = None
    return found, list(warnings)


def _within(file: CachedFile, warnings: dict[str, None]) -> Superseded:
    records = file.records()
    dead = np.zeros(len(records), bool)
    for code in np.unique(records[:, 1]):
        places = np.flatnonzero(records[:, 1] == code)
        steps = records[places, 2]
        back = np.flatnonzero(steps[1:] <= steps[:-1])
        if not len(back):
            continue
        # A record is superseded if any later one has the same or an earlier step: compare it to the least step from the next record on.
        least = np.minimum.accumulate(steps[::-1])[::-1]
        dead[places[:-1]] = least[1:] <= steps[:-1]
        first = int(back[-1])
        times = "" if len(back) == 1 else f" (the last of {len(back)} times)"
        warnings[
            f"{MOMENT_STATS[int(code)]}: the run went back from step {int(steps[first])} to {int(steps[first + 1])}{times}; "
            "older rows at or after that step are superseded."
        ] = None
    return Superseded(records[dead, 0], records[~dead])


def _between(
    older: CachedFile, old: Superseded, newer: CachedFile, new: Superseded, code: int, stat: str
) -> str | None:
    """Hide of ``old`` what ``new`` has; return what to say of it."""
    ours = old.alive[old.alive[:, 1] == code]
    theirs = new.alive[new.alive[:, 1] == code]
    least = most = None
    for mine in np.unique(ours[:, 4]):
        mine_names = frozenset(older.layouts[int(mine)])
        steps = ours[ours[:, 4] == mine, 2]
        for other in np.unique(theirs[:, 4]):
            shared = mine_names & frozenset(newer.layouts[int(other)])
            if not shared:
                continue
            spans = _spans(np.unique(theirs[theirs[:, 4] == other, 2]))
            inside = np.zeros(len(steps), bool)
            for low, high in spans:
                inside |= (steps >= low) & (steps <= high)
            if inside.any():
                old.hidden.append(Hidden(stat, shared, spans))
                least = min(int(steps[inside].min()), _FOREVER if least is None else least)
                most = max(int(steps[inside].max()), -_FOREVER if most is None else most)
    if least is None:
        return None
    return (
        f"{stat}: {newer.source.name} was written to after {older.source.name} and has the same tensors, so its rows count "
        f"for steps {least} to {most}. The job was probably restarted with another number of processes."
    )


def _spans(steps: NDArray[np.int64]) -> tuple[tuple[int, int], ...]:
    """Return the ranges that a writer covers: runs of steps without a gap of more than twice the usual distance, the last one open."""
    if len(steps) < 2:
        return ((int(steps[0]), _FOREVER),)
    far = np.diff(steps)
    breaks = np.flatnonzero(far > 2 * np.median(far))
    firsts = [int(steps[0]), *(int(steps[at + 1]) for at in breaks)]
    lasts = [*(int(steps[at]) for at in breaks), _FOREVER]
    return tuple(zip(firsts, lasts, strict=True))
