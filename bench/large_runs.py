"""The first picture of the statistics of a recording of 10 and of 100 million rows: ``python -m bench.large_runs``."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .common import Row, asked, judged, report
from .recordings import write_recording

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/large_runs.json``; return the page of all results."""
    options = asked(__doc__, arguments, "thousands of rows", rounds=(5, "pictures of each recording"))
    sizes = ((20, 2000), (500, 40)) if options.quick else ((100, 100_000), (25_000, 400), (1_000, 100_000))
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as home:
        for series, steps in sizes:
            rows.append(_picture(Path(home), series, steps, 1 if options.quick else options.rounds))
    how = "A packed recording in the system's file cache; a fresh process's index and L2 by layer, 2000 points a series, 40 series."
    return report("large_runs", "The first picture of large recordings", rows, how=how, quick=options.quick)


def _picture(home: Path, series: int, steps: int, rounds: int) -> Row:
    folder = home / f"recording-{series}"
    write_recording(folder, series, steps)
    runs = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", _PICTURE, str(folder), str(steps)],
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(rounds + 1)
    ][1:]
    shutil.rmtree(folder)
    seconds, overview, memory = zip(*runs, strict=True)
    return judged(
        f"{series:,} series × {steps:,} steps: index and first grouped, thinned answer (worst of {rounds})",
        max(seconds),
        "s",
        "≤ 2",
        f"median {statistics.median(seconds):.2f} s; total and families, which the panel shows first, "
        f"{max(overview):.2f} s more; {max(memory):.0f} MiB at most",
    )


_PICTURE = """
import json, resource, sys, time
from pathlib import Path
from megalens.runs.moments import *
import duckdb, numpy, pyarrow.parquet

def ask(*by):
    query = MomentQuery.of_request("grad", by=by, points=2000, series=40, lean=True)
    assert source.groups(query).steps_total == int(sys.argv[2])

began = time.perf_counter()
source = MomentSource(RecordedRows(Path(sys.argv[1])))
source.refresh()
source.index()
ask("layer")
layers = time.perf_counter() - began
ask()
ask("family")
overview = time.perf_counter() - began - layers
print(json.dumps([layers, overview, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


if __name__ == "__main__":
    main()
