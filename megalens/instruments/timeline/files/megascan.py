"""MegatronApp's aggregate of the traces of all ranks: one list of Chrome's events, value for value and in the order of its own script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .megascan_files import RankTrace, TimelineError

__all__ = ["aggregate"]

_PLACE = ("dp_rk", "pp_rk", "tp_rk", "dev", "g_rk")
_COLORS = (
    ("forward", "thread_state_running"),
    ("backward", "thread_state_iowait"),
    ("recv", "rail_response"),
    ("send", "rail_animation"),
    ("exchange-next", "thread_state_runnable"),
    ("exchange-prev", "thread_state_uninterruptible"),
    ("allreduce", "light_memory_dump"),
    ("optimizer", "detailed_memory_dump"),
)
_NOT_ATTRIBUTES = ("name", "ph", "rel_ts", "cat", *_PLACE)


def aggregate(traces: Sequence[RankTrace]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the events, times in µs, and what was left out, in sentences.

    An iteration begins on all ranks at once, after the longest pause of any rank, and lasts as long as on the slowest: a barrier before each is the only clock that these files share. Of files whose rows say
    their place, a span is one event with its duration, and spans that wait for each other name each other; of the older ones beginnings and ends stay events of their own, and so do instants.

    Parameters
    ----------
    traces : sequence of RankTrace
        With as many iterations each, in the order in which events of one time are to come.
    """
    placed = [bool(trace.place) for trace in traces]
    if any(placed) != all(placed):
        raise TimelineError(
            "Some files say the place of their rank and some do not: give a folder that holds one job."
        )
    rows = list(_rows(traces))
    if not all(placed):
        return [_event(row, iteration, rank, start) for row, iteration, rank, start in rows], []
    events, problems = _spans(rows)
    for number, event in enumerate(events):
        event["args"]["id"] = number
    _relate(events)
    return [*events, *_names(traces)], problems


def _rows(traces: Sequence[RankTrace]) -> Iterator[tuple[dict[str, Any], int, int, int]]:
    """Give rows of all ranks by time, each with its iteration, its rank and the ns at which the iteration began."""
    start = 0
    for number in range(min((len(trace.iterations) for trace in traces), default=0)):
        several = [(trace.rank, trace.iterations[number]) for trace in traces]
        start += max(iteration.pad for _, iteration in several)
        merged = [(row, rank) for rank, iteration in several for row in iteration.rows]
        merged.sort(key=lambda each: each[0]["rel_ts"])
        yield from ((row, number, rank, start) for row, rank in merged)
        start += max(iteration.duration for _, iteration in several)


def _event(row: dict[str, Any], iteration: int, rank: int, start: int) -> dict[str, Any]:
    name = row["name"]
    place = {key: row[key] for key in _PLACE if key in row}
    attributes = {key: value for key, value in row.items() if key not in _NOT_ATTRIBUTES}
    return {
        "name": name,
        "cname": next((color for begin, color in _COLORS if name.startswith(begin)), "unknown"),
        "ph": row["ph"],
        "ts": (row["rel_ts"] + start) // 1000,
        "pid": rank,
        "tid": 0,
        "args": {"iteration": iteration, **place, **attributes},
        **({"cat": row["cat"]} if "cat" in row else {}),
    }


def _spans(rows: Sequence[tuple[dict[str, Any], int, int, int]]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return one event for each beginning and its end on the same rank."""
    spans: list[dict[str, Any]] = []
    begun: dict[int, list[dict[str, Any]]] = {}
    lost = 0
    for row, iteration, rank, start in rows:
        if row["ph"] == "i":
            continue
        event = _event(row, iteration, rank, start)
        open_here = begun.setdefault(rank, [])
        if row["ph"] == "B":
            open_here.append(event)
            spans.append(event)
            continue
        at = next(
            (at for at in reversed(range(len(open_here))) if open_here[at]["name"] == event["name"]), None
        )
        if at is None:
            lost += 1
            continue
        span = open_here.pop(at)
        span |= {
            "ph": "X",
            "dur": event["ts"] - span["ts"],
            **({"cat": event["cat"]} if "cat" in event else {}),
        }
        span["args"] |= event["args"]
    whole = [span for span in spans if span["ph"] == "X" and span["dur"] >= 0]
    lost += len(spans) - len(whole)
    return whole, [f"{lost} beginnings or ends of spans have no other half."] if lost else []


def _relate(events: Sequence[dict[str, Any]]) -> None:
    """Let spans that wait for each other name each other: those of one group that have the name that the first of them expects."""
    waiting: dict[tuple[str, tuple[int, ...]], tuple[list[dict[str, Any]], set[int]]] = {}
    for event in events:
        arguments = event["args"]
        others, rank = arguments.get("group"), event["pid"]
        if not isinstance(others, list) or not all(isinstance(each, int) for each in others):
            continue
        group = tuple(sorted({*others, rank}))
        joined = waiting.get((event["name"], group))
        if joined is None:
            expected = arguments.get("expect") or event["name"]
            waiting[expected, group] = ([event], {rank})
            continue
        several, ranks = joined
        several.append(event)
        ranks.add(rank)
        if len(several) >= len(group):
            related = " ".join(str(each["args"]["id"]) for each in several)
            for each in several:
                each["args"] |= {"related_sync_op": related, "group": list(group)}
            del waiting[event["name"], group]


def _names(traces: Sequence[RankTrace]) -> Iterator[dict[str, Any]]:
    stages = 1 + max(trace.place["pp_rk"] for trace in traces)
    tensors = 1 + max(trace.place["tp_rk"] for trace in traces)
    for trace in traces:
        d, p, t = (trace.place[each] for each in ("dp_rk", "pp_rk", "tp_rk"))
        about = (
            ("process_name", {"name": f"DP{d}-PP{p}-TP{t}"}),
            ("process_sort_index", {"sort_index": (d * stages + p) * tensors + t}),
        )
        for name, args in about:
            yield {"name": name, "ph": "M", "pid": trace.rank, "args": args}
