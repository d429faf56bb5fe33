"""Spans of a trace in Chrome's format, of anybody's: processes are ranks, names and arguments say what."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from .megascan_files import TimelineError
from .span_columns import SpanColumns, near
from .spans import COMMUNICATION, KINDS
from .trace_events import Event, EventArguments

_NAMES: tuple[tuple[str, str], ...] = (
    ("step", r"(train[_ ]?)?(step|iteration)\b|ProfilerStep"),
    (
        "collective",
        r"all[-_ ]?(reduce|gather|to[-_ ]?all)|reduce[-_ ]?scatter|_(reduce|gather|reduce_scatter)"
        r"|broadcast|barrier|nccl|gloo:|grad[-_ ]sync|exchange-|c10d::",
    ),
    ("send", r"i?send\b"),
    ("receive", r"i?recv\b|receive"),
    ("forward", r"forward"),
    ("wgrad", r"wgrad|weight[-_ ]grad"),
    ("backward", r"backward"),
    ("optimizer", r"optimizer"),
    ("data", r"data[-_ ]?load|enumerate\(DataLoader|get[-_ ]batch"),
    ("checkpoint", r"(save[-_ ])?checkpoint|torch\.save"),
)  # fmt: skip
_PATTERNS = [(kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _NAMES]
_STAGE = re.compile(r"PP(\d{1,5})\b|[Ss]tage (\d{1,5})\b")
_NUMBER = re.compile(r"(\d{1,6})$")
_MOST = 1 << 60
_MOST_INDEX = 1 << 31
FAR_US = 4e15
"""µs: until the year 2096, so that ns fit."""
_MOST_PROCESSES, _MOST_OPEN, _MOST_TICKS = 65_536, 100_000, 200_000
_PASS = re.compile(r"(forward|backward)(-warmup|-cooldown)?")

BEGIN, REDUCE, END = "iteration begin", "reduce", "iteration end"

Stretch = tuple[Any, int, str, int, int]


# MegatronApp's older tracer marks with ticks when an iteration begins and ends, and its pipeline has run
# empty.
class IterationTicks:
    """Collects instants, and makes spans of them."""

    def __init__(self) -> None:
        self._at: dict[tuple[Any, int], dict[str, int]] = {}
        self._threads: dict[tuple[Any, int], set[Any]] = {}

    def take(self, event: Event, ns: int | None) -> None:
        """Take an instant; others than these ticks are ignored."""
        iteration = event.args.iteration if event.args is not None else None
        if event.name not in (BEGIN, REDUCE, END) or ns is None or type(iteration) is not int:
            return
        pid, tid = _key(event.pid), _key(event.tid)
        if not 0 <= iteration < 1 << 60 or len(self._at) >= _MOST_TICKS:
            return
        # What was written twice counts once.
        self._at.setdefault((pid, iteration), {}).setdefault(event.name, ns)
        self._threads.setdefault((pid, iteration), set()).add(tid)

    def stretches(self) -> list[Stretch]:
        """Return process, iteration, ``step`` or ``reduce``, begin and end in ns.

        Raises ``TimelineError`` where several recordings are in one file, as by MegatronApp's
        ``merge_trace.py``: a process then has an iteration on several threads.
        """
        merged = next((threads for threads in self._threads.values() if len(threads) > 1), None)
        if merged:
            threads = " and ".join(sorted(map(str, merged))[:5])
            raise TimelineError(
                f"The trace holds several recordings of the same iterations, on threads {threads} of each "
                "process. Open the files that it was merged from one by one, and compare their runs."
            )
        found: list[Stretch] = []
        for (pid, iteration), at in self._at.items():
            for tick, what in ((BEGIN, "step"), (REDUCE, "reduce")):
                if tick in at and END in at and at[tick] <= at[END]:
                    found.append((pid, iteration, what, at[tick], at[END]))
        return found


def kind_of(name: str) -> str:
    """Return the kind of span that a name suggests, or ``user``."""
    return next((kind for kind, pattern in _PATTERNS if pattern.match(name)), "user")


Pieces = Iterable[tuple[int, list[Event]]]


def chrome_spans(pieces: Pieces, leave_out: Callable[[list[int]], Any]) -> SpanColumns:
    """Return spans; ``leave_out`` is called with the numbers of events that do not fit."""
    spans = SpanColumns()
    begun: dict[tuple[Any, Any], list[tuple[int, Event]]] = {}
    names: dict[Any, str] = {}
    pids: dict[Any, int] = {}
    ticks = IterationTicks()
    opened_now = 0
    for first, events in pieces:
        odd: list[int] = []
        for number, event in enumerate(events, first):
            if event.ph == "M":
                if event.name == "process_name" and event.args is not None and len(names) < _MOST_PROCESSES:
                    names[_key(event.pid)] = str(event.args.name)[:200]
                continue
            if event.ph in ("i", "I"):
                ticks.take(event, _ns(event.ts))
            if event.ph not in ("X", "B", "E", "b", "e"):
                continue
            start = _ns(event.ts)
            process = pids.setdefault(_key(event.pid), len(pids))
            # What is asynchronous has its other half by name and number, on any thread.
            apart = event.ph in ("b", "e")
            which = (event.cat, event.id, event.name) if apart else (event.tid,)
            at = (process, tuple(map(_key, which)))
            if start is None or process >= _MOST_PROCESSES:
                odd.append(number)
            elif event.ph in ("B", "b"):
                if opened_now < _MOST_OPEN:
                    begun.setdefault(at, []).append((number, event))
                    opened_now += 1
                else:
                    odd.append(number)
            elif event.ph in ("E", "e"):
                if begun.get(at):
                    opened_now -= 1
                    number, opened = begun[at].pop()
                    _add(
                        spans, opened, process, number, _ns(opened.ts) or 0, start, (event.args, opened.args)
                    )
                else:
                    odd.append(number)
            else:
                long = _ns(event.dur)
                if long is None or long < 0 or not isinstance(event.name, str):
                    odd.append(number)
                else:
                    _add(spans, event, process, number, start, start + long, (event.args,))
        leave_out(odd)
        if spans.full:
            break
    leave_out([number for several in begun.values() for number, _ in several])
    for pid, iteration, what, start, end in ticks.stretches():
        process = pids.setdefault(pid, len(pids))
        if what == "step":
            spans.add("step", process, start, end, step=iteration)
        else:
            # Gradients are reduced and the optimizer steps, without a named group.
            spans.add("collective", process, start, end, step=iteration, name=what, group=())
    leave_out(spans.keep(near(spans["start"], spans["end"], spans["rank"])))
    _set_ranks(spans, list(pids), names)
    spans.add_steps()
    return spans


def _key(value: Any) -> Any:
    return value[:200] if isinstance(value, str) else value if isinstance(value, int) else None


def _ns(us: Any) -> int | None:
    if isinstance(us, bool) or not isinstance(us, int | float) or not abs(us) < FAR_US:
        return None
    return round(us * 1000)


def _add(
    spans: SpanColumns,
    event: Event,
    process: int,
    number: int,
    start: int,
    end: int,
    arguments: tuple[EventArguments | None, ...],
) -> None:
    """Add the span of an event, for now with its process as rank and the others of its group."""
    name = event.name if isinstance(event.name, str) else ""
    category = event.cat if isinstance(event.cat, str) and event.cat in KINDS else None
    kind = category or kind_of(name)
    given = [each for each in arguments if each is not None]

    def whole(*members: str, least: int = 0, most: int = _MOST) -> int | None:
        for each in given:
            for member in members:
                value = getattr(each, member)
                if isinstance(value, int) and not isinstance(value, bool) and least <= value < most:
                    return value
        return None

    group: Any = next((each.group for each in given if isinstance(each.group, list | str) and each.group), "")
    if isinstance(group, list):
        ranks = tuple(sorted({each for each in group if 0 <= each < 1 << 20})) if len(group) < 65_536 else ()
        group = ranks or ""
    numbers = {
        "step": whole("step", "iteration"),
        "stage": whole("pp_rank", "pp_rk", most=_MOST_INDEX),
        "micro_batch": whole("micro_batch", "micro_batch_index", "microbatch", most=_MOST_INDEX),
        "chunk": whole("chunk", "model_chunk", most=_MOST_INDEX),
        "bytes": whole("bytes", "data"),
        "peer": whole("peer", most=_MOST_INDEX),
        "sequence": whole("sequence"),
        "count": whole("count", least=1, most=_MOST_INDEX),
    }
    blocked = whole("blocked")
    if blocked is not None or (category and kind in COMMUNICATION):
        numbers["blocked"] = min(blocked or 0, end - start)
    if name.startswith("exchange-"):
        # Both ends of an exchange wait for each other.
        name = "exchange"
    elif name.lower() == kind or _PASS.fullmatch(name):
        # MegatronApp names complete passes by the part of the schedule that they are in.
        name = ""
    known = {key: value for key, value in numbers.items() if value is not None}
    spans.add(kind, process, start, end, name=name, group=group, event=number, **known)


def _set_ranks(spans: SpanColumns, pids: list[Any], names: dict[Any, str]) -> None:
    """Derive ranks and stages from processes and their names."""
    process = spans["rank"].copy()
    stages = np.full(len(pids), -1)
    of_stage = spans["stage"] >= 0
    stages[process[of_stage]] = spans["stage"][of_stage]
    order = sorted(
        np.unique(process).tolist(), key=lambda at: (not isinstance(pids[at], int), str(pids[at]).zfill(20))
    )
    ranks = np.zeros(len(pids), np.int64)
    taken: set[int] = set()
    for number, at in enumerate(order):
        pid, name = pids[at], names.get(pids[at], "")
        named = _NUMBER.search(name or (pid if isinstance(pid, str) else ""))
        small = pid if isinstance(pid, int) and 0 <= pid < 1 << 20 else None
        rank = int(named[1]) if named and "rank" in (name or str(pid)).lower() else None
        wanted = rank if rank is not None else small
        ranks[at] = wanted if wanted is not None and wanted not in taken else number
        taken.add(int(ranks[at]))
        stage = _STAGE.search(name)
        if stage:
            stages[at] = int(stage[1] or stage[2])
    spans.set("rank", ranks[process])
    spans.set("stage", stages[process])
    spans.name_groups()
