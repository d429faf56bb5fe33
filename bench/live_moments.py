"""The first picture of the statistics of a live run, and what the Jupyter server takes for it: a real training with its hub, a real Jupyter server, its endpoints asked as a page asks them."""

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

from .children import Child, busy_seconds, call, resident_bytes, said, until_closed
from .lab import Lab, running_lab
from .report import Measured, Row, benchmark, judged

__all__ = ["live_moments", "training"]

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


@benchmark(
    "Statistics of a live run",
    "one round of a short run",
    rounds=(3, 1, "servers that are started"),
    steps=(2010, 100, "steps that are recorded before"),
    page=(bool, "open the view in a Chromium too"),
    extension=(Path, "labextensions folder of another build than the installed one"),
)
def live_moments(options: argparse.Namespace) -> Measured:
    """The first picture of the statistics of a live run, and what the Jupyter server takes for it."""
    home, rounds, steps = options.folder, options.rounds, options.steps
    with Child(call("live_moments:training", steps=steps, records=home / "megalens-runs")) as child:
        run_id = child.read()
        found = [_asked(home / f"server-{turn}", run_id) for turn in range(rounds)]
        opened, cold = (
            [
                _opened(home / f"{way}-{turn}", run_id, options.extension, panel=way == "panel")
                for turn in range(rounds * options.page)
            ]
            for way in ("panel", "palette")
        )
    how = (
        f"A training of {4 * _LAYERS // 2} parameters logs the statistics of each and of its gradient at every step: {steps * _ROWS_A_STEP:,} rows are recorded, and {_RATE:g} steps a second "
        f"follow. A fresh JupyterLab server is then asked for what a page asks first: the list of runs, and {_REST_SECONDS:g} s later the index, and the L2 of gradients by layer, at most 2000 points a line; then once more with another "
        f"statistic; and after {_BRING_SECONDS:g} s for all rows of both, as a page brings them. Memory is what is resident of the server's process, before the index is asked for, at most "
        "while it answers, and after the last answer. In a page, the view's command is given 3 s after the panel shows the run, and in others at once, with no panel. "
        f"{len(found)} servers, the worst counts."
    )
    facts = {"found": found, "pages": opened, "pages without the panel": cold}
    return Measured(_rows(found, opened, cold), how, facts)


def training(steps: int, records: str) -> None:
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
    with megalens.trace(model, name="bench", adapter=where, flags={}, linger=0, record=records) as tracer:
        if not tracer.connected(30):
            raise TimeoutError("The tracer did not reach its hub within 30 s.")
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
    """A JupyterLab server that knows nothing yet of the run, and the most memory, MiB, that it has taken."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def resident(self) -> float:
        """MiB."""
        return resident_bytes(self.lab.pid) / (1 << 20)

    def ask(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Ask an endpoint, again while it reads."""
        request = urllib.request.Request(
            f"{self.lab.url}megalens/api/runs/{path}".rstrip("/"),
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"token {self.lab.token}"},
        )
        while True:
            with urllib.request.urlopen(request, timeout=60) as answer:
                if answer.status != 202:
                    found: bytes = answer.read()
                    return found
                answer.read()

    def close(self) -> None:
        """Stop looking."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.most = max(self.most, int(self.resident))


@contextmanager
def _server(home: Path, extension: Path | None = None) -> Iterator[_Server]:
    home.mkdir()
    with running_lab(home, extension) as lab:
        server = _Server(lab)
        try:
            time.sleep(_REST_SECONDS)
            yield server
        finally:
            server.close()


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


def _opened(home: Path, run_id: str, extension: Path | None, *, panel: bool) -> dict[str, float]:
    page = {"command": "megalens:open-statistics", "view": {"kind": "lines", "by": ["layer"]}}
    with _server(home, extension) as server:
        seen = server.lab.look("explorer", 240, run=run_id, twice=True, panel=panel, **page)
        time.sleep(_REST_SECONDS)
        return {
            "opened": seen["opened"] / 1000,
            "again": seen["again"] / 1000,
            "most": server.most,
            "after": server.resident,
        }


def _rows(
    asked: Sequence[Mapping[str, float]],
    opened: Sequence[Mapping[str, float]],
    cold: Sequence[Mapping[str, float]],
) -> list[Row]:
    def row(what: str, unit: str, name: str, most: float | None, found: Sequence[Mapping[str, float]]) -> Row:
        value, middle = (of(each[name] for each in found) for of in (max, statistics.median))
        target = "" if most is None else f"≤ {most:g}"
        return judged(what, value, unit, target, f"median {middle:.3g}")

    rows = [
        row("until the index is answered", "s", "index", None, asked),
        row("until the first lines are answered", "s", "first", _MOST_SECONDS, asked),
        row("processor time of the server until then", "s", "worked", None, asked),
        row("the steps of everything, asked next", "s", "total", None, asked),
        row("lines of another statistic", "s", "again", None, asked),
        row("memory at rest", "MiB", "rest", None, asked),
        row("memory at most, until these are answered", "MiB", "picture", _MOST_MIB, asked),
        row("memory at most, all rows sent as well", "MiB", "most", _MOST_MIB, asked),
        row("memory afterwards", "MiB", "after", _MOST_MIB, asked),
    ]
    if opened:
        rows += [
            row("in a page, from the command to the first picture", "s", "opened", _MOST_SECONDS, opened),
            row("in a page, the same view opened again", "s", "again", None, opened),
            row("in a page, with no panel before and nothing loaded", "s", "opened", None, cold),
            row("memory at most while the page is open", "MiB", "most", _MOST_MIB, opened),
            row("memory after the page", "MiB", "after", _MOST_MIB, opened),
        ]
    return rows
