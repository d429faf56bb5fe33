"""The timeline of a run: lanes of its ranks on one clock, a verdict, and the slow ranks of each step."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol import TimelineRequest, check_request, must_be
from ...protocol.ranges import in_ranges, read_ranges
from ...runs.answers.selection import StreamRows, check_cancelled
from ...runs.query import Query
from ...runs.run_folder import RunFolder
from .analysis import Analysis, world_of
from .culprits import Verdict
from .lanes import MOST_LANES, found_of, lanes_of, links_of, path_of, sums_of
from .long_steps import median
from .memory_lanes import COLUMNS, MOST_MEMORY_ROWS, MemoryRows, memory_of
from .memory_rows import STREAM as MEMORY
from .spans import Spans
from .stuck import RULE, stuck_sentences

STREAM = "spans"
MOST_ROWS = 1_500_000
_DRAFT_ROWS = 150_000
"""Of fewer rows the verdict is as fast."""
_MOST_STORED = 2
_COLUMNS = 1000


_Found = TypeVar("_Found")


class _Newest(Generic[_Found]):
    """The last results: who pans asks about the same rows."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[Any, ...], _Found] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: tuple[Any, ...]) -> _Found | None:
        with self._lock:
            if key in self._stored:
                self._stored.move_to_end(key)
            return self._stored.get(key)

    def put(self, key: tuple[Any, ...], found: _Found) -> None:
        with self._lock:
            self._stored[key] = found
            while len(self._stored) > _MOST_STORED:
                self._stored.popitem(last=False)


_answers, _drafts = _Newest[tuple[Analysis, dict[str, Any]]](), _Newest[tuple[Analysis, dict[str, Any]]]()
_memories = _Newest[MemoryRows]()


def read_timeline(
    rows: StreamRows, request: Mapping[str, Any], key: object, cancelled: threading.Event
) -> dict[str, Any]:
    """Return what a view draws of a run's spans, as plain JSON.

    ``request`` may have ``first`` and ``last`` step (by default the newest, as many as fit), ``window`` in ms
    since the first of them, ``columns`` (pixels), ``ranks`` as text, ``row`` whose dependencies are wanted,
    ``path`` for the critical path, ``find``, a text in names, with ``found_from``, the number of the first
    that is wanted, ``sums``, a window whose spans are summed, with ``sums_ranks``; ``draft`` is for
    :func:`draft_timeline`.
    ``key`` identifies this run's rows in the cache. Raises ``ProtocolError`` naming the wrong member.
    """
    asked = _Asked.of(request)
    available, chosen, count = _steps(rows, asked.first, asked.last, cancelled)
    if chosen is None:
        return {"steps_there": None}
    analysis, more = _analysis(rows, key, chosen, count, cancelled)
    spans = analysis.spans
    stages = spans.stage[spans.first_rows]
    ranks, there = asked.lanes(spans.ranks, stages, more["verdict"]["culprits"])
    memory = _memory(rows, key, chosen, count, cancelled)
    return {"steps_there": available, "chosen": list(chosen), **there, **more} | _drawn(
        analysis, asked, ranks, memory
    )


