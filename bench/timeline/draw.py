"""Random jobs with faults that can be told from what they record."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.kit.simulated_jobs import Fault, Job

__all__ = ["draw"]

_SHAPES = {
    8: ((2, 2, 2), (1, 8, 1), (1, 1, 8), (2, 4, 1), (8, 1, 1), (4, 1, 2), (1, 4, 2)),
    16: ((2, 2, 4), (4, 4, 1), (1, 4, 4), (2, 8, 1), (1, 2, 8), (4, 2, 2)),
    32: ((4, 4, 2), (8, 2, 2), (2, 4, 4), (1, 8, 4)),
    64: ((8, 4, 2), (4, 4, 4), (1, 8, 8)),
    256: ((8, 8, 4),),
    1024: ((8, 16, 8),),
}
_SHARE = {8: 0.45, 16: 0.3, 32: 0.155, 64: 0.08, 256: 0.01, 1024: 0.005}
_KINDS = {"device": 0.5, "data": 0.13, "host": 0.13, "link": 0.12, "stage": 0.06, "step": 0.06}


def draw(seed: int, most_ranks: int = 1024) -> Job:
    """Return a job of a seed: its layout, its chances and 0 to 4 faults, a quarter of them healthy.

    Faults are at least 5 % (of links 30 %, of stages 15 %), go on for at least eight steps, and less than half of the ranks that do the same are slow: who is slow is who differs.
    """
    random = np.random.default_rng([seed, 7])
    sizes = [size for size in _SHAPES if size <= most_ranks]
    chances = np.array([_SHARE[size] for size in sizes])
    size = int(random.choice(sizes, p=chances / chances.sum()))
    tensor, pipeline, data = _SHAPES[size][random.integers(len(_SHAPES[size]))]
    alone = tensor * data == 1
    job = Job(
        tensor=tensor,
        pipeline=pipeline,
        data=data,
        micro_batches=int(random.integers(4, 9)),
        layers=int(random.integers(1, 3)),
        steps=int(random.integers(24, 41)) if size < 256 else 24,
        seed=seed,
        granularity="layers" if alone else "phases",
        norm=bool(random.random() < 0.8) or pipeline == 1,
    )
    count = int(random.choice(5, p=(0.25, 0.35, 0.2, 0.12, 0.08)))
    faults: list[Fault] = []
    for _ in range(20 * count):
        if len(faults) == count:
            break
        fault = _fault(job, random)
        if fault is not None and _apart(job, [*faults, fault]):
            faults.append(fault)
    return replace(job, faults=tuple(faults))


def _fault(job: Job, random: np.random.Generator) -> Fault | None:
    kind = str(random.choice(list(_KINDS), p=list(_KINDS.values())))
    alone = job.tensor * job.data == 1
    first, last = 1, job.steps
    # What has nothing to compare with shows by beginning or ending.
    if random.random() < 0.5 or (alone and kind in ("host", "link")):
        first = int(random.integers(9, job.steps - 9))
        last = int(min(job.steps, first + random.integers(8, max(9, job.steps // 2))))
    grid = np.arange(job.ranks).reshape(job.pipeline, job.data, job.tensor)
    rank = int(random.integers(job.ranks))
    stage, d, t = (int(each[0]) for each in np.where(grid == rank))

    def size(least: float, most: float) -> float:
        return 1 + float(np.exp(random.uniform(np.log(least), np.log(most))))

    if kind == "device":
        return Fault(kind, (rank,), size(0.05, 0.5), first, last)
    if kind == "host":
        return Fault(kind, (rank,), size(0.05, 0.3), first, last)
    if kind == "data":
        return Fault(kind, (int(grid[0, d, t]),), size(0.05, 0.3), first, last)
    if kind == "step":
        step = int(random.integers(4, job.steps - 3))
        return Fault(kind, tuple(range(job.ranks)), size(1, 4), step, step)
    if kind == "stage":
        if job.pipeline < 3:
            return None
        return Fault(kind, tuple(grid[stage].ravel().tolist()), size(0.15, 0.6), 1, job.steps)
    ends: list[int] = []
    if job.pipeline > 1 and (random.random() < 0.5 or job.tensor == 1):
        low = min(stage, job.pipeline - 2)
        ends = grid[low : low + 2, d, t].tolist()
    elif job.tensor > 1 and job.pipeline * job.data > 2:
        ends = grid[stage, d, :2].tolist()
    return Fault(kind, tuple(ends), size(0.3, 3), first, last) if ends else None


def _apart(job: Job, faults: list[Fault]) -> bool:
    """Return whether each fault can be told from the others: less than half of the ranks of a stage are slow, no two faults are on one rank or link, and one stage at most has more to do."""
    slow: dict[tuple[str, int], set[int]] = {}
    taken: list[tuple[int, ...]] = []
    for fault in faults:
        if fault.kind in ("device", "host", "data"):
            if any(fault.ranks == each for each in taken):
                return False
            taken.append(fault.ranks)
            stage = fault.ranks[0] // (job.tensor * job.data)
            alone = job.tensor * job.data == 1
            slow.setdefault((fault.kind, 0 if alone else stage), set()).update(fault.ranks)
    peers = job.pipeline if job.tensor * job.data == 1 else job.tensor * job.data
    links = [each for each in faults if each.kind == "link"]
    return (
        all(2 * len(ranks) < peers or (peers == 2 and len(ranks) == 1) for ranks in slow.values())
        and len(links) <= 1
        and sum(each.kind == "stage" for each in faults) <= 1
        and sum(each.kind == "step" for each in faults) <= 1
    )
