"""A thousand producers and fifty viewers at one hub, five of which stop reading.

Run ``python -m bench.hub_load`` (``--quick`` for a short run with a hundred producers that proves only that it works).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.common import Row, percentile, ratio, write_results
from bench.hub_load_clients import ROWS
from megalens.hub.discovery import find_hub
from megalens.runs import RunFolder

_MIB = 1024 * 1024
_BACKLOG, _QUEUE = 64 * _MIB, 32 * _MIB


def main() -> int:
    """Measure and write ``results/hub_load.json``; return the page of all results."""
    parser = argparse.ArgumentParser(prog="python -m bench.hub_load", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--producers", type=int)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--stalled", type=int, default=5)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--period", type=float, default=2.0, help="seconds a step (%(default)s)")
    options = parser.parse_args()
    options.producers = options.producers or (100 if options.quick else 1000)
    options.steps = options.steps or (8 if options.quick else 60)
    # The hub stands back behind everything else: what else the machine did decides how late it is.
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MEGALENS_RUNTIME_DIR"] = os.path.join(folder, "runtime")
        measured = measure(options, Path(folder) / "runs")
    how = (
        f"One hub that records, {options.producers} producers in a second process and {options.viewers} viewers in a third, on loopback. Each producer is a "
        f"pipeline stage: every {options.period:g} s all send a frame of {ROWS} rows of 96 values at once, and a status each second; rank 0 leads and tells "
        f"of all others. {options.steps} steps; from the middle on {options.stalled} viewers read nothing until the last step was sent. A step is late at a "
        "viewer by the time from its first frame's sending to its last frame's arrival. Intervals: 95 % bootstrap over steps. "
        f"Before it began, {load:.1f} other processes on average wanted a processor."
    )
    rows = _rows(options, measured)
    print(
        write_results(
            "hub_load",
            "Hub: a thousand producers, fifty viewers, five of them stalled",
            rows,
            how=how,
            quick=options.quick,
        ).read_text()
    )
    return 0


def measure(options: argparse.Namespace, record: Path) -> dict[str, Any]:
    """Run hub, producers and viewers, and return what each of them saw."""
    hub = _Child("megalens", "hub", "--record", str(record), "--linger", "60")
    children = [hub]
    try:
        entry = find_hub(hub.read()["id"])
        assert entry is not None
        assert entry.record is not None
        here = {"host": entry.host, "port": entry.port, "token": entry.token, "producers": options.producers}
        watch = _Watch(hub.pid)
        viewers = _Child(
            "bench.hub_load_clients", "viewers", "--count", options.viewers, "--stalled", options.stalled
        )
        producers = _Child("bench.hub_load_clients", "producers", "--count", options.producers)
        children += [viewers, producers]
        viewers.write(here)
        viewers.read()
        watch.mark("empty")
        producers.write(here)
        joined = producers.read()["seconds"]
        watch.mark("joined")
        half = options.steps // 2
        plan = {
            "start": time.monotonic() + 2 - options.period,
            "period": options.period,
            "steps": options.steps,
            "stall_from": half,
        }
        for child in (viewers, producers):
            child.write(plan)
        sent = producers.read()["sent"]
        watch.mark("sent")
        time.sleep(options.period)
        watch.mark("settled")
        for child in (producers, viewers):
            child.write({})
        seen = viewers.read()
        hub.end()
        recorded = RunFolder(entry.record).read("tensors", columns=["step"]).num_rows
        return {
            **seen,
            "sent": sent,
            "joined": joined,
            "half": half,
            "recorded": recorded,
            "watch": watch.close(),
        }
    finally:
        for child in children:
            child.end()


def _rows(options: argparse.Namespace, measured: dict[str, Any]) -> list[Row]:
    sent, half, watch = measured["sent"], measured["half"], measured["watch"]
    healthy = [viewer for viewer in measured["viewers"] if not viewer["stalled"]]
    stalled = [viewer for viewer in measured["viewers"] if viewer["stalled"]]
    steps = range(1, options.steps + 1)
    # What never came was late until the end.
    end = sent[-1][1] + options.period
    late = {
        step: [viewer["completed"].get(str(step), end) - sent[step - 1][0] for viewer in healthy]
        for step in steps
    }
    behind = [_behind(viewer, sent) for viewer in healthy]
    total = options.producers * options.steps * ROWS
    before, after = ([max(late[step]) for step in part] for part in (steps[:half], steps[half:]))
    stall = ratio(after, before, paired=False)
    memory = watch["memory"]
    allowed = memory["joined"] + _BACKLOG + options.stalled * _QUEUE
    unsaid = [abs(viewer["rows"] + viewer["dropped"] - total) for viewer in measured["viewers"]]
    unrecorded = abs(measured["recorded"] - total)
    rows = [
        Row(
            "healthy viewers: most steps behind what was sent",
            max(behind),
            "steps",
            target="≤ 1",
            met=max(behind) <= 1,
        ),
        _percentile_row("healthy viewers: a step late, median", late, 50),
        _percentile_row("healthy viewers: a step late, 99 of 100", late, 99),
        Row(
            "the slowest healthy viewer of a step, with stalled viewers over without",
            stall.value,
            "",
            stall.low,
            stall.high,
        ),
        Row(
            "rows that neither arrived at a viewer nor were counted as given up",
            max(unsaid),
            "rows",
            target="0",
            met=max(unsaid) == 0,
            note=f"stalled viewers were sent {sum(v['rows'] for v in stalled)} of {total * len(stalled)} rows; healthy ones lack {sum(v['dropped'] for v in healthy)}",
        ),
        Row(
            "rows that the recording lacks",
            unrecorded,
            "rows",
            target="0",
            met=unrecorded == 0,
            note=f"of {total}",
        ),
        Row(
            "frames out of order at a viewer",
            sum(viewer["backwards"] for viewer in measured["viewers"]),
            "frames",
            target="0",
            met=not any(viewer["backwards"] for viewer in measured["viewers"]),
        ),
        Row(
            "memory of the hub at most",
            memory["most"] / _MIB,
            "MiB",
            target=f"≤ {allowed / _MIB:.0f}",
            met=memory["most"] <= allowed,
            note=f"{memory['empty'] / _MIB:.0f} without producers, {memory['joined'] / _MIB:.0f} with all of them; the bound adds the backlog and the stalled viewers' queues",
        ),
        Row("until all producers had joined", measured["joined"], "s"),
        Row("processor time of the hub while it ran", watch["busy"], "% of one core"),
        Row(
            "frames a second into the hub, out of it",
            options.producers / options.period,
            "frames/s",
            note=f"{options.producers * options.viewers / options.period:.0f} frames/s out",
        ),
    ]
    return rows


def _behind(viewer: dict[str, Any], sent: list[list[float]]) -> int:
    """Return the most steps that were sent in full while the viewer lacked part of them, the one just sent included."""
    most, newest = 0, 0
    for number, (_, ended) in enumerate(sent, 1):
        while viewer["completed"].get(str(newest + 1), float("inf")) <= ended:
            newest += 1
        most = max(most, number - newest)
    return most


def _percentile_row(what: str, late: dict[int, list[float]], percent: float) -> Row:
    rng = random.Random(0)
    steps = list(late)
    every = [value for values in late.values() for value in values]
    drawn = [
        percentile([value for step in rng.choices(steps, k=len(steps)) for value in late[step]], percent)
        for _ in range(200)
    ]
    return Row(
        what,
        percentile(every, percent) * 1e3,
        "ms",
        percentile(drawn, 2.5) * 1e3,
        percentile(drawn, 97.5) * 1e3,
    )


class _Child:
    """A child process that talks by lines of JSON."""

    def __init__(self, module: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"A part of the benchmark ended early, with exit code {self._process.wait(20)}."
            )
        message: dict[str, Any] = json.loads(line)
        return message

    def write(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait(60)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()


class _Watch:
    """Memory and processor time of a process, looked at twice a second."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._memory: dict[str, int] = {"most": 0}
        self._busy: dict[str, tuple[float, float]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def mark(self, name: str) -> None:
        self._memory[name] = self._resident()
        ticks = sum(map(int, Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        self._busy[name] = (time.monotonic(), ticks / os.sysconf("SC_CLK_TCK"))

    def close(self) -> dict[str, Any]:
        self._ended.set()
        self._thread.join()
        (began, before), (ended, after) = self._busy["joined"], self._busy["sent"]
        seconds = after - before
        return {"memory": self._memory, "busy": 100 * seconds / (ended - began), "seconds": seconds}

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            try:
                self._memory["most"] = max(self._memory["most"], self._resident())
            except OSError:
                return

    def _resident(self) -> int:
        fields = Path(f"/proc/{self._pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
