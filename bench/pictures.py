"""How long a person waits at first: for imports, for the first pictures of a cell, of a report and of marimo, and for JupyterLab's start."""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from .children import free_port, fresh
from .common import ratio, timed
from .lab import Lab, paced_training, running_lab, serving
from .report import ROOT, Measured, Row, benchmark, divided, typical

__all__ = ["imports", "marimo", "pictures"]

# Process start aside: what a person waits for after `import megalens` was typed.
_BEGIN = """
import json, sys, time
from pathlib import Path
began = time.perf_counter()
import megalens
run = megalens.open(sys.argv[1])
def took(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
"""
_CELL = """
def picture():
    bundle = run.heatmap("MLP1_mat_mul", layers="all")._repr_mimebundle_()
    assert "<svg" in bundle["text/html"], bundle["text/html"]
picture()
first = time.perf_counter() - began
later = [took(picture) for _ in range(5)]
print(json.dumps({"first picture of a cell": first, "a later picture of a cell": sum(later) / len(later)}))
"""
_REPORT = """
views = [
    {"view": "scalars"},
    {"view": "trend", "flag": "MLP1_mat_mul"},
    {"view": "heatmap", "flag": "MLP1_mat_mul", "layers": "all"},
    {"view": "history", "flag": "MLP1_mat_mul"},
]
def report():
    path = run.report(Path(sys.argv[1]).with_name("report.html"), views)
    assert 100_000 < path.stat().st_size <= 2_000_000
report()
first = time.perf_counter() - began
print(json.dumps({"first report of four views": first, "a later report of four views": took(report)}))
"""


@benchmark(
    "First pictures and starts",
    "few rounds",
    rounds=(10, 3, "of each figure"),
    before=(Path, "a built checkout to compare with: its figures are taken in turn with these"),
)
def pictures(options: argparse.Namespace) -> Measured:
    """The first pictures: of a cell and of a report in a fresh process, those that come later, and JupyterLab's start."""
    places = [ROOT, *([options.before.resolve()] if options.before else [])]
    run = _recording(options.folder)
    # The first round is not counted: files that the system has not in memory yet are nobody's slowness.
    figures = [
        [{**_fresh(place, run, _CELL), **_fresh(place, run, _REPORT)} for place in places]
        for _ in range(options.rounds + 1)
    ][1:]
    for at, place in enumerate(places):
        home = options.folder / f"lab-{at}"
        for row, start in zip(figures, _starts(place, home, options.rounds), strict=True):
            row[at]["JupyterLab's start"] = start
    rows = [row for what in figures[0][0] for row in _rows(what, figures)]
    how = (
        f"A recorded run of 40 steps and 4 layers. Each of {options.rounds} rounds starts a fresh process that imports megalens, opens the run and makes the output of a heatmap's cell with all layers, then "
        "five more; another one makes a report of scalars, trend, heatmap and history, then a second one. The engine's own start is in what comes first. JupyterLab's start is a page of a running server until its layout is "
        f"restored. Intervals of ratios: 95 % bootstrap over rounds."
    )
    return Measured(rows, how)


def _rows(what: str, figures: Sequence[Sequence[Mapping[str, float]]]) -> list[Row]:
    ours = [row[0][what] for row in figures]
    rows = [typical(what, ours, "s", note="median, least and most")]
    if len(figures[0]) > 1:
        found = ratio(ours, [row[1][what] for row in figures], middle=statistics.median)
        rows.append(divided(f"{what}, this ÷ before", found, "≤ 1"))
    return rows


def _recording(home: Path) -> Path:
    sys.path.insert(0, str(ROOT / "tests" / "kit"))
    from recorded_run import write_run

    return write_run(home / "run")


def _fresh(place: Path, run: Path, work: str) -> dict[str, float]:
    """Do some work in a fresh process with the code of a checkout, and return its figures."""
    figures: dict[str, float] = fresh(_BEGIN + work, run, cwd=place, PYTHONPATH=str(place))
    return figures


def _starts(place: Path, home: Path, rounds: int) -> list[float]:
    """Open JupyterLab with the extension of a checkout, as often as there are rounds."""
    extensions = home / "share" / "labextensions"
    extensions.mkdir(parents=True)
    (extensions / "megalens").symlink_to(place / "megalens" / "labextension")
    with running_lab(home, PYTHONPATH=str(place), JUPYTER_PATH=str(home / "share")) as lab:
        return [float(each) for each in lab.look("start", 600, rounds=rounds)["seconds"]]


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


