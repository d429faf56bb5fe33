"""The first pictures: of a cell and of a report in a fresh process, those that come later, and JupyterLab's start.

Run ``python -m bench.pictures`` (``--quick`` for few rounds). With ``--before FOLDER``, a checkout of another commit that is built, its figures are taken in
turn with these, and ratios are given.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.common import Row, asked, judged, ratio, report
from bench.lab import environment_of, in_page, running_lab

ROOT = Path(__file__).resolve().parents[1]
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


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/pictures.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "few rounds",
        before=(Path, "a built checkout to compare with"),
        rounds=(int, "of each figure (10)"),
    )
    rounds = options.rounds or (3 if options.quick else 10)
    places = [ROOT, *([options.before.resolve()] if options.before else [])]
    figures: list[list[dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as home:
        run = _recording(Path(home))
        # The first round is not counted: files that the system has not in memory yet are nobody's slowness.
        for _ in range(rounds + 1):
            figures.append([{**_fresh(place, run, _CELL), **_fresh(place, run, _REPORT)} for place in places])
    starts = [_starts(place, rounds) for place in places]
    figures = [
        [{**each, "JupyterLab's start": starts[at][n]} for at, each in enumerate(row)]
        for n, row in enumerate(figures[1:])
    ]
    rows = [row for what in figures[0][0] for row in _rows(what, figures)]
    how = (
        f"A recorded run of 40 steps and 4 layers. Each of {rounds} rounds starts a fresh process that imports megalens, opens the run and makes the output of a heatmap's cell with all layers, then "
        "five more; another one makes a report of scalars, trend, heatmap and history, then a second one. The engine's own start is in what comes first. JupyterLab's start is a page of a running server until its layout is "
        f"restored. Intervals of ratios: 95 % bootstrap over rounds."
    )
    return report("pictures", "First pictures and starts", rows, how=how, quick=options.quick)


def _rows(what: str, figures: Sequence[Sequence[Mapping[str, float]]]) -> list[Row]:
    ours = [row[0][what] for row in figures]
    rows = [Row(what, statistics.median(ours), "s", min(ours), max(ours), note="median, least and most")]
    if len(figures[0]) > 1:
        found = ratio(ours, [row[1][what] for row in figures], middle=statistics.median)
        compared = f"{what}, this ÷ before"
        rows.append(judged(compared, found.value, "×", "≤ 1", low=found.low, high=found.high))
    return rows


def _recording(home: Path) -> Path:
    sys.path.insert(0, str(ROOT / "tests" / "kit"))
    from recorded_run import write_run

    return write_run(home / "run")


def _fresh(place: Path, run: Path, work: str) -> dict[str, float]:
    """Do some work in a fresh process with the code of a checkout, and return its figures."""
    done = subprocess.run(
        [sys.executable, "-c", _BEGIN + work, str(run)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"It failed in {place.name}: {done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _starts(place: Path, rounds: int) -> list[float]:
    """Open JupyterLab with the extension of a checkout, as often as there are rounds."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        extensions = home / "share" / "labextensions"
        extensions.mkdir(parents=True)
        (extensions / "megalens").symlink_to(place / "megalens" / "labextension")
        environment = environment_of(home) | {"PYTHONPATH": str(place), "JUPYTER_PATH": str(home / "share")}
        with running_lab(home, environment) as (url, token):
            seen = in_page("start", {"url": url, "rounds": rounds}, environment | {"BENCH_TOKEN": token}, 600)
    return [float(each) for each in seen["seconds"]]


if __name__ == "__main__":
    main()