def draft_timeline(
    rows: StreamRows, request: Mapping[str, Any], key: object, cancelled: threading.Event
) -> dict[str, Any] | None:
    """Return the lanes of :func:`read_timeline` before the verdict, which takes seconds for a large job.

    Only the spans of the drawn ranks are read, and their clocks are found from these alone. ``draft`` is
    true, and there are no culprits and no slow ranks. None where the complete answer is as fast.
    """
    asked = _Asked.of(request)
    available, chosen, count = _steps(rows, asked.first, asked.last, cancelled)
    if chosen is None or count <= _DRAFT_ROWS or _answers.get((key, chosen, count)) is not None:
        return None
    steps = Query(first=chosen[0], last=chosen[1])
    table = pa.Table.from_batches(rows.batches(STREAM, steps, ["rank", "stage"]))
    every, at = np.unique(table["rank"].to_numpy(), return_index=True)
    stages = table["stage"].to_numpy()[at]
    ranks, there = asked.lanes(every, stages, ())
    if not ranks or 2 * len(ranks) > len(every):
        return None
    cache_key = (key, chosen, count, tuple(ranks))
    found = _drafts.get(cache_key)
    if found is None:
        stage = {int(each) for each in stages[np.isin(every, ranks)]}
        where = (("stage", stage.pop()),) if len(stage) == 1 else ()
        spans = _spans(rows, replace(steps, where=where), cancelled, pa.array(ranks, pa.int32()))
        analysis = Analysis(spans, all_ranks=False)
        complete_steps = analysis.work.step[np.isfinite(analysis.work.step)]
        usual = float(np.median(complete_steps)) if complete_steps.size else math.nan
        verdict = Verdict((), 0, 0, usual).to_message()
        found = analysis, {"verdict": verdict, "slow": {"ranks": [], "steps": [], "values": []}}
        _drafts.put(cache_key, found)
    analysis, drafted = found
    memory = _memory(rows, key, chosen, count, cancelled)
    return {"draft": True, "steps_there": available, "chosen": list(chosen), **there, **drafted} | _drawn(
        analysis, replace(asked, row=None, path=False), ranks, memory
    )


@dataclass(frozen=True)
class _Asked:
    """A checked request."""

    window: tuple[float, float] | None
    sums: tuple[float, float] | None
    ranks: Any
    sums_ranks: Any
    columns: int
    first: int | None = None
    last: int | None = None
    row: int | None = None
    path: bool = False
    find: str = ""
    found_from: int = 0
    draft: bool = False

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> _Asked:
        asked: dict[str, Any] = {**check_request(TimelineRequest, request)}
        asked["columns"] = asked.get("columns") or _COLUMNS
        asked |= {name: _window(name, asked.get(name)) for name in ("window", "sums")}
        asked |= {name: read_ranges(asked.get(name, "all"), name) for name in ("ranks", "sums_ranks")}
        return cls(**asked)

    def lanes(
        self, ranks: Any, stages: Any, culprits: Sequence[Mapping[str, Any]]
    ) -> tuple[list[int], dict[str, int]]:
        """Return the drawn ranks in order, and the numbers of all and of chosen ones."""
        ordered: list[int] = ranks[np.lexsort((ranks, stages))].tolist()
        chosen = [rank for rank in ordered if in_ranges(rank, self.ranks)]
        there = {"ranks_there": len(ordered), "ranks_chosen": len(chosen)}
        return _first_lanes(chosen, culprits), there


def _window(name: str, times: Sequence[float] | None) -> tuple[float, float] | None:
    if times is None:
        return None
    if not 1e-6 <= times[1] - times[0] < math.inf:
        raise must_be(name, "two times in ms, the second larger", times, name)
    return times[0], times[1]


def _drawn(
    analysis: Analysis, asked: _Asked, ranks: Sequence[int], memory: MemoryRows | None
) -> dict[str, Any]:
    lanes = lanes_of(analysis, ranks, asked.window, asked.columns)
    first, last = lanes["whole"]
    return {
        **lanes,
        "memory": None
        if memory is None
        else memory_of(memory, analysis, ranks, asked.window, asked.columns, (first, last)),
        "links": [] if asked.row is None else links_of(analysis, asked.row),
        "path": path_of(analysis, asked.window) if asked.path else [],
        "found": found_of(analysis, ranks, asked.find, asked.found_from)
        if asked.find
        else {"count": 0, "since": 0, "first": []},
        "sums": None
        if asked.sums is None
        else sums_of(analysis, [rank for rank in ranks if in_ranges(rank, asked.sums_ranks)], asked.sums),
    }


def step_counts(rows: StreamRows, cancelled: threading.Event) -> dict[int, int]:
    counts: dict[int, int] = {}
    if STREAM not in rows.streams:
        return counts
    for batch in rows.batches(STREAM, Query(), ["step"]):
        check_cancelled(cancelled)
        steps, sizes = np.unique(batch.column("step").to_numpy(), return_counts=True)
        for step, size in zip(steps.tolist(), sizes.tolist(), strict=True):
            counts[step] = counts.get(step, 0) + size
    return counts


