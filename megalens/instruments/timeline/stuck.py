"""Who is missing in which collective: the calls of all ranks, group by group, in their order.

Each rank numbers its calls in a group. The first number that not every rank of the group calls alike, or that
does not end, says who is to blame: whoever does not call it, or calls something else than most do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import prod
from typing import Any

from ...protocol import join_numbers, ranges_text, shown_text
from .spans import ranks_text

__all__ = ["RULE", "RecordedCall", "Hang", "RankCalls", "find_stuck", "members_of", "stuck_sentences"]

RULE = "stuck"
"""Name of the alarms of what is found."""
_MOST_FINDINGS = 64
_MOST_NAMED = 3
_DEFAULT = "default_pg"
_SAME_SIZES = {
    "all_reduce", "allreduce", "broadcast", "reduce", "_all_gather_base", "_allgather_base",
    "_reduce_scatter_base", "all_gather_into_tensor", "reduce_scatter_tensor",
}  # fmt: skip
"""Every rank must give as many values to these."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call: ``number`` in its group, times in ns since 1970, ``ended`` 0 where it is not known.

    ``sizes`` and ``dtype`` are those of what the rank gives; ``where`` is the line that called, or empty.
    """

    name: str
    number: int
    created: int
    ended: int
    done: bool
    sizes: tuple[tuple[int, ...], ...]
    dtype: str
    where: str = ""

    @property
    def elements(self) -> int:
        return sum(map(prod, self.sizes))

    @property
    def kind(self) -> tuple[str, str, int]:
        """What must be alike on all ranks."""
        same = self.name in _SAME_SIZES
        return self.name, self.dtype if same else "", self.elements if same else 0

    def __str__(self) -> str:
        given = f" of {self.elements} × {self.dtype}" if self.sizes and self.dtype else ""
        return shown_text(f"{self.name}{given}", 100)


Group = tuple[str, str]
"""Name and description."""


@dataclass
class RankCalls:
    """The dump of one rank: by group its calls by number, the last number, and the ranks it says it has."""

    rank: int
    calls: dict[Group, dict[int, RecordedCall]] = field(default_factory=dict)
    last: dict[Group, int] = field(default_factory=dict)
    members: dict[Group, tuple[int, ...]] = field(default_factory=dict)
    messages: list[RecordedCall] = field(default_factory=list)
    """Sends and receives that did not end."""


@dataclass(frozen=True)
class Hang:
    """One collective in which a job is stuck.

    ``ranks`` are to blame, if any is; ``critical`` where nothing else that was found is the reason; ``time``
    is since when the others wait, in s.
    """

    ranks: tuple[int, ...]
    critical: bool
    name: str
    number: int
    time: float
    sentence: str


def members_of(dumps: Sequence[RankCalls]) -> dict[Group, tuple[int, ...]]:
    """Return the ranks of each group: as a dump says, else those that have a call of it."""
    said: dict[Group, set[int]] = {}
    having: dict[Group, set[int]] = {}
    for dump in dumps:
        for group, ranks in dump.members.items():
            said.setdefault(group, set()).update(ranks)
        for group in (*dump.calls, *dump.last):
            having.setdefault(group, set()).add(dump.rank)
    return {group: tuple(sorted(ranks | said.get(group, set()))) for group, ranks in having.items()}


def stuck_sentences(alarms: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return what rows of the stream ``alarms`` say of collectives in which ranks wait."""
    return tuple(str(each["sentence"]) for each in alarms if each["rule"] == RULE)[:_MOST_FINDINGS]


def find_stuck(dumps: Sequence[RankCalls]) -> list[Hang]:
    """Return where the ranks are stuck, the reason first; nothing where all calls ended."""
    members = members_of(dumps)
    by_rank = {dump.rank: dump for dump in dumps}
    waits = {dump.rank: f"{dump.messages[0]}" for dump in dumps if dump.messages}
    first = [
        stuck for group, ranks in sorted(members.items()) if (stuck := _first(group, ranks, by_rank, waits))
    ]
    found = [each.finding(waits) for each in first]
    if not any(each.critical for each in found):
        # Ranks that wait for each other, each in another group.
        found = [replace(each, critical=bool(each.ranks)) for each in found]
    found.sort(key=lambda each: (not each.critical, each.time))
    return found[:_MOST_FINDINGS]


