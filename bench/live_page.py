"""A live run in a page: how long a tensor takes to its pixel, what drawing costs, how long first pictures take, and what the Jupyter server takes for its statistics. A training, a hub, a JupyterLab and a Chromium, all real, on one machine."""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from megalens.runs import Run, connect

from .common import Measured, Row, benchmark, judged, percentile
from .live import (
    Child,
    Lab,
    Memory,
    busy_seconds,
    call,
    paced_training,
    resident_bytes,
    running_lab,
    said,
    traced,
    until_closed,
)
from .recordings import FLAGS

__all__ = ["browser", "live_moments", "rendering", "wide_training"]

RATE = 20.0
WARM_UP = 60.0


@benchmark(
    "From tensor to pixel",
    "20 seconds",
    minutes=(10.0, 1 / 3, "how long to watch"),
)
def browser(options: argparse.Namespace) -> Measured:
    """Tensor produced → pixel drawn: a training, a hub, a JupyterLab and a Chromium, all real, on one machine."""
    seconds, warm_up = 60 * options.minutes, 5.0 if options.quick else WARM_UP
    produced: dict[int, float] = {}
    with (
        paced_training(RATE, FLAGS) as run_id,
        connect(run_id) as run,
        running_lab(options.folder) as lab,
    ):
        gathering = threading.Event()
        thread = threading.Thread(target=_gather, args=(run, produced, gathering), daemon=True)
        thread.start()
        page = {"run": run_id, "flags": FLAGS, "seconds": seconds, "warmUp": warm_up}
        seen = lab.look("browser", seconds + warm_up + 240, **page)
        gathering.set()
        thread.join(10)
        _take(run, produced)
    return _delays(seen, produced)


def _delays(seen: Mapping[str, Any], produced: Mapping[int, float]) -> Measured:
    delays = [at - 1e3 * produced[step] for _, step, at in seen["drawn"] if step in produced]
    if len(delays) < 20:
        raise RuntimeError(
            f"Expected at least 20 drawings, found {len(delays)}. Does the page show the views?"
        )
    # Between forced collections the heap also holds what the next one would take away.
    collected = [heap for heap in seen["heaps"] if heap["collected"]]
    first, last = collected[0], collected[-1]
    growth = 100 * (last["usedSize"] / first["usedSize"] - 1)
    buffers = 100 * (last["backingStorageSize"] / max(1, first["backingStorageSize"]) - 1)
    views = len({view for view, _, _ in seen["drawn"]})
    p50, p99 = percentile(delays, 50), percentile(delays, 99)
    steps = [step for step in produced if step >= min(step for _, step, _ in seen["drawn"])]
    real_rate = (len(steps) - 1) / (produced[max(steps)] - produced[min(steps)])
    what = f"heap growth in {seen['seconds'] / 60:.1f} minutes"

    def moved(size: str) -> str:
        return f"{first[size] / 2**20:.0f} → {last[size] / 2**20:.0f} MiB"

    rows = [
        judged("tensor produced → pixel drawn, p50", p50, "ms", "≤ 100 ms"),
        judged("tensor produced → pixel drawn, p99", p99, "ms", "≤ 250 ms"),
        Row(
            "drawings a second and view",
            len(delays) / seen["seconds"] / views,
            "1/s",
            note="a view draws at most 10 times a second",
        ),
        Row("steps a second that the training made", real_rate, "1/s", target=f"{RATE:.0f}/s"),
        judged(what, growth, "%", "≤ 5 %", f"{moved('usedSize')} after collection"),
        Row(
            "growth of array buffers in the same time",
            buffers,
            "%",
            note=f"{moved('backingStorageSize')}: the store's rows, bounded",
        ),
    ]
    how = (
        f"The demo model steps {RATE:.0f} times a second with {', '.join(FLAGS)} of its 4 layers traced as Tile(96). Chromium shows JupyterLab with "
        f"{views} live heatmaps of all layers side by side. A delay runs from the end of the forward pass, by the training's clock, to the first animation "
        "frame after the view finished drawing that step, by the page's; both are this machine's. Training, hub, Jupyter, browser and benchmark share its cores. "
        "While it is watched the page has one bare debugging session with nothing enabled in it. The heap is measured after a forced collection, first when the "
        "page has followed for a minute: the 32 MiB in which it keeps tensors are full after a few seconds."
    )
    return Measured(rows, how, {"heaps": seen["heaps"]})


