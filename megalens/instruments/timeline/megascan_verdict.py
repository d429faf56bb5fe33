"""MegaScan's three heuristics, to compare with: at most one slow GPU, with tensor and data parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .dependencies import Dependencies
from .megascan_files import RankTrace, TimelineError, aggregate
from .spans import COMMUNICATION, Spans

_LEAST_SUSPICIONS = 5
_LEAST_SHARE = 0.4

Durations = Mapping[int, Sequence[tuple[str, float]]]
"""By rank, in time order: name and duration of the compared spans."""


@dataclass(frozen=True)
class MegascanVerdict:
    """What MegaScan logs.

    Attributes
    ----------
    suspicions : mapping of int to int
        By rank how often it was the outlier among the ranks that do the same.
    slow : mapping of int to (int, int)
        By rank that it calls slow: its short tensor-parallel reductions, and all of them.
    """

    suspicions: Mapping[int, int]
    slow: Mapping[int, tuple[int, int]]

    @property
    def abnormal(self) -> int | None:
        """The rank that it writes down: the last that it calls slow, since each overwrites the one before."""
        return [*self.slow][-1] if self.slow else None

    def to_message(self) -> dict[str, Any]:
        return {
            "suspicions": [{"rank": rank, "times": count} for rank, count in self.suspicions.items()],
            "slow": [{"rank": rank, "short": few, "of": of} for rank, (few, of) in self.slow.items()],
            "abnormal": self.abnormal,
        }

    def __str__(self) -> str:
        lines = [f"Suspect: rank {rank}, {count} times" for rank, count in self.suspicions.items()]
        lines += [f"Abnormal GPU: rank {rank} ({few} of {all_})" for rank, (few, all_) in self.slow.items()]
        return "\n".join(lines or ["MegaScan's heuristics suspect no rank."])


def megascan_of_files(traces: Sequence[RankTrace]) -> MegascanVerdict:
    """Judge the files of its own tracer.

    Raises ``TimelineError`` for less than two data-parallel or two tensor-parallel ranks: nothing to compare.
    """
    events, _ = aggregate(traces)
    spans = [event for event in events if event.get("ph") == "X"]
    peers: dict[tuple[int, int], list[int]] = {}
    for trace in sorted(traces, key=lambda trace: trace.rank):
        if not trace.coordinates:
            raise TimelineError("These files do not say the place of their rank, which MegaScan needs.")
        peers.setdefault((trace.coordinates["pp_rk"], trace.coordinates["tp_rk"]), []).append(trace.rank)
    durations = {trace.rank: _compared(trace) for trace in traces}
    reductions: dict[int, list[tuple[float, float]]] = {trace.rank: [] for trace in traces}
    for span in spans:
        related = span["args"].get("related_sync_op") if span["name"] == "_reduce" else None
        others = [int(each) for each in related.split()] if related else []
        others = [each for each in others if each != span["args"]["id"]]
        if others:
            mean = float(np.mean([events[each]["dur"] for each in others]))
            reductions[span["pid"]].append((float(span["dur"]), mean))
    return _judge(list(peers.values()), durations, reductions)


def _compared(trace: RankTrace) -> list[tuple[str, float]]:
    """Return the spans of all iterations but the first, which it leaves out, in ns."""
    found: list[tuple[str, float]] = []
    for iteration in trace.iterations[1:]:
        begun: dict[str, list[tuple[int, int]]] = {}
        for row in iteration.rows:
            if row["ph"] == "B":
                begun.setdefault(row["name"], []).append((len(found), row["rel_ts"]))
                found.append((row["name"], 0.0))
            elif row["ph"] == "E" and begun.get(row["name"]):
                at, start = begun[row["name"]].pop()
                found[at] = (row["name"], float(row["rel_ts"] - start))
    return found


def megascan_of_spans(dependencies: Dependencies) -> MegascanVerdict:
    """Judge spans: backward passes, gradient reductions and tensor-parallel collectives stand for what it
    times.

    Raises ``TimelineError`` as :func:`megascan_of_files`.
    """
    spans = dependencies.spans
    tensor, data = _groups(spans)
    first = int(spans.steps[0]) if len(spans.steps) else 0
    names = {"allreduce": data, "_reduce": tensor}
    group_of = {
        name: np.isin(spans.group, [*set(groups.values())]) & spans.of_kind("collective")
        for name, groups in names.items()
    }
    long = (spans.end - spans.start).astype(float)
    durations: dict[int, list[tuple[str, float]]] = {int(rank): [] for rank in spans.ranks}
    for name, which in (
        ("backward", spans.of_kind("backward") & spans.complete_phases),
        ("allreduce", group_of["allreduce"]),
    ):
        for row in np.flatnonzero(which & (spans.step > first)):
            durations[int(spans.rank[row])].append((name, float(long[row])))
    reductions: dict[int, list[tuple[float, float]]] = {rank: [] for rank in durations}
    for event in np.unique(dependencies.event[group_of["_reduce"] & (dependencies.event >= 0)]):
        rows = dependencies.of(int(event))
        total = long[rows].sum()
        for row in rows if len(rows) > 1 else ():
            mean = (total - long[row]) / (len(rows) - 1)
            reductions[int(spans.rank[row])].append((float(long[row]), float(mean)))
    return _judge(sorted({tuple(spans.members(group)) for group in data.values()}), durations, reductions)


def _groups(spans: Spans) -> tuple[dict[int, int], dict[int, int]]:
    """Return each rank's tensor-parallel and data-parallel group.

    The first has most collectives, the second most bytes among those that share no other rank with it.
    """
    rows = np.flatnonzero(spans.of_kind(*COMMUNICATION) & (spans.group >= 0))
    members = {int(each): {*spans.members(int(each))} for each in np.unique(spans.group[rows])}
    tensor, data = {}, {}
    for rank in map(int, spans.ranks):
        mine = rows[spans.rank[rows] == rank]
        count = Counter(spans.group[mine].tolist())
        size = Counter({group: int(spans.bytes[mine][spans.group[mine] == group].sum()) for group in count})
        several = [group for group, _ in count.most_common() if len(members[group]) > 1]
        if not several:
            continue
        tensor[rank] = several[0]
        crossing = [group for group in several if members[group] & members[several[0]] == {rank}]
        if crossing:
            data[rank] = max(crossing, key=size.__getitem__)
    if not data:
        raise TimelineError(
            "MegaScan's heuristics need at least 2 tensor-parallel and 2 data-parallel ranks, and the "
            "collectives of both."
        )
    return tensor, data


def _judge(
    peers: Iterable[Sequence[int]],
    durations: Durations,
    reductions: Mapping[int, Sequence[tuple[float, float]]],
) -> MegascanVerdict:
    suspicions: Counter[int] = Counter()
    for ranks in peers:
        if len(ranks) < 2:
            raise TimelineError("MegaScan's heuristics need at least 2 data-parallel ranks.")
        named = [[name for name, _ in durations[rank]] for rank in ranks]
        if any(names != named[0] for names in named):
            raise TimelineError(f"Ranks {', '.join(map(str, ranks))} did not do the same in the same order.")
        for at, name in enumerate(named[0]):
            values = np.array([durations[rank][at][1] for rank in ranks])
            # Who is slow computes longest and waits least.
            waits = name in ("loss", "allreduce")
            if not waits and name != "backward":
                continue
            odd = int(values.argmin() if waits else values.argmax())
            others = float(np.delete(values, odd).mean())
            if values[odd] < 0.9 * others if waits else values[odd] > 1.1 * others:
                suspicions[ranks[odd]] += 1
    slow = {}
    for rank, count in sorted(suspicions.items()):
        if count <= _LEAST_SUSPICIONS:
            continue
        if not reductions.get(rank):
            raise TimelineError("MegaScan's heuristics need at least 2 tensor-parallel ranks.")
        few = sum(own < 0.9 * others for own, others in reductions[rank])
        if few > _LEAST_SHARE * len(reductions[rank]):
            slow[rank] = (few, len(reductions[rank]))
    return MegascanVerdict(dict(sorted(suspicions.items())), slow)
