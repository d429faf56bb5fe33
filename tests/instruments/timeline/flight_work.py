"""A job that gets stuck as it is told to, and the dumps of PyTorch's flight recorder of all its ranks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace, _dump_fr_trace_json


def stuck(rank: int, fault: str, folder: str) -> None:
    """Call three collectives, then one in which rank 2 has the fault; write ``json/fr_RANK.json`` and ``pickle/fr_RANK``."""
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    # A thread of gloo's notes that a call is over, after it has let the caller go on.
    while not all(each["retired"] for each in json.loads(_dump_fr_trace_json())["entries"]):
        time.sleep(0.001)
    store = dist.distributed_c10d._get_default_store()
    if fault == "sizes" and rank != 2:
        # Gloo ends the process that is sent too much, which is rank 2: it has written by then.
        store.wait(["written 2"])
    if fault == "skips" and rank == 2:
        pending = dist.barrier(async_op=True)
    elif not (fault == "hangs" and rank == 2):
        size = 2 if fault == "sizes" and rank == 2 else 8
        pending = dist.all_reduce(torch.ones(size), async_op=True)
    else:
        pending = None
    for name, dumped in (("json/fr_{}.json", _dump_fr_trace_json()), ("pickle/fr_{}", _dump_fr_trace())):
        path = Path(folder, name.format(rank))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(dumped)
    # Nobody leaves before all have written: who is gone ends what the others wait for.
    store.set(f"written {rank}", "yes")
    store.wait([f"written {each}" for each in range(dist.get_world_size())])
    del pending
    os._exit(0)
