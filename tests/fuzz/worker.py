"""A process that runs cases, each under its limits: ``python -m tests.fuzz.worker PLACE``, tasks as JSON lines on standard input.

A case that computes for two seconds is stopped by a signal that Python can turn into a traceback; one that does not come back to Python
then is ended by the next one, half a second later, and one that waits by an alarm. ``PLACE`` is the file that tells the parent which case that was.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from tests.fuzz.kept import from_kept, to_kept
from tests.fuzz.surface import Surface, case_input, load_surface

__all__ = ["MEMORY_BYTES", "SECONDS", "main"]

SECONDS = 2.0
MEMORY_BYTES = 512 << 20
# Waiting is no work, and another process may have the processor.
_WAIT_SECONDS = 60.0
_GRACE_SECONDS = 0.5


class TooLong(BaseException):
    """A case has computed for its two seconds."""


def main() -> None:
    """Run tasks until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # What the product prints is no answer.
    os.dup2(2, 1)
    signal.signal(signal.SIGPROF, _too_long)
    # Else jsonschema, which a Jupyter server loads, compiles a grammar of addresses in the time of the first case.
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    place = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
    for line in sys.stdin:
        task = json.loads(line)
        answers.write(json.dumps(_run(task, place, answers)) + "\n")


def _run(task: dict[str, Any], place: int, answers: TextIO) -> dict[str, Any]:
    name, inputs, seed = task["surface"], task.get("inputs"), task.get("seed")
    # What the surface before needed says nothing of what this one loads.
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    surface, _ = load_surface(name)
    if "show" in task:
        return {"input": to_kept(case_input(name, task["show"], seed))}
    # What is loaded at first use counts for no case, and takes as long as it does.
    for number in range(-3, 0):
        with contextlib.suppress(Exception):
            surface.run(case_input(name, number))
    before = _limit_memory()
    counts = {"refused": 0, "accepted": 0}
    worst = 0.0
    for number in range(task["first"], task["first"] + task["count"]):
        # So much the parent knows when this process dies.
        os.pwrite(place, struct.pack("<qqq", number, counts["refused"], counts["accepted"]), 0)
        given = case_input(name, number, seed) if inputs is None else from_kept(inputs[number])
        began = time.process_time()
        outcome = _one(surface, given)
        worst = max(worst, time.process_time() - began)
        if outcome in counts:
            counts[outcome] += 1
        else:
            finding = {"surface": name, "case": number, "trace": outcome, "input": to_kept(given)}
            answers.write(json.dumps({"finding": finding}) + "\n")
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return {**counts, "seconds": worst, "bytes": max(0, grown)}


def _one(surface: Surface, given: Any) -> str:
    """Run one case; return ``refused``, ``accepted``, or the traceback of what should not be."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS + _GRACE_SECONDS)
    signal.setitimer(signal.ITIMER_REAL, _WAIT_SECONDS)
    try:
        return "refused" if surface.run(given) is False else "accepted"
    except surface.refusals:
        return "refused"
    except BaseException as error:
        if isinstance(error, MemoryError):
            gc.collect()
        return "".join(traceback.format_exception(error))[-8000:]
    finally:
        for timer in (signal.ITIMER_PROF, signal.ITIMER_VIRTUAL, signal.ITIMER_REAL):
            signal.setitimer(timer, 0)


def _limit_memory() -> int:
    """Allow 512 MB beyond what this process has by now, and return what was resident at most."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _too_long(*_: Any) -> None:
    raise TooLong(f"computed for more than {SECONDS:g} s")


if __name__ == "__main__":
    main()