def _gather(run: Run, produced: dict[int, float], ended: threading.Event) -> None:
    while not ended.wait(5):
        _take(run, produced)


def _take(run: Run, produced: dict[int, float]) -> None:
    table = run.scalars("produced", steps=(max(produced, default=0) + 1, None))
    produced.update(zip(table.column("step").to_pylist(), table.column("value").to_pylist(), strict=True))


FLAG = "MLP1_mat_mul"
SLOW_RATE = 5.0
AHEAD = 1000
# One a round: what was traced in a round before is in the recording, and drawn.
UNTRACED = ("HiddenStates", "QKV_mat_mul", "MLP2_mat_mul")
MOST = {
    "heatmap, trend and statistics": 25,
    "heatmap and trend": 20,
    "both behind another tab": 5,
    "the Overview": 15,
}
FIRST = {
    "overview": ("command to the first picture of the Overview", 1.0),
    "apply": ("click on Trace … to the first picture of what is traced", 0.8),
}
MOST_MIB = 600
# Until then the page's stores, which are bounded, fill.
FILLED = 5
MOST_GROWTH = 10.0


@benchmark(
    "What drawing a live run costs",
    "20 seconds each",
    minutes=(20.0, 1 / 6, "how long the heap is watched"),
    steps_before=(0, "let the run come to so many steps first, eight times as fast, with the page open"),
    rounds=(len(UNTRACED), 1, f"first pictures, each in a browser of its own, up to {len(UNTRACED)}"),
)
def rendering(options: argparse.Namespace) -> Measured:
    """What it costs a page to draw a live run, and how long its first pictures take: processor time and memory of the renderer of a real JupyterLab in a real Chromium."""
    seconds, settle = (20.0, 10.0) if options.quick else (60.0, 30.0)
    training = {"ahead": AHEAD, "hurry": options.steps_before, "statistics": True}
    with (
        paced_training(SLOW_RATE, (FLAG,), **training) as run_id,
        running_lab(options.folder) as lab,
    ):
        first = _first(lab, run_id, options.rounds)
        page = {"run": run_id, "flag": FLAG, "seconds": seconds, "stepsBefore": options.steps_before}
        seen, other = (
            lab.look(
                "rendering",
                5 * (seconds + rest) + options.steps_before + 900,
                **page,
                watchHeap=watch_heap,
                settle=rest,
            )
            for watch_heap, rest in ((False, settle), (True, 60 * options.minutes))
        )
    rows = [*_first_rows(first), *_drawing(seen, other["heaps"])]
    hurried = (
        f", and then, with the page open, up to step {options.steps_before} eight times as fast"
        if options.steps_before
        else ""
    )
    names = ", ".join(UNTRACED)
    how = (
        f"The demo model trains at {SLOW_RATE:.0f} steps a second with {FLAG} of its 4 layers traced as Tile(96) and statistics of parameters and gradients logged every step, "
        f"{AHEAD} steps of it before the page is opened{hurried}. Chromium shows JupyterLab with the views side by side; processor time is that of the page's process as Chromium itself counts it, "
        "with its workers and the drawing of canvases, over a minute; the heap is watched in a browser of its own, since V8 collects many times as often after a collection that is forced. First pictures are timed in a browser of their own, in which nothing was opened yet, to "
        f"the animation frame after something is drawn; {names}, one in each, are not traced before, and the page has been at rest for six seconds."
    )
    return Measured(rows, how, {"found": seen, "heaps": other["heaps"]})


def _first(lab: Lab, run_id: str, rounds: int) -> list[Mapping[str, Any]]:
    """Take the times of first pictures, in a browser that knows nothing of the page yet."""
    seen: list[Mapping[str, Any]] = []
    with connect(run_id) as run:
        for flag in UNTRACED[:rounds]:
            seen.append(lab.look("first", 900, run=run_id, flag=flag))
            run.configure({flag: None})
    return seen


