"""The explorer on a recording of ten million rows: from the command to the first picture, and frames while it is panned; a real JupyterLab in a real Chromium.

Run ``python -m bench.explorer`` (``--quick`` for a small recording, which proves only that it works).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .common import Row, percentile, write_results
from .lab import environment_of, in_page, running_lab
from .recordings import write_recording

__all__ = ["main", "seen_in_page", "seen_rows"]

_COMMAND = "megalens:open-moments"
_VIEWS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (100, 100_000, {"kind": "tensors", "series": 100}),
    (25_000, 400, {"kind": "lines", "by": ["layer"]}),
)
"""Series, steps, and what is drawn of them."""

_FRAME_MS = 1000 / 60


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/explorer.{json,md}``; return the Markdown file."""
    parser = argparse.ArgumentParser(prog="python -m bench.explorer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="times that each is opened (%(default)s)")
    parser.add_argument("--screenshot", type=Path, help="folder for pictures of the pages")
    parser.add_argument("--quick", action="store_true", help="one round of small recordings")
    options = parser.parse_args(arguments)
    rounds = 1 if options.quick else options.rounds
    load = os.getloadavg()[0]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        for series, steps, view in _VIEWS:
            if options.quick:
                steps //= 100
            run = write_recording(runs / f"{series}-series", series, steps)
            homes = [Path(folder) / f"{series}-{turn}" for turn in range(rounds)]
            seen = [seen_in_page(home, run, _COMMAND, view, options.screenshot) for home in homes]
            rows += seen_rows(f"{series:,} series × {steps:,} steps", seen)
    how = (
        f"A packed recording of generated statistics, opened by a command in JupyterLab with its own server, in Chromium without a GPU, {rounds} times, each with a server and a "
        "browser that know nothing of it yet (the file is in the system's cache). From the command to the animation frame after the canvas has lines on it: server, worker, transfer and drawing. 100 "
        "single tensors are 100 lines; of 25,000 the lines are their 50 layers, merged. Then three zooms, and 120 moves of the mouse that drag the picture; a frame's time is that "
        f"between two animation frames. Before it began, {load:.1f} other processes on average wanted a processor."
    )
    return write_results("explorer", "The explorer on ten million rows", rows, how=how, quick=options.quick)


def seen_in_page(
    home: Path, run: Path, command: str, view: dict[str, Any], pictures: Path | None
) -> dict[str, Any]:
    """Open a view of a recording by its command, in a JupyterLab and a browser of its own, zoom and drag it, and return what ``explorer-page.mjs`` says.

    Parameters
    ----------
    home : Path
        Where all of that is kept.
    run : Path
        Folder of the recording.
    command : str
        Id of the view's command.
    view : dict
        Its options.
    pictures : Path or None
        Folder for a picture of the page.
    """
    environment = environment_of(home)
    runs = home / "root" / "megalens-runs"
    runs.mkdir(parents=True)
    # A link to a folder that is elsewhere would not be followed.
    shutil.copytree(run, runs / run.name, copy_function=os.link)
    picture = pictures and str(pictures.absolute() / f"{home.name}.png")
    with running_lab(home, environment) as (url, token):
        page = {"url": url, "run": run.name, "command": command, "view": view, "screenshot": picture}
        return in_page("explorer-page.mjs", page, environment | {"BENCH_TOKEN": token}, 240)


def seen_rows(what: str, seen: Sequence[dict[str, Any]]) -> list[Row]:
    """Return how long the first picture took, and how long the frames of a drag did."""
    opened = [each["opened"] / 1000 for each in seen]
    frames = [time for each in seen for time in each["frames"]]
    middle, slow = statistics.median(frames), percentile(frames, 95)
    return [
        Row(
            f"{what}: command to first picture (worst of {len(seen)})",
            max(opened),
            "s",
            target="≤ 2",
            met=max(opened) <= 2,
            note=f"median {statistics.median(opened):.2f} s",
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
    print(main().read_text(encoding="utf-8"))
