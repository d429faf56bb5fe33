"""The static picture of a cell: the first one of a fresh process, and those after it.

Run ``python -m bench.engine`` (``--quick`` for few rounds). With ``--before FOLDER``, a checkout of another commit, its pictures are made in turn with these.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.common import Row, ratio, write_results

ROOT = Path(__file__).resolve().parents[1]
# Process start and the imports of a notebook aside: what a person waits for after `megalens.open(…)` was typed.
_CELL = """
import json, sys, time
began = time.perf_counter()
import megalens
run = megalens.open(sys.argv[1])
def picture():
    bundle = run.heatmap("MLP1_mat_mul", layers="all")._repr_mimebundle_()
    assert "<svg" in bundle["text/html"], bundle["text/html"]
picture()
first = time.perf_counter() - began
later = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    picture()
    later.append(time.perf_counter() - began)
print(json.dumps([first, later]))
"""


def main() -> int:
    """Measure, write ``results/engine.*`` and return 0."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--before", type=Path, help="a checkout to compare with")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()
    rounds = options.rounds or (3 if options.quick else 10)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home:
        run = _recording(Path(home))
        places = [ROOT, *([options.before.resolve()] if options.before else [])]
        # One of each that nobody counts: files that no system has in memory yet are none of the engine's.
        for place in places:
            _cell(place, run, 1)
        figures = [[_cell(place, run, 5) for place in places] for _ in range(rounds)]
    rows = []
    for what, pick in (("first picture of a process", 0), ("a later picture", 1)):
        ours = [statistics.fmean([of[0][pick]] if pick == 0 else of[0][1]) for of in figures]
        rows.append(
            Row(what, statistics.median(ours), "s", min(ours), max(ours), note="median, least and most")
        )
        if options.before:
            before = [statistics.fmean([of[1][pick]] if pick == 0 else of[1][1]) for of in figures]
            found = ratio(ours, before, middle=statistics.median)
            rows.append(
                Row(
                    f"{what}, this ÷ before", found.value, "×", found.low, found.high, "≤ 1", found.value <= 1
                )
            )
    how = (
        f"A recorded run of 40 steps and 4 layers; a fresh process for each of {rounds} rounds imports megalens, opens the run and makes the output of a heatmap's cell "
        "with all layers; then five more of the same. The engine's own start is in the first. Intervals of ratios: 95 % bootstrap over rounds. "
        f"Before it began, {load:.1f} other processes on average wanted a processor."
    )
    print(write_results("engine", "Static pictures of cells", rows, how=how, quick=options.quick).read_text())
    return 0


def _recording(home: Path) -> Path:
    sys.path.insert(0, str(ROOT / "tests"))
    from recorded_run import write_run

    return write_run(home / "run")


def _cell(place: Path, run: Path, later: int) -> tuple[float, list[float]]:
    done = subprocess.run(
        [sys.executable, "-c", _CELL, str(run), str(later)],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"The cell failed: {done.stderr[-2000:]}")
    first, rest = json.loads(done.stdout.splitlines()[-1])
    return first, rest


if __name__ == "__main__":
    raise SystemExit(main())
