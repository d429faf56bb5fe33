"""Starts the processes of one job and brings back what each of them returns.

They fork from a server process that has imported torch and Megatron-Core once, which takes seconds.
"""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import multiprocessing.connection
import os
import sys
import tempfile
import traceback
from datetime import timedelta
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from typing import Any

import warm

__all__ = ["run_job", "start_server"]

_SECONDS = 240.0


def run_job(processes: int, work: str, *args: Any, gone: bool = False) -> list[Any]:
    """Call ``work(rank, *args)`` in ``processes`` processes with a gloo group, and return what each gave, by rank.

    Parameters
    ----------
    processes : int
        How many.
    work : str
        ``module:function``, imported in those processes alone: Megatron-Core is kept out of the test process.
    *args
        What else the function takes.
    gone : bool
        Whether processes may end without a word; then they gave None.

    Raises
    ------
    AssertionError
        With the traceback of the first process that failed.
    """
    context = multiprocessing.get_context("forkserver")
    start_server()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(processes):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_begin, args=(rank, processes, folder, theirs, work, args), daemon=False
            )
            process.start()
            theirs.close()
            started.append((process, ours))
        try:
            return _results(started, gone)
        finally:
            for process, ours in started:
                process.join(5 if process.exitcode is None else None)
                if process.exitcode is None:
                    process.kill()
                    process.join()
                ours.close()


@functools.cache
def start_server() -> None:
    """Start the server process; the path on which it looks for what it imports beforehand comes from its environment only."""
    multiprocessing.set_forkserver_preload(["preloaded"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    # It would wait for it, which processes that fork from this one may not.
    forkserver._forkserver.ensure_running = lambda: None  # type: ignore[attr-defined]


def _results(started: list[tuple[Any, Connection]], gone: bool) -> list[Any]:
    results: list[Any] = [None] * len(started)
    waiting = {ours: rank for rank, (_, ours) in enumerate(started)}
    while waiting:
        ready = multiprocessing.connection.wait(list(waiting), timeout=_SECONDS)
        if not ready:
            raise AssertionError(f"ranks {sorted(waiting.values())} gave nothing in {_SECONDS:.0f} s")
        for ours in ready:
            rank = waiting.pop(ours)  # type: ignore[arg-type]
            try:
                fault, results[rank] = ours.recv()  # type: ignore[union-attr]
            except EOFError:
                fault = None if gone else "it ended without a word"
            if fault:
                for process, _ in started:
                    process.kill()
                raise AssertionError(f"rank {rank}: {fault}")
    return results


def _begin(rank: int, processes: int, folder: str, answer: Connection, work: str, args: Any) -> None:
    import torch
    from torch import distributed

    warm.install_forked()
    fault, result = None, None
    try:
        torch.set_num_threads(1)
        os.environ.update(
            RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(processes), GLOO_SOCKET_IFNAME="lo"
        )
        store = distributed.FileStore(os.path.join(folder, "store"), processes)
        distributed.init_process_group(
            "gloo", store=store, rank=rank, world_size=processes, timeout=timedelta(seconds=60)
        )
        module, _, function = work.partition(":")
        result = getattr(importlib.import_module(module), function)(rank, *args)
        distributed.barrier()
        distributed.destroy_process_group()
    except BaseException:
        fault = traceback.format_exc()
    answer.send((fault, result))
    answer.close()
