"""What follows from a recording's spans: dependencies, one clock, a verdict with its prices, what-ifs.

MegaScan's three heuristics, to compare with: at most one slow GPU, with tensor and data parallelism.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, overload

import numpy as np
import pyarrow as pa

from ...protocol.messages_generated import Layout, Origin
from ...runs.many import Paths, RunProgress, ask_all
from .clocks import Clocks, clocks
from .culprits import Verdict
from .dependencies import Dependencies, dependencies, with_messages
from .long_steps import lacking
from .megascan_files import RankTrace, TimelineError, aggregate
from .prices import Prices, WhatIf
from .replay import WORK_KINDS, StepChanges, StepReplay
from .spans import COMMUNICATION, Spans, Work, work
from .stuck import stuck_sentences
from .verdict import judge

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


class Analysis:
    """Spans of all ranks, looked at together. Everything is computed when it is first asked for.

    ``all_ranks`` says whether these are the spans of all ranks; otherwise collectives are those of the ranks
    present. ``world`` is how many ranks the job has, 0 where that is not known. ``stuck`` says in which
    collectives ranks wait.
    """

    def __init__(
        self, spans: Spans, *, all_ranks: bool = True, world: int = 0, stuck: Sequence[str] = ()
    ) -> None:
        self.spans, self._all_ranks, self._world = spans, all_ranks, world
        self._stuck = tuple(stuck)

    @cached_property
    def dependencies(self) -> Dependencies:
        return dependencies(self.spans, all_ranks=self._all_ranks)

    @cached_property
    def clocks(self) -> Clocks:
        return clocks(self.dependencies)

    @cached_property
    def work(self) -> Work:
        return work(self.spans)

    @cached_property
    def _linked(self) -> Analysis:
        """The same with messages between pipeline stages, where their passes alone tell of them."""
        linked = with_messages(self.spans)
        if linked is self.spans:
            return self
        return Analysis(linked, all_ranks=self._all_ranks, world=self._world)

    @cached_property
    def _prices(self) -> Prices:
        return Prices(self.spans, self.work, StepReplay(self.dependencies, self.clocks))

    @property
    def summed(self) -> bool:
        """Whether the spans are sums of steps, of which no step can be replayed."""
        return not bool((self.spans.of_kind("step") & (self.spans.count == 1)).any()) or bool(
            (self.spans.count > 1).any()
        )

    @overload
    def verdict(
        self, first: int | None = None, last: int | None = None, method: Literal["megalens"] = "megalens"
    ) -> Verdict: ...
    @overload
    def verdict(
        self, first: int | None = None, last: int | None = None, *, method: Literal["megascan"]
    ) -> MegascanVerdict: ...
    def verdict(
        self, first: int | None = None, last: int | None = None, method: str = "megalens"
    ) -> Verdict | MegascanVerdict:
        """Return who makes the others wait, and by how much the step would be shorter without each.

        Parameters
        ----------
        first, last : int, optional
            Steps to look at; all when absent.
        method : str
            ``megascan``: what MegaScan's heuristics would say, to compare with.

        Raises
        ------
        TimelineError
            For another method, and where MegaScan's has nothing to compare.
        """
        if method not in ("megalens", "megascan"):
            raise TimelineError(f"method must be megalens or megascan, got {method!r:.100}.")
        spans = self.spans
        part = self
        if first is not None or last is not None:
            inside = (spans.step >= (first or 0)) & (spans.step <= (math.inf if last is None else last))
            part = Analysis(spans.take(np.flatnonzero(inside)), world=self._world)
        if method == "megascan":
            return megascan_of_spans(part.dependencies)
        part = part._linked
        if part.summed:
            verdict = judge(part.spans, part.work)
        else:
            verdict = judge(part.spans, part.work, part.dependencies, part.clocks)
        lacks = lacking(part.spans, part.work, None if part.summed else part.dependencies, self._world)
        verdict = replace(verdict, lacking=lacks.sentences, stuck=self._stuck)
        return part._prices.verdict(verdict) if lacks.prices and not part.summed else verdict

    def what_if(
        self,
        work: Mapping[tuple[int, str], float] | None = None,
        links: Mapping[Sequence[int], float] | None = None,
        steps: Sequence[int] | None = None,
    ) -> WhatIf:
        """Return how long steps would be with some durations changed.

        Parameters
        ----------
        work : mapping, optional
            By rank and kind (``compute``, ``data``, ``checkpoint``, ``host``) the factor on its own work:
            ``{(5, "compute"): 0.75}``.
        links : mapping, optional
            By the ranks of a message or collective the factor on its transfers: ``{(2, 4): 0.5}``.
        steps : sequence of int, optional
            Which; some spread over the recording when absent.

        Raises
        ------
        TimelineError
            For ranks, kinds, factors or steps that are not there.
        """
        changes = StepChanges(
            dict(work or {}), {tuple(sorted(ranks)): factor for ranks, factor in (links or {}).items()}
        )
        known = {int(rank) for rank in self.spans.ranks}
        for (rank, kind), factor in changes.work.items():
            if kind not in WORK_KINDS:
                raise TimelineError(f"kind must be one of {', '.join(WORK_KINDS)}, got {kind!r:.100}.")
            self._check(factor, [rank], known)
        for ranks, factor in changes.links.items():
            self._check(factor, ranks, known)
        prices = self._linked._prices
        result = prices.compare(prices.chosen() if steps is None else list(steps), changes)
        if result is None:
            raise TimelineError(
                "None of these steps can be replayed: that needs spans of timeline='phases' or finer of "
                "every rank."
            )
        return result

    @staticmethod
    def _check(factor: Any, ranks: Sequence[int], known: set[int]) -> None:
        for rank in ranks:
            if rank not in known:
                raise TimelineError(
                    f"rank must be one of the recording's, 0 to {max(known)}, got {rank!r:.100}."
                )
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor < 1e6:
            raise TimelineError(f"factor must be a number from 0, got {factor!r:.100}.")


def analyse(run: Any) -> Analysis:
    """Look at the spans of a run.

    Parameters
    ----------
    run : run object or pyarrow.Table
        What ``megalens.open`` or ``megalens.connect`` returned, or rows of the stream ``spans``.

    Raises
    ------
    TimelineError
        When there are none.
    """
    table = run if isinstance(run, pa.Table) else run.table("spans")
    if not len(table):
        raise TimelineError(
            "The run has no spans. Record them with megalens.trace(model, timeline='phases') or "
            "run.configure(timeline='phases')."
        )
    if isinstance(run, pa.Table):
        return Analysis(Spans.of(table))
    stuck = stuck_sentences(run.table("alarms").select(["rule", "sentence"]).to_pylist())
    return Analysis(Spans.of(table), world=world_of(run.layout, run.origin), stuck=stuck)


def verdict_of(run: Any, first: int | None = None, last: int | None = None) -> Verdict:
    """Return the verdict on a run, as :meth:`Analysis.verdict`."""
    return analyse(run).verdict(first, last)


def judge_runs(
    paths: Paths,
    first: int | None = None,
    last: int | None = None,
    *,
    engine: Any = None,
    progress: RunProgress | None = None,
) -> dict[str, Verdict]:
    """Judge the timelines of many runs; parameters, order and errors are those of ``megalens.ask_all``.

    On an engine a run is a task: the clocks of all its ranks are found together, which takes most of the
    time.
    """
    ask = partial(verdict_of, first=first, last=last)
    return ask_all(paths, ask, engine=engine, progress=progress)


def world_of(layout: Layout | None, origin: Origin | None) -> int:
    """Return of how many ranks a run says that its job is; 0 where it does not."""
    if layout is not None:
        return layout["world_size"]
    return origin.get("ranks", 0) if origin is not None else 0
