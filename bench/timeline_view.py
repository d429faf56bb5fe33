"""The view Timeline on a large job: from the command to the first picture, and frames while it is panned; a real JupyterLab in a real Chromium.

Run ``python -m bench.timeline_view`` (``--quick`` for a small job, which proves only that it works).
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from megalens.hub.segment_file import seal_tail
from megalens.protocol import STREAMS, segment_name, stream_schema
from tests.kit.simulated_jobs import Fault, Job, simulate

from .common import write_results
from .explorer import seen_in_page, seen_rows

__all__ = ["main"]

_JOB = Job(8, 16, 8, 5, 2, 100, faults=(Fault("device", (500,), 1.1, 40, 100),))
_SMALL = Job(2, 2, 2, 2, 1, 8)
_TOGETHER = 50_000


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/timeline_view.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.timeline_view", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each is opened (%(default)s)")
    parser.add_argument("--screenshot", type=Path, help="folder for pictures of the pages")
    parser.add_argument("--quick", action="store_true", help="one round of a small job")
    options = parser.parse_args(arguments)
    rounds = 1 if options.quick else options.rounds
    job = _SMALL if options.quick else _JOB
    load = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        run, spans = _recorded(Path(folder) / "runs" / f"{job.ranks}-ranks", job)
        for what, view in (("all steps", {"steps": [1, job.steps]}), ("newest steps", {})):
            homes = [Path(folder) / f"{what.replace(' ', '-')}-{turn}" for turn in range(rounds)]
            seen = [
                seen_in_page(home, run, "megalens:open-timeline", view, options.screenshot) for home in homes
            ]
            rows += seen_rows(f"{job.ranks:,} ranks × {job.steps} steps, {what}", seen)
    how = (
        f"A packed recording of a simulated job ({spans:,} spans), opened by a command in JupyterLab with its own server, in Chromium without a GPU, {rounds} times, each with a server and a "
        "browser that know nothing of it yet (the file is in the system's cache). From the command to the animation frame after the canvas has spans on it: server, transfer and drawing. Then three zooms, and 120 moves of the mouse that drag the picture; a frame's time is that "
        f"between two animation frames. Before it began, {load:.1f} other processes on average wanted a processor."
    )
    return write_results(
        "timeline_view", "The view Timeline on a large job", rows, how=how, quick=options.quick
    )


def _recorded(folder: Path, job: Job) -> tuple[Path, int]:
    """Write the recording of a simulated job, steps in their order, and return its folder and the number of spans."""
    folder.mkdir(parents=True)
    header: dict[str, Any] = {
        "format": 2,
        "run": {"id": folder.name, "name": folder.name, "started": 1_795_000_000.0},
        "state": "finished",
        "ended": 1_795_000_000.0 + job.steps,
        "missing_steps": [],
    }
    (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")
    schema = stream_schema("spans")
    table = simulate(job)[0].sort_by("step").select(schema.names).cast(schema)
    path = folder / "spans" / segment_name(0, 1, ".arrows")
    path.parent.mkdir()
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as writer:
        writer.write_table(table, max_chunksize=_TOGETHER)
    seal_tail(path, STREAMS["spans"])
    return folder, table.num_rows


if __name__ == "__main__":
    print(main().read_text(encoding="utf-8"))
