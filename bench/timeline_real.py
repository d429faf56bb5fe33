"""Judge real jobs of 4 processes on this machine: some with a rank that is slowed, some with none."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed, multiprocessing
from torch.nn.parallel import DistributedDataParallel

import megalens
from megalens.demo.model import GPT, GPTConfig
from megalens.instruments.timeline import analyse
from megalens.instruments.timeline.culprits import Verdict
from megalens.runs import open_run

from .common import Row, asked, report, share

__all__ = ["main"]

_PROCESSES, _STEPS = 4, 40
_WAYS = ("none", "device", "data", "host")
_SLOWED_S = {"device": 0.015, "data": 0.02, "host": 0.02}
_NAMES = {
    "device": "work added to a rank's passes",
    "data": "a rank waits for its batches",
    "host": "a rank pauses between passes",
}


def _process(rank: int, folder: str, way: str, slow: int) -> None:
    os.environ["MEGALENS_RUNTIME_DIR"] = str(Path(folder) / "runtime")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    store = distributed.FileStore(f"{folder}/store", _PROCESSES)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=_PROCESSES)
    model = GPT(GPTConfig(vocabulary=32, layers=2, hidden=64, heads=2, sequence=32))
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mine = way if rank == slow else "none"
    if mine == "device":
        model.blocks[0].register_forward_hook(lambda *_: time.sleep(_SLOWED_S["device"]))
    ids = torch.randint(0, 32, (4, 32))

    class Batches(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return _STEPS

        def __getitem__(self, at: int) -> torch.Tensor:
            if mine == "data":
                time.sleep(_SLOWED_S["data"])
            return ids

    with megalens.trace(model, record=folder, linger=0.1, timeline="phases", name="real") as tracer:
        assert rank > 0 or tracer.connected(60)
        distributed.barrier()
        for batch in torch.utils.data.DataLoader(Batches(), batch_size=None):
            with tracer.step():
                if mine == "host":
                    time.sleep(_SLOWED_S["host"])
                replica(batch).logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    distributed.destroy_process_group()


def _judged(way: str, slow: int) -> Verdict:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_process, (folder, way, slow), nprocs=_PROCESSES, join=True)
        (recording,) = Path(folder).glob("*/run.json")
        with open_run(recording.parent) as run:
            return analyse(run).verdict()


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/timeline_real.json``; return the page of all results."""
    options = asked(__doc__, arguments, "3 jobs", jobs=(30, "of each kind"))
    jobs = 3 if options.quick else options.jobs
    choose = random.Random(0)
    plan = [("none", -1)] * jobs
    plan += [(_WAYS[1 + at % 3], choose.randrange(_PROCESSES)) for at in range(jobs)]
    choose.shuffle(plan)
    right: dict[str, list[bool]] = {way: [] for way in _WAYS}
    prices: list[float] = []
    for way, slow in plan:
        verdict = _judged(way, slow)
        named = [(each.kind, each.ranks) for each in verdict.culprits if each.kind != "step"]
        ok = verdict.healthy if way == "none" else named == [(way, (slow,))]
        right[way].append(ok)
        if ok and way != "none":
            prices += [each.price_ns / 1e6 for each in verdict.culprits if each.kind == way]
        print(f"{way} {slow}: {'right' if ok else 'WRONG'}\n{verdict}", flush=True)
    rows = []
    slowed = [each for way in _WAYS[1:] for each in right[way]]
    for what, found in (
        ("undisturbed jobs called healthy", right["none"]),
        ("slowed jobs of which the rank and what slows it are named, and nobody else", slowed),
        *((f"· {_NAMES[way]}", right[way]) for way in _WAYS[1:]),
    ):
        row = share(what, sum(found), len(found))
        if not what.startswith("·"):
            row = replace(row, target=f"{len(found)} of {len(found)}", met=all(found))
        rows.append(row)
    if prices:
        rows.append(
            Row("price of what adds 15 to 20 ms, median", sorted(prices)[len(prices) // 2], "ms", note=f"{min(prices):.3g} to {max(prices):.3g}")
        )  # fmt: skip
    how = (
        f"{_PROCESSES} processes with `DistributedDataParallel` over gloo, one thread each, on the cores of this machine, {_STEPS} steps of a GPT of 2 layers; "
        "one rank, chosen by chance, sleeps 15 ms in its forward pass, 20 ms in its data or 20 ms between its passes. Jobs in random order. Intervals are Wilson's."
    )
    return report("timeline_real", "Verdicts of real jobs", rows, how=how, quick=options.quick)


if __name__ == "__main__":
    main()
