"""What it costs to read a file: ``cost_of`` opens it in a process of its own, as the reader of a Jupyter server does.

As a program, ``python -m reading_costs PATH`` opens one and prints what that took.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MOST_MIB", "MOST_SECONDS", "Cost", "cost_of"]

MOST_MIB = 512
MOST_SECONDS = 2.0
_ROOT = Path(__file__).parents[2]
_TICK_SECONDS = 0.005


@dataclass(frozen=True)
class Cost:
    """What reading took.

    Attributes
    ----------
    answer : str
        ``ok`` or the code of the typed error.
    mib : int
        The most memory that was held beyond what the libraries take; of processes that it started the most of one.
    seconds : float
        Of processor time.
    waits : float
        The most processor seconds in which no other thread was let in.
    """

    answer: str
    mib: int
    seconds: float
    waits: float


def cost_of(path: Path, cache: Path) -> Cost:
    """Return what it costs to open a run and to ask for its rows, with an empty cache."""
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT}{os.pathsep}{_ROOT / 'tests' / 'kit'}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "reading_costs", str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**environment, "MEGALENS_CACHE_DIR": str(cache), "XDG_CACHE_HOME": str(cache)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def _ask(path: Path) -> str:
    from megalens.runs import ClientError, open_run

    try:
        with open_run(path) as run:
            # What has no statistics was read when it was opened.
            run.moment_source.index()
    except ClientError as error:
        return error.code
    return "ok"


class _Ticker(threading.Thread):
    """Another thread that wants to answer, and how long it was not let in."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.waits = 0.0

    def run(self) -> None:
        before = time.process_time()
        while True:
            time.sleep(_TICK_SECONDS)
            now = time.process_time()
            self.waits, before = max(self.waits, now - before), now


def _held() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) >> 10


def main() -> None:
    import pyarrow.csv
    import pyarrow.parquet  # noqa: F401

    from megalens.runs import foreign_files, open_run  # noqa: F401
    from megalens.runs.moments import load_libraries

    load_libraries()
    # From here on the most that is held is counted anew.
    Path("/proc/self/clear_refs").write_text("5")
    held, ticker = _held(), _Ticker()
    ticker.start()
    begun = time.process_time()
    answer = _ask(Path(sys.argv[1]))
    seconds, grown = time.process_time() - begun, _held() - held
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    cost = {
        "answer": answer,
        "mib": max(grown, others.ru_maxrss >> 10),
        "seconds": round(seconds + others.ru_utime + others.ru_stime, 2),
        "waits": round(ticker.waits, 3),
    }
    print(json.dumps(cost))


if __name__ == "__main__":
    main()