@benchmark("First picture in marimo", "three rounds", rounds=(7, 3, "pages of each"))
def marimo(options: argparse.Namespace) -> Measured:
    """How long a live run's first picture takes in marimo, beside JupyterLab: the same view of the same run in the same browser, in turn."""
    with (
        paced_training(5.0, (FLAG,), ahead=200) as run_id,
        running_lab(options.folder) as lab,
        _served(lab, run_id) as notebook,
    ):
        page = {"run": run_id, "flag": FLAG, "notebook": notebook, "rounds": options.rounds}
        seen = lab.look("marimo", 1800, **page)
    theirs, ours = ([ms / 1000 for ms in seen[where]] for where in ("lab", "marimo"))
    what = "first picture of a live heatmap"
    rows = [
        typical(f"{what}, from a command of JupyterLab", theirs, "s"),
        typical(f"{what}, from a click in marimo", ours, "s"),
        divided(f"{what}, marimo ÷ JupyterLab", ratio(ours, theirs, middle=statistics.median), f"≤ {MOST:g}"),
    ]
    how = (
        f"The demo model trains at 5 steps a second with {FLAG} of its 4 layers traced. Each of {options.rounds} rounds opens both pages anew in a context of its own of one Chromium, waits three seconds, and times "
        "from the command, or the click that runs the cell, to the frame after something is drawn in the plot; medians, with the least and most in the place of an interval; interval of the ratio: 95 % bootstrap over rounds."
    )
    return Measured(rows, how)


@contextmanager
def _served(lab: Lab, run: str) -> Iterator[str]:
    """Serve a notebook that shows a view of the run when its button is clicked; give its address."""
    notebook, port = lab.home / "views.py", free_port()
    notebook.write_text(NOTEBOOK.format(run=run, flag=FLAG), encoding="utf-8")
    command = ["marimo", "run", str(notebook), "--headless", f"--port={port}", "--host=127.0.0.1"]
    url = f"http://127.0.0.1:{port}/"
    with serving(command, f"{url}health", lab.environment, lab.home):
        yield url


# What is timed, what must be imported before, and the seconds that it may take.
_CASES = (
    ("import megalens", "", "import megalens", 0.15),
    ("from megalens import Tile", "", "from megalens import Tile", 0.15),
    ("megalens.trace, over torch's import", "import torch", "import megalens; megalens.trace", 0.2),
)
_TORCH = ("", "import torch")
_INFO = ("-m", "megalens", "info", str(ROOT / "protocol/fixtures/recordings/finished"))


@benchmark("What importing costs", "few rounds", rounds=(9, 3, "fresh processes of each"))
def imports(options: argparse.Namespace) -> Measured:
    """What importing costs: ``import megalens``, what describes a trace, ``megalens.trace`` over torch's own import, and a command that is mostly that."""
    # In turn, so that whatever else the machine does meets all of them; the first round compiles what an installation has compiled, and fills the system's cache of files.
    compiled = options.folder / "compiled"
    found = [
        [
            *(_seconds(*pair, compiled) for pair in (_TORCH, *(case[1:3] for case in _CASES))),
            _by_the_clock(compiled),
        ]
        for _ in range(options.rounds + 1)
    ][1:]
    torch, *ours, info = zip(*found, strict=True)
    rows = [Row("import torch", statistics.median(torch), "s", note="for comparison")]
    for (what, _, _, most), seconds in zip(_CASES, ours, strict=True):
        part = ratio(seconds, torch, middle=statistics.median)
        rows += [typical(what, seconds, "s", f"≤ {most:g}"), divided(f"{what} ÷ import torch", part)]
    rows.append(typical("megalens info of a recording, by the clock", info, "s", "≤ 0.3"))
    how = (
        f"Each of {options.rounds} rounds times each line in a fresh process, in turn. Seconds are those of the processor: medians, with the least and most in the place of an interval; "
        f"intervals of ratios: 95 % bootstrap over rounds."
    )
    return Measured(rows, how)


def _seconds(before: str, code: str, compiled: Path) -> float:
    # Of the processor: what a clock shows where nothing else runs, since an import waits for nothing but files.
    measured = f"import time; {before or 'pass'}; began = time.process_time(); {code}; print(time.process_time() - began)"
    return float(_said(("-c", measured), compiled))


def _by_the_clock(compiled: Path) -> float:
    return timed(lambda: _said(_INFO, compiled))


def _said(words: Sequence[str], compiled: Path) -> str:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
