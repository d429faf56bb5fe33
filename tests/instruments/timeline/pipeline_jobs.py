"""Small pipelines with known times, in the formats of MegatronApp's older tracer and as rows of the stream ``spans``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from span_rows import table

FORWARD, BACKWARD, LATENCY = 10, 20, 3
"""ms of a pass, and of a message."""
REST = 4
"""ms from the last pass of all to the end of the iteration."""


class Pass(NamedTuple):
    """One pass; times in ms since its iteration began."""

    kind: str
    stage: int
    chunk: int
    micro_batch: int
    begin: int
    end: int


@dataclass(frozen=True)
class Pipeline:
    """Every stage runs all forward passes chunk by chunk, then all backward passes."""

    stages: int = 2
    chunks: int = 1
    micro_batches: int = 2
    placement: str = "loop"

    def virtual(self, stage: int, chunk: int) -> int:
        back = self.placement == "v" and chunk % 2 == 1
        return chunk * self.stages + (self.stages - 1 - stage if back else stage)

    def passes(self) -> list[Pass]:
        free = [0] * self.stages
        ended: dict[tuple[str, int, int], int] = {}
        queues = [
            [("forward", c, m) for c in range(self.chunks) for m in range(self.micro_batches)]
            + [("backward", c, m) for c in reversed(range(self.chunks)) for m in range(self.micro_batches)]
            for _ in range(self.stages)
        ]
        found = []
        last = self.stages * self.chunks - 1
        while any(queues):
            for stage, queue in enumerate(queues):
                if not queue:
                    continue
                kind, chunk, m = queue[0]
                at = self.virtual(stage, chunk)
                needs = (kind, at - 1 if kind == "forward" else at + 1, m)
                first = at == (0 if kind == "forward" else last)
                if not first and needs not in ended:
                    continue
                queue.pop(0)
                begin = free[stage] if first else max(free[stage], ended[needs] + LATENCY)
                free[stage] = ended[kind, at, m] = begin + (FORWARD if kind == "forward" else BACKWARD)
                found.append(Pass(kind, stage, chunk, m, begin, free[stage]))
        return found

    def length(self) -> int:
        return max(each.end for each in self.passes()) + REST

    def chrome(self, iterations=3, ticks=True, tid=0, first=0) -> list[dict]:
        """Events as the older ``aggregate.py`` writes them; the first iteration takes twice as long."""
        events, zero = [], 0
        for number in range(first, first + iterations):
            factor = 2 if number == 0 else 1
            mine = []

            def mark(ph, name, pid, ms, zero=zero, factor=factor, mine=mine, number=number, **more):
                event = {"name": name, "cname": "unknown", "ph": ph, "ts": (zero + ms * factor) * 1000}
                mine.append({**event, "pid": pid, "tid": tid, "args": {"iteration": number, **more}})

            for each in self.passes():
                where = {"microbatch": each.micro_batch, "model_chunk": each.chunk, "pp_rank": each.stage}
                mark("B", each.kind, each.stage, each.begin)
                mark("E", each.kind, each.stage, each.end, **where)
            for stage in range(self.stages) if ticks else ():
                done = max(each.end for each in self.passes() if each.stage == stage)
                for name, at in (("iteration begin", 0), ("reduce", done), ("iteration end", self.length())):
                    mark("i", name, stage, at)
            # An end before the beginning at the same moment.
            events += sorted(mine, key=lambda event: (event["ts"], event["ph"] == "B"))
            zero += self.length() * factor + 7
        return events

    def write_ranks(self, folder: Path, iterations=2) -> None:
        """Write a file for each rank, as the older tracer does. Each iteration's passes come 1 ms later: two that are the same count once."""
        folder.mkdir(parents=True, exist_ok=True)
        for stage in range(self.stages):
            rows = []
            for number in range(iterations):
                rows.append({"name": "iteration", "ph": "B", "pad_before": 5_000_000})
                own = [each for each in self.passes() if each.stage == stage]
                for each in sorted(own, key=lambda each: each.begin):
                    where = {
                        "microbatch": each.micro_batch,
                        "model_chunk": each.chunk,
                        "pp_rank": each.stage,
                    }
                    rows.append({"name": each.kind, "ph": "B", "rel_ts": (each.begin + number) * 1_000_000})
                    rows.append(
                        {**where, "name": each.kind, "ph": "E", "rel_ts": (each.end + number) * 1_000_000}
                    )
                long = self.length() * 1_000_000
                rows.append(
                    {
                        "name": "iteration",
                        "ph": "E",
                        "rel_ts": long,
                        "duration_wall": long,
                        "duration_cuda": long,
                    }
                )
            (folder / f"app-{stage}.json").write_text(json.dumps(rows, indent=2))

    def table(self, steps=2, replicas=1, offset_ms=0, wgrad=False):
        """Rows of the stream ``spans``; rank = stage · replicas + replica, whose clocks are ``offset_ms`` apart. Messages and a collective connect them where there is an offset."""
        rows, number = [], 0
        for step in range(1, steps + 1):
            zero = step * 1_000
            for replica in range(replicas):
                for stage in range(self.stages):
                    rank = stage * replicas + replica
                    place = {"step": step, "rank": rank, "stage": stage if self.stages > 1 else -1}

                    def add(kind, begin, end, place=place, zero=zero, rank=rank, **more):
                        at = zero + rank * offset_ms
                        both = {"start": (at + begin) * 1_000_000, "end": (at + end) * 1_000_000}
                        rows.append({"name": "", "group": "", **place, "kind": kind, **both, **more})

                    add("step", 0, self.length())
                    for each in self.passes():
                        if each.stage != stage:
                            continue
                        of = {"chunk": each.chunk, "micro_batch": each.micro_batch}
                        split = each.end - 8 if wgrad and each.kind == "backward" else each.end
                        add(each.kind, each.begin, split, **of)
                        if split < each.end:
                            add("wgrad", split, each.end, **of)
                    add("optimizer", self.length() - 3, self.length() - 1)
                    if offset_ms:
                        everyone = f"0-{self.stages * replicas - 1}"
                        more = {"name": "all_reduce", "group": everyone, "sequence": number}
                        add("collective", self.length() - REST, self.length() - 3, **more)
            number += 1
        return table(*rows)
