"""Explorer and timeline on recordings of ten million rows and spans: from the command to the first picture, and frames while it is panned; a real JupyterLab in a real Chromium.

Run ``python -m bench.explorer`` (``--quick`` for a small recording, which proves only that it works).
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from megalens.hub.segment_file import seal_tail
from megalens.protocol import STREAMS, segment_name, stream_schema
from tests.kit.simulated_jobs import Fault, Job, simulate

from .common import Row, asked, judged, percentile, report
from .lab import environment_of, in_page, running_lab
from .recordings import write_recording

__all__ = ["main"]

_JOB = Job(8, 16, 8, 5, 2, 100, faults=(Fault("device", (500,), 1.1, 40, 100),))
_SMALL = Job(2, 2, 2, 2, 1, 8)
_TOGETHER = 50_000
_VIEWS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (100, 100_000, {"kind": "tensors", "series": 100}),
    (25_000, 400, {"kind": "lines", "by": ["layer"]}),
)
"""Series, steps, and what is drawn of them."""

_FRAME_MS = 1000 / 60


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/explorer.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "one round of small recordings",
        rounds=(3, "times that each is opened"),
        screenshot=(Path, "folder for pictures of the pages"),
    )
    rounds = 1 if options.quick else options.rounds
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        opened: list[tuple[str, Path, str, dict[str, Any]]] = []
        for series, steps, view in _VIEWS:
            steps //= 100 if options.quick else 1
            run = write_recording(runs / f"{series}-series", series, steps)
            opened.append((f"{series:,} series × {steps:,} steps", run, "megalens:open-statistics", view))
        job = _SMALL if options.quick else _JOB
        run, spans = _recorded(runs / f"{job.ranks}-ranks", job)
        for what, view in (("all steps", {"steps": [1, job.steps]}), ("newest steps", {})):
            what = f"{job.ranks:,} ranks × {job.steps} steps, {what}"
            opened.append((what, run, "megalens:open-timeline", view))
        for number, (what, run, command, view) in enumerate(opened):
            homes = [Path(folder) / f"{number}-{turn}" for turn in range(rounds)]
            seen = [_seen(home, run, command, view, options.screenshot) for home in homes]
            rows += _rows(what, seen)
    how = (
        f"A packed recording, opened by a command in JupyterLab with its own server, in Chromium without a GPU, {rounds} times, each with a server and a "
        "browser that know nothing of it yet (the file is in the system's cache). From the command to the animation frame after the canvas has lines or spans on it: server, worker, transfer and drawing. "
        f"Statistics are generated: 100 single tensors are 100 lines; of 25,000 the lines are their 50 layers, merged. Timelines are of a simulated job ({spans:,} spans). Then three zooms, and 120 moves of the mouse that drag the picture; a frame's time is that "
        "between two animation frames."
    )
    title = "Explorer and timeline of large recordings"
    return report("explorer", title, rows, how=how, quick=options.quick)


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


def _seen(home: Path, run: Path, command: str, view: dict[str, Any], pictures: Path | None) -> dict[str, Any]:
    """Open a view of a recording by its command, in a JupyterLab and a browser of its own below ``home``, zoom and drag it; return what the page says."""
    environment = environment_of(home)
    runs = home / "root" / "megalens-runs"
    runs.mkdir(parents=True)
    # A link to a folder that is elsewhere would not be followed.
    shutil.copytree(run, runs / run.name, copy_function=os.link)
    picture = pictures and str(pictures.absolute() / f"{home.name}.png")
    with running_lab(home, environment) as (url, token):
        page = {"url": url, "run": run.name, "command": command, "view": view, "screenshot": picture}
        return in_page("explorer", page, environment | {"BENCH_TOKEN": token}, 240)


def _rows(what: str, seen: Sequence[dict[str, Any]]) -> list[Row]:
    """Return how long the first picture took, and how long the frames of a drag did."""
    opened = [each["opened"] / 1000 for each in seen]
    frames = [time for each in seen for time in each["frames"]]
    middle, slow = statistics.median(frames), percentile(frames, 95)
    return [
        judged(
            f"{what}: command to first picture (worst of {len(seen)})",
            max(opened),
            "s",
            "≤ 2",
            f"median {statistics.median(opened):.2f} s",
        ),
        Row(
            f"{what}: a frame while panning, median",
            middle,
            "ms",
            target="60 a second",
            # Frames come with the screen's beat: half of one more is a frame that was missed.
            met=middle <= 1.5 * _FRAME_MS,
            note=f"95 of 100 within {slow:.1f} ms, {len(frames)} frames",
        ),
    ]


if __name__ == "__main__":
    main()
