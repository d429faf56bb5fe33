"""Running many cases in worker processes, and what came of them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fuzz.kept import to_kept
from tests.fuzz.surface import CATALOGUE

__all__ = ["Finding", "Result", "run_cases", "run_inputs", "shares"]

_Task = dict[str, Any]
_ROOT = Path(__file__).parents[2]
_CHUNK = 2500
# A surface that dies at every other case tells nothing more.
_MOST_DEATHS = 25


@dataclass
class Finding:
    """A case that should not be.

    Attributes
    ----------
    surface, case : str, int
        Which; ``python -m tests.fuzz --case SURFACE:CASE`` runs it again.
    trace : str
        Traceback, or what ended the process.
    input : object
        What came in, as JSON; None where the process died before it could be told.
    count : int
        How many cases ended in the same place.
    """

    surface: str
    case: int
    trace: str
    input: Any
    count: int = 1

    @property
    def place(self) -> str:
        """Error and last place in our own code: the same for the same cause, mostly."""
        lines = re.findall(r'File ".*?/(megalens/[^"]+)", line (\d+)', self.trace)
        last = self.trace.strip().splitlines()[-1] if self.trace.strip() else ""
        return f"{last.partition(':')[0][:80]} at {':'.join(lines[-1]) if lines else 'no line of ours'}"


@dataclass
class Result:
    """What came of a surface's cases.

    Attributes
    ----------
    cases, refused, accepted : int
        How many ran, ended in a typed error, and were taken.
    findings : dict
        One of each kind, by its place.
    seconds, bytes : float, int
        The most that one case computed, and that a process grew by.
    """

    cases: int = 0
    refused: int = 0
    accepted: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)
    seconds: float = 0.0
    bytes: int = 0
    deaths: int = 0

    def add(self, answer: dict[str, Any]) -> None:
        """Take the end of a worker's task."""
        self.refused += answer["refused"]
        self.accepted += answer["accepted"]
        self.cases += answer["refused"] + answer["accepted"]
        self.seconds = max(self.seconds, answer.get("seconds", 0.0))
        self.bytes = max(self.bytes, answer.get("bytes", 0))

    def join(self, other: Result) -> None:
        """Take what came of more cases of the same surface."""
        findings = {**other.findings}
        for place, known in self.findings.items():
            if place in findings:
                known.count += findings.pop(place).count
        self.findings |= findings
        self.cases += other.cases
        self.refused += other.refused
        self.accepted += other.accepted
        self.deaths += other.deaths
        self.seconds, self.bytes = max(self.seconds, other.seconds), max(self.bytes, other.bytes)

    def found(self, finding: Finding) -> None:
        """Count a finding; one of each kind is kept."""
        self.cases += 1
        known = self.findings.setdefault(finding.place, finding)
        if known is not finding:
            known.count += 1


def shares(cases: int, names: Sequence[str] = ()) -> dict[str, int]:
    """Return how many cases each surface gets of a total."""
    chosen = {name: CATALOGUE[name] for name in names or CATALOGUE}
    whole = sum(chosen.values())
    return {name: max(1, round(cases * share / whole)) for name, share in chosen.items()}


def run_cases(
    counts: dict[str, int], *, first: int = 0, workers: int = 2, seed: int | None = None
) -> dict[str, Result]:
    """Run the cases ``first``, ``first + 1``, … of each surface: the same each time, and others for each seed."""
    tasks = [
        {"surface": name, "first": at, "count": min(_CHUNK, first + count - at), "seed": seed}
        for name, count in counts.items()
        for at in range(first, first + count, _CHUNK)
    ]
    # The long ones first, so that no processor waits at the end.
    return _run(sorted(tasks, key=lambda task: -task["count"]), workers)


def run_inputs(inputs: dict[str, list[Any]], *, workers: int = 1) -> dict[str, Result]:
    """Run given inputs, by surface."""
    tasks = []
    for name, given in inputs.items():
        for at in range(0, len(given), _CHUNK):
            some = given[at : at + _CHUNK]
            tasks.append({"surface": name, "first": 0, "count": len(some), "inputs": to_kept(some)})
    return _run(tasks, workers)


def _run(tasks: Iterable[dict[str, Any]], workers: int) -> dict[str, Result]:
    waiting: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    results: dict[str, Result] = {}
    for task in tasks:
        results.setdefault(task["surface"], Result())
        waiting.put(task)
    lock = threading.Lock()
    faults: list[BaseException] = []
    # A hub that is ending may still write into it.
    with tempfile.TemporaryDirectory(prefix="megalens-fuzz-", ignore_cleanup_errors=True) as scratch:

        def work(number: int) -> None:
            worker = _Worker(Path(scratch) / str(number))
            try:
                while True:
                    task = waiting.get_nowait()
                    while task is not None:
                        with lock:
                            known = results[task["surface"]]
                        task = worker.run(task, known, lock)
            except queue.Empty:
                pass
            except BaseException as error:
                faults.append(error)
            finally:
                worker.close()

        threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]
    return results


class _Worker:
    """One worker process, started again after it died."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._place = folder / "place"
        self._process: subprocess.Popen[str] | None = None

    def run(self, task: _Task, result: Result, lock: threading.Lock) -> _Task | None:
        """Run a task; return what is left of it when the process died."""
        self._place.write_bytes(struct.pack("<qqq", -1, 0, 0))
        answer = self._ask(task, lambda found: result.found(Finding(**found)), lock)
        if answer is not None:
            with lock:
                result.add(answer)
            return None
        number, refused, accepted = struct.unpack("<qqq", self._place.read_bytes())
        said = (self._folder / "stderr").read_text(errors="replace")[-3000:]
        if number < 0 and "again" not in task:
            # It ended between two tasks; one that cannot begin ends again.
            return {**task, "again": True}
        if number < 0:
            raise RuntimeError(f"The worker could not begin with {task['surface']} ({self._end}):\n{said}")
        inputs = task.get("inputs")
        shown = inputs[number] if inputs else (self._ask({**task, "show": number}) or {}).get("input")
        with lock:
            result.add({"refused": refused, "accepted": accepted})
            result.found(Finding(task["surface"], number, f"{said}\nthe process ended: {self._end}", shown))
            result.deaths += 1
            left = task["first"] + task["count"] - number - 1
            if left <= 0 or result.deaths >= _MOST_DEATHS:
                return None
        return {**task, "first": number + 1, "count": left}

    def _ask(self, task: _Task, found: Callable[[Any], None] = print, lock: Any = None) -> Any:
        """Return the answer to a task, None when the process died."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                answer = json.loads(line)
                if "finding" not in answer:
                    return answer
                with lock:
                    found(answer["finding"])
        code = process.wait()
        self._end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        self.close()
        return None

    def close(self) -> None:
        """End the process. Safe twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def _start(self) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PYTHONPATH": str(_ROOT),
            "TMPDIR": str(self._folder),
            "PYTHONWARNINGS": "ignore",
            # One arena and one thread each: what a process reserves is what it uses.
            "MALLOC_ARENA_MAX": "1",
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            **dict.fromkeys(("OMP_NUM_THREADS", "ARROW_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
        }
        with open(self._folder / "stderr", "wb") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.worker", str(self._place)],
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
