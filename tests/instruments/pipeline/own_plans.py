"""Plans for tests: a few schedules written down by hand, and random ones. Without torch."""

from __future__ import annotations

import random
from collections.abc import Callable

from megalens.instruments.pipeline.plan_type import Operation, Placement

__all__ = ["ALL", "SHAPES", "plan_named", "random_plan"]

Priority = Callable[[Operation, int], tuple]


def _dependencies(layout: Placement, each: Operation, split: bool) -> list[Operation]:
    kind, v, m = each
    if kind == "F":
        return [] if layout.is_first(v) else [Operation("F", v - 1, m)]
    if kind == "W":
        return [Operation("I", v, m)]
    needed = [Operation("F", v, m)]
    if not layout.is_last(v):
        needed.append(Operation("I" if split else "B", v + 1, m))
    return needed


def _simulated(layout: Placement, name: str, split: bool, priority, limit=None) -> dict:
    """Unit time, each stage does the best of what it can; forward passes wait where ``limit(stage)`` are under way."""
    kinds = "FIW" if split else "FB"
    left = [
        {Operation(kind, v, m) for v in layout.held_by(s) for m in layout.passing(v) for kind in kinds}
        for s in range(layout.stages)
    ]
    done: set[Operation] = set()
    order: list[list[Operation]] = [[] for _ in left]
    while any(left):
        now = []
        for s, mine in enumerate(left):
            ready = [each for each in mine if all(d in done for d in _dependencies(layout, each, split))]
            if limit is not None:
                under_way = sum(e.kind == "F" for e in order[s]) - sum(e.kind in "BI" for e in order[s])
                if under_way >= limit(s):
                    ready = [each for each in ready if each.kind != "F"] or ready
            if ready:
                now.append((s, min(ready, key=lambda each: priority(each, s))))
        for s, each in now:
            left[s].remove(each)
            order[s].append(each)
            done.add(each)
    return _plan(layout, name, order)


def _plan(layout: Placement, name: str, order: list[list[Operation]]) -> dict:
    return {
        "schedule": name,
        "stages": layout.stages,
        "chunks": layout.chunks,
        "micro_batches": layout.micro_batches,
        "placement": layout.kind,
        "order": [" ".join(map(str, each)) for each in order],
    }


_RANK = {"I": 0, "B": 0, "F": 1, "W": 2}


def _backward_first(each: Operation, s: int) -> tuple:
    return (_RANK[each.kind], each.micro_batch, each.virtual if each.kind == "F" else -each.virtual)


def _forward_first(each: Operation, s: int) -> tuple:
    return (each.kind != "F", each.micro_batch, each.virtual if each.kind == "F" else -each.virtual)


def _breadth(each: Operation, s: int) -> tuple:
    return (_RANK[each.kind], each.virtual if each.kind == "F" else -each.virtual, each.micro_batch)


def _depth(stages: int) -> Priority:
    def priority(each: Operation, s: int) -> tuple:
        v = each.virtual if each.kind == "F" else -each.virtual
        return (_RANK[each.kind], each.micro_batch // stages, v, each.micro_batch)

    return priority


SHAPES = {
    "gpipe": ("loop", 1),
    "1f1b": ("loop", 1),
    "interleaved_1f1b": ("loop", 2),
    "depth_first": ("loop", 2),
    "breadth_first": ("loop", 2),
    "megadpp": ("loop", 2),
    "zb_h1": ("loop", 1),
    "zb_h2": ("loop", 1),
    "zb_v": ("v", 2),
    "dualpipe": ("two_way", 2),
    "dualpipev": ("v", 2),
}
"""Placement and chunks of each."""
ALL = tuple(SHAPES)


def plan_named(name: str, stages: int, micro_batches: int) -> dict:
    """A plan in the manner of a schedule, which the planner's own may differ from."""
    kind, chunks = SHAPES[name]
    layout = Placement(kind, stages, chunks, micro_batches)
    split = name.startswith("zb") or name.startswith("dual")
    if name == "gpipe":
        return _simulated(layout, name, False, _forward_first)
    if name in ("1f1b", "zb_h1"):
        return _simulated(layout, name, split, _backward_first, lambda s: stages - s)
    if name == "zb_h2":
        return _simulated(layout, name, split, _backward_first, lambda s: 2 * (stages - s) - 1)
    if name in ("breadth_first", "megadpp"):
        return _simulated(layout, name, False, _breadth)
    return _simulated(layout, name, split, _depth(stages))


def random_plan(seed: int, stages: int, micro_batches: int, kind: str = "loop", chunks: int = 1) -> dict:
    """A random order that is right: whole and split backward passes mixed."""
    random_ = random.Random(seed)
    layout = Placement(kind, stages, chunks, micro_batches)
    split = {
        (v, m)
        for v in range(layout.virtual_stages)
        for m in layout.passing(v)
        if random_.random() < random_.choice((0, 0.5, 1))
    }
    left = []
    for v in range(layout.virtual_stages):
        for m in layout.passing(v):
            left += [Operation(kind_, v, m) for kind_ in ("FIW" if (v, m) in split else "FB")]
    done: set[Operation] = set()
    order: list[list[Operation]] = [[] for _ in range(stages)]
    while left:
        ready = []
        for each in left:
            follows_split = (each.virtual + 1, each.micro_batch) in split
            if all(needed in done for needed in _dependencies(layout, each, follows_split)):
                ready.append(each)
        each = random_.choice(ready)
        left.remove(each)
        done.add(each)
        order[layout.stage_of(each.virtual)].append(each)
    return _plan(layout, f"random {seed}", order)