def _first_rows(first: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    for what, (name, most_seconds) in FIRST.items():
        took = [each[what]["took"] / 1000 for each in first]
        thread = statistics.median([each[what]["thread"] for each in first])
        note = (
            f"{min(took):.2f} to {max(took):.2f} s; of these the page's main thread computes {thread:.0f} ms"
        )
        title = f"{name}, median of {len(took)}"
        yield judged(title, statistics.median(took), "s", f"≤ {most_seconds:g}", note)


def _drawing(seen: Mapping[str, Mapping[str, Any]], heaps: Sequence[float]) -> Iterator[Row]:
    for what, found in seen.items():
        drawn = ", ".join(f"{rate:.1f}" for rate in found["drawn"])
        share, most = found["share"], MOST.get(what)
        # The Overview has many titles, and the views have gone when it is there.
        counts = what in MOST and what != "the Overview"
        yield judged(
            f"processor time of the renderer, {what}",
            share,
            "% of a core",
            "" if most is None else f"≤ {most} %",
            f"new titles a second and view: {drawn}" if counts else "",
        )
    yield from _heap(heaps)
    resident = next(iter(seen.values()))["resident"]
    yield judged("resident memory of the renderer", resident, "MiB", f"≤ {MOST_MIB}")


def _heap(heaps: Sequence[float]) -> list[Row]:
    """Return what the heap grows by in an hour: the slope of least squares through its minutes, from when the stores are full."""
    full = heaps[FILLED - 1 :]
    if len(full) < FILLED:
        return []
    slope = 60 * statistics.linear_regression(range(len(full)), full).slope
    what = f"growth of the heap in an hour, over minutes {FILLED} to {len(heaps)}"
    note = f"collected: {full[0]:.1f} → {full[-1]:.1f} MiB, at most {max(full):.1f}"
    return [judged(what, slope, "MiB", f"≤ {MOST_GROWTH:g}", note)]


_LAYERS = 112
_ROWS_A_STEP = 4 * _LAYERS
_RATE = 2.0
_MOST_SECONDS = 1.0
_MOST_MIB = 350
# The quiet after which a server's memory is called that at rest, and the time that a page waits before it brings rows.
_REST_SECONDS = 5.0
_BRING_SECONDS = 3.0
_PICTURE: dict[str, Any] = {"stat": "grad", "statistic": "l2", "by": ["layer"], "points": 2000, "series": 40}
_TOTAL: dict[str, Any] = {"stat": "grad", "statistic": "nonfinite", "by": [], "mixed": True, "points": 20_000}


_FAST, _SMALL = f"≤ {_MOST_SECONDS:g}", f"≤ {_MOST_MIB:g}"
_FIGURES = (
    ("until the index is answered", "s", "", "index", ""),
    ("until the first lines are answered", "s", "", "first", _FAST),
    ("processor time of the server until then", "s", "", "worked", ""),
    ("the steps of everything, asked next", "s", "", "total", ""),
    ("lines of another statistic", "s", "", "again", ""),
    ("memory at rest", "MiB", "", "rest", ""),
    ("memory at most, until these are answered", "MiB", "", "picture", _SMALL),
    ("memory at most, all rows sent as well", "MiB", "", "most", _SMALL),
    ("memory afterwards", "MiB", "", "after", _SMALL),
    ("in a page, from the command to the first picture", "s", "page", "opened", _FAST),
    ("in a page, the same view opened again", "s", "page", "again", ""),
    ("in a page, with no panel before and nothing loaded", "s", "cold", "opened", ""),
    ("memory at most while the page is open", "MiB", "page", "most", _SMALL),
    ("memory after the page", "MiB", "page", "after", _SMALL),
)
"""What is said of a server or of its page, in which unit, and its target."""


@benchmark(
    "Statistics of a live run",
    "one round of a short run",
    rounds=(3, 1, "servers that are started"),
    steps=(2010, 100, "steps that are recorded before"),
)
def live_moments(options: argparse.Namespace) -> Measured:
    """The first picture of the statistics of a live run, and what the Jupyter server takes for it."""
    home, rounds, steps = options.folder, range(options.rounds), options.steps
    with Child(call("live_page:wide_training", steps=steps, records=home / "megalens-runs")) as child:
        run_id = child.read()
        asked = [_asked(home / f"server-{turn}", run_id) for turn in rounds]
        opened = [_opened_page(home / f"panel-{turn}", run_id, panel=True) for turn in rounds]
        cold = [_opened_page(home / f"palette-{turn}", run_id, panel=False) for turn in rounds]
    found = {"": asked, "page": opened, "cold": cold}
    rows = [
        judged(
            what,
            max(each[name] for each in found[where]),
            unit,
            target,
            f"median {statistics.median(each[name] for each in found[where]):.3g}",
        )
        for what, unit, where, name, target in _FIGURES
    ]
    how = (
        f"A training of {4 * _LAYERS // 2} parameters logs the statistics of each and of its gradient at every step: {steps * _ROWS_A_STEP:,} rows are recorded, and {_RATE:g} steps a second "
        f"follow. A fresh JupyterLab server is then asked for what a page asks first: the list of runs, and {_REST_SECONDS:g} s later the index, and the L2 of gradients by layer, at most 2000 points a line; then once more with another "
        f"statistic; and after {_BRING_SECONDS:g} s for all rows of both, as a page brings them. Memory is what is resident of the server's process, before the index is asked for, at most "
        "while it answers, and after the last answer. In a page, the view's command is given 3 s after the panel shows the run, and in others at once, with no panel. "
        f"{options.rounds} servers of each, the worst counts."
    )
    return Measured(rows, how, {"found": found})


def wide_training(steps: int, records: str) -> None:
    """Train a wide row of tiny layers, first as fast as it goes; until standard input closes."""
    import torch

    import megalens
    import megalens.adapters

    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Module()
    model.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(_LAYERS))
    ended = until_closed()
    where = megalens.adapters.Adapter(layer="layers.{i}")
    with traced(model, name="bench", adapter=where, flags={}, linger=0, record=records) as tracer:
        megalens.log_statistics(model, tracer=tracer, param=1, grad=1)
        for step in range(1 << 30):
            if ended.wait(0.002 if step < steps else 1 / _RATE):
                return
            if step == steps:
                said(tracer.run_id)
            with tracer.step():
                model.zero_grad()
                given = torch.randn(2, 4)
                loss: Any = torch.stack([layer(given) for layer in model.layers]).square().mean()
                loss.backward()