@dataclass(frozen=True)
class _Stuck:
    """The first call of a group that is not whole."""

    group: Group
    number: int
    calls: Mapping[int, RecordedCall]
    waiting: tuple[int, ...]
    missing: tuple[int, ...]
    without_dump: tuple[int, ...]
    members: tuple[int, ...]
    last: Mapping[int, RecordedCall | None]
    is_known: bool
    """Whether a dump says which ranks are in the group."""

    def finding(self, waits: Mapping[int, str]) -> Hang:
        kinds = Counter(call.kind for call in self.calls.values())
        since = min(self.calls[rank].created for rank in self.waiting or self.calls)
        if len(kinds) > 1:
            blamed, sentence = self._differing(kinds)
        else:
            blamed = self.missing or self.without_dump
            sentence = self._missing(waits) if self.missing else self._running()
        # Who waits elsewhere is not the reason.
        free = blamed if len(kinds) > 1 else tuple(rank for rank in blamed if rank not in waits)
        critical = len(kinds) > 1 or bool(free)
        name = next(iter(self.calls.values())).name
        return Hang(free or blamed, critical, name, self.number, since / 1e9, sentence)

    @property
    def _which(self) -> str:
        ranks = ranges_text(join_numbers(self.members))
        return shown_text(f"call {self.number} of {_told(self.group)} (ranks {ranks})", 300)

    def _since(self, ranks: Sequence[int]) -> str:
        first = min((self.calls[rank] for rank in ranks), key=lambda call: call.created)
        return f"since {_clock(first.created)}{_at(first)}"

    def _waits(self) -> str:
        s = "s" if len(self.waiting) == 1 else ""
        call = self.calls[self.waiting[0]]
        return f"{_names(self.waiting)} wait{s} in {call}, {self._which}, {self._since(self.waiting)}"

    def _missing(self, waits: Mapping[int, str]) -> str:
        have = "has" if len(self.missing) == 1 else "have"
        said = f"{self._waits()}: {_names(self.missing, False)} {have} not called it."
        for rank in self.missing[:_MOST_NAMED]:
            last = self.last[rank]
            if rank in waits:
                said += f" Rank {rank} waits in {waits[rank]} instead."
            elif last is None:
                said += f" Rank {rank} has called nothing of this group."
            else:
                when = f"{_clock(last.created)}{_at(last)}"
                said += f" The last that rank {rank} called is {last}, call {last.number}, {when}."
        return said

    def _differing(self, kinds: Counter[tuple[str, str, int]]) -> tuple[tuple[int, ...], str]:
        by_kind = {
            kind: tuple(rank for rank, call in sorted(self.calls.items()) if call.kind == kind)
            for kind, _ in kinds.most_common()
        }
        several = list(by_kind.values())
        most = several[0]
        blamed = (
            tuple(sorted(rank for ranks in several[1:] for rank in ranks))
            if 2 * len(most) > len(self.calls)
            else ()
        )
        parts = [
            f"{_names(ranks, False)} call{'s' if len(ranks) == 1 else ''} {self.calls[ranks[0]]}"
            for ranks in several[:_MOST_NAMED]
        ]
        named = len({kind[0] for kind in kinds}) > 1
        what = (
            "Who calls another one skipped a collective, or called one too many."
            if named
            else "They give values of unlike number or type."
        )
        s = "s" if len(self.waiting) == 1 else ""
        waiting = f" {_names(self.waiting)} wait{s} {self._since(self.waiting)}." if self.waiting else ""
        return blamed, f"In {self._which} {' and '.join(parts)}. {what}{waiting}"

    def _running(self) -> str:
        if not self.is_known:
            return f"{self._waits()}. Which other ranks belong to that group is not in these dumps."
        if self.without_dump:
            may = f"{_names(self.without_dump, False)} may be missing, of which there is no dump"
            return f"{self._waits()}: {may}."
        return (
            f"{self._waits()}, and all of its ranks have called it: it went on when the dumps were made, or "
            "what moves its values hangs."
        )


def _first(
    group: Group, members: tuple[int, ...], by_rank: Mapping[int, RankCalls], waits: dict[int, str]
) -> _Stuck | None:
    there = [rank for rank in members if rank in by_rank]
    of = {rank: by_rank[rank].calls.get(group, {}) for rank in there}
    without = tuple(rank for rank in members if rank not in by_rank)
    through: _Stuck | None = None
    last = {rank: max(by_rank[rank].last.get(group, 0), *of[rank], 0) for rank in there}
    for number in sorted({number for calls in of.values() for number in calls}):
        calls = {rank: mine[number] for rank, mine in of.items() if number in mine}
        waiting = tuple(rank for rank, call in calls.items() if not call.done)
        if not waiting and len({call.kind for call in calls.values()}) < 2:
            continue
        for rank in waiting:
            waits.setdefault(rank, f"{calls[rank]}, call {number} of {_told(group)}")
        missing = tuple(rank for rank in there if last[rank] < number)
        newest = {rank: of[rank][max(of[rank])] if of[rank] else None for rank in missing}
        known = group[1] == _DEFAULT or any(group in dump.members for dump in by_rank.values())
        found = _Stuck(group, number, calls, waiting, missing, without, members, newest, known)
        if (
            missing
            or without
            or len(waiting) == len(calls)
            or len({call.kind for call in calls.values()}) > 1
        ):
            return found
        # All called it and some are through: others were not seen to be. The reason may be a later call.
        through = through or found
    return through


def _told(group: Group) -> str:
    name, said = group
    if said == _DEFAULT:
        return "the default group"
    return shown_text(f"group {name}" if said in ("", "undefined") else said, 100)


def _at(call: RecordedCall) -> str:
    return f" at {shown_text(call.where, 100)}" if call.where else ""


def _names(ranks: Sequence[int], first: bool = True) -> str:
    text = ranks_text(ranks)
    return text[0].upper() + text[1:] if first else text


def _clock(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns / 1e9, UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3] + " UTC"
