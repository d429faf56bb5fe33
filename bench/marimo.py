"""How long a live run's first picture takes in marimo, beside JupyterLab: the same view of the same run in the same browser, in turn."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .browser import producer
from .common import Row, asked, judged, ratio, report
from .lab import answers, end, environment_of, in_page, running_lab

__all__ = ["main"]

FLAG = "MLP1_mat_mul"
MOST = 1.5
NOTEBOOK = """import marimo
app = marimo.App()

@app.cell
def _():
    import marimo as mo
    import megalens
    run = megalens.connect({run!r})
    button = mo.ui.run_button(label="Show")
    button
    return mo, run, button,

@app.cell
def _(mo, run, button):
    mo.ui.anywidget(run.heatmap({flag!r})) if button.value else None
    return
"""


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/marimo.json``; return the page of all results."""
    quick = asked(__doc__, arguments, "three rounds").quick
    rounds = 3 if quick else 7
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = environment_of(home)
        with (
            producer(environment, 5.0, (FLAG,), "--ahead", "200") as run_id,
            running_lab(home, environment) as (url, token),
            _marimo(home, environment, run_id) as notebook,
        ):
            page = {"url": url, "run": run_id, "flag": FLAG, "notebook": notebook, "rounds": rounds}
            seen = in_page("marimo", page, environment | {"BENCH_TOKEN": token}, 1800)
    lab, ours = ([ms / 1000 for ms in seen[where]] for where in ("lab", "marimo"))
    part = ratio(ours, lab, middle=statistics.median)
    what = "first picture of a live heatmap"
    rows = [
        Row(f"{what}, from a command of JupyterLab", statistics.median(lab), "s", min(lab), max(lab)),
        Row(f"{what}, from a click in marimo", statistics.median(ours), "s", min(ours), max(ours)),
        judged(f"{what}, marimo ÷ JupyterLab", part.value, "×", f"≤ {MOST:g}", low=part.low, high=part.high),
    ]
    how = (
        f"The demo model trains at 5 steps a second with {FLAG} of its 4 layers traced. Each of {rounds} rounds opens both pages anew in a context of its own of one Chromium, waits three seconds, and times "
        "from the command, or the click that runs the cell, to the frame after something is drawn in the plot; medians, with the least and most in the place of an interval; interval of the ratio: 95 % bootstrap over rounds."
    )
    return report("marimo", "First picture in marimo", rows, how=how, quick=quick)


@contextmanager
def _marimo(home: Path, environment: Mapping[str, str], run: str) -> Iterator[str]:
    """Serve a notebook that shows a view of the run when its button is clicked; give its address."""
    notebook = home / "views.py"
    notebook.write_text(NOTEBOOK.format(run=run, flag=FLAG), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    served = ("run", str(notebook), "--headless", f"--port={port}", "--host=127.0.0.1")
    with (home / "marimo.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "marimo", *served],
            env=dict(environment) | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
        )
        try:
            answers(f"http://127.0.0.1:{port}/health", process)
            yield f"http://127.0.0.1:{port}/"
        finally:
            end(process)


if __name__ == "__main__":
    main()