class _Server:
    """A JupyterLab server that knows nothing yet of the run, and its memory, MiB."""

    def __init__(self, lab: Lab, memory: Memory) -> None:
        self.lab, self._memory = lab, memory

    @property
    def resident(self) -> float:
        """At the moment."""
        return resident_bytes(self.lab.pid) / 2**20

    @property
    def most(self) -> float:
        """Since it is there."""
        return self._memory.most / 2**20

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Ask an endpoint, again while it reads."""
        request = urllib.request.Request(
            f"{self.lab.url}megalens/api/runs/{path}".rstrip("/"),
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"token {self.lab.token}"},
        )
        while True:
            with urllib.request.urlopen(request, timeout=60) as answer:
                found: bytes = answer.read()
                if answer.status != 202:
                    return found


@contextmanager
def _server(home: Path) -> Iterator[_Server]:
    home.mkdir()
    with running_lab(home) as lab, Memory(lab.pid, 0.01) as memory:
        time.sleep(_REST_SECONDS)
        yield _Server(lab, memory)


def _asked(home: Path, run_id: str) -> dict[str, float]:
    with _server(home) as server:
        server.ask("")
        time.sleep(_REST_SECONDS)
        rest = server.resident
        began, busy = time.perf_counter(), busy_seconds(server.lab.pid)
        index = json.loads(server.ask(f"{run_id}/moments?wait=1"))
        known = time.perf_counter()
        server.ask(f"{run_id}/moments/groups", _PICTURE)
        first, worked = time.perf_counter(), busy_seconds(server.lab.pid) - busy
        server.ask(f"{run_id}/moments/groups", _TOTAL)
        total = time.perf_counter()
        server.ask(f"{run_id}/moments/groups", _PICTURE | {"statistic": "rms"})
        again = time.perf_counter()
        picture = server.most
        time.sleep(_BRING_SECONDS)
        for entry in index["stats"]:
            server.ask(f"{run_id}/moments/rows", {"stats": [entry["stat"]], "steps": [0, entry["last"]]})
        time.sleep(_REST_SECONDS)
        return {
            "rest": rest,
            "index": known - began,
            "first": first - began,
            "worked": worked,
            "total": total - first,
            "again": again - total,
            "picture": picture,
            "most": server.most,
            "after": server.resident,
            "rows": sum(entry["rows"] for entry in index["stats"]),
        }


def _opened_page(home: Path, run_id: str, *, panel: bool) -> dict[str, float]:
    page = {"command": "megalens:open-statistics", "view": {"kind": "lines", "by": ["layer"]}}
    with _server(home) as server:
        seen = server.lab.look("explorer", 240, run=run_id, twice=True, panel=panel, **page)
        time.sleep(_REST_SECONDS)
        return {
            "opened": seen["opened"] / 1000,
            "again": seen["again"] / 1000,
            "most": server.most,
            "after": server.resident,
        }