def _steps(
    rows: StreamRows, first: int | None, last: int | None, cancelled: threading.Event
) -> tuple[list[int] | None, tuple[int, int] | None, int]:
    """Return the first and last existing step, those to look at, and their number of rows."""
    counts = step_counts(rows, cancelled)
    there = sorted(counts)
    wanted = [step for step in there if (first is None or step >= first) and (last is None or step <= last)]
    chosen: list[int] = []
    total = 0
    for step in reversed(wanted):
        if chosen and total + counts[step] > MOST_ROWS:
            break
        chosen.append(step)
        total += counts[step]
    if not chosen:
        return ([there[0], there[-1]] if there else None), None, 0
    return [there[0], there[-1]], (chosen[-1], chosen[0]), total


def _analysis(
    rows: StreamRows, key: object, chosen: tuple[int, int], count: int, cancelled: threading.Event
) -> tuple[Analysis, dict[str, Any]]:
    cache_key = (key, chosen, count)
    if (found := _answers.get(cache_key)) is not None:
        return found
    header: Mapping[str, Any] = rows.header if isinstance(rows, RunFolder) else {}
    world = world_of(header.get("layout"), header.get("origin"))
    asked = Query(first=chosen[0], last=chosen[1])
    stuck: tuple[str, ...] = ()
    if "alarms" in rows.streams:
        of_rule = replace(asked, where=(("rule", RULE),))
        found_there = rows.batches("alarms", of_rule, ["rule", "sentence"])
        stuck = stuck_sentences(row for batch in found_there for row in batch.to_pylist())
    analysis = Analysis(_spans(rows, asked, cancelled), world=world, stuck=stuck)
    more = {"verdict": analysis.verdict().to_message(), "slow": _slow(analysis)}
    check_cancelled(cancelled)
    _answers.put(cache_key, (analysis, more))
    return analysis, more


def _spans(
    rows: StreamRows, query: Query, cancelled: threading.Event, ranks: pa.Array | None = None
) -> Spans:
    """Read the matching spans of some ranks or of all."""
    batches = []
    for batch in rows.batches(STREAM, query):
        check_cancelled(cancelled)
        batches.append(batch if ranks is None else batch.filter(pc.is_in(batch.column("rank"), ranks)))
    return Spans.of(pa.Table.from_batches(batches))


def _memory(
    rows: StreamRows, key: object, chosen: tuple[int, int], count: int, cancelled: threading.Event
) -> MemoryRows | None:
    """Return the memory of the chosen steps, of too many rows the newest; None without any."""
    if MEMORY not in rows.streams:
        return None
    cache_key = (key, chosen, count)
    if (found := _memories.get(cache_key)) is not None:
        return found
    batches = []
    for batch in rows.batches(MEMORY, Query(first=chosen[0], last=chosen[1]), COLUMNS):
        check_cancelled(cancelled)
        batches.append(batch)
    table = pa.Table.from_batches(batches) if batches else None
    if table is None or not table.num_rows:
        return None
    found = MemoryRows.of(table.slice(max(0, table.num_rows - MOST_MEMORY_ROWS)))
    _memories.put(cache_key, found)
    return found


def _slow(analysis: Analysis) -> dict[str, Any]:
    """Return each rank's excess over its stage in each step (0.1: 10 % longer), None where absent.

    A rank that is alone is compared with its own usual step.
    """
    done = analysis.work
    alone = len(done.ranks) == 1
    with np.errstate(invalid="ignore"):
        ratio = np.full(done.compute.shape, np.nan)
        for stage in np.unique(done.stage):
            mine = done.stage == stage
            ratio[mine] = done.compute[mine] / median(done.compute[mine], int(alone)) - 1
    return {
        "ranks": done.ranks.tolist(),
        "steps": done.steps.tolist(),
        "values": [
            [None if value != value else round(value, 4) for value in line] for line in ratio.tolist()
        ],
    }


def _first_lanes(ranks: Sequence[int], culprits: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return as many ranks as there are lanes, with those of culprits."""
    named = [rank for each in culprits for rank in each["ranks"]][: MOST_LANES // 2]
    left = MOST_LANES - len({*named} & {*ranks})
    others = [rank for rank in ranks if rank not in named][:left]
    drawn = {*named, *others}
    return [rank for rank in ranks if rank in drawn]
