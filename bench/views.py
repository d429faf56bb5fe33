"""Views of large recordings: from the command to the first picture, and what comes after it; a real JupyterLab in a real Chromium."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import STREAMS, Peaks, stream_schema
from tests.kit.simulated_jobs import Fault, Job, simulate

from .common import percentile
from .lab import running_lab
from .recordings import STARTED, flag_info, write_header, write_recording, write_segment
from .report import Measured, Row, benchmark, worst

__all__ = ["attention", "explorer"]


def _opened(script: str, home: Path, run: Path, options: argparse.Namespace, **page: Any) -> dict[str, Any]:
    """Open a view of a recording by its command, in a JupyterLab and a browser of its own below ``home``; return what the page says."""
    runs = home / "root" / "megalens-runs"
    runs.mkdir(parents=True)
    # The server follows no link that leads out of its folders.
    shutil.copytree(run, runs / run.name, copy_function=os.link)
    picture = options.screenshot and options.screenshot.absolute() / f"{home.name}.png"
    with running_lab(home, options.extension) as lab:
        return lab.look(script, 240, run=run.name, screenshot=picture, **page)


_PICTURES = {
    "extension": (Path, "labextensions folder of another build than the installed one"),
    "screenshot": (Path, "folder for pictures of the pages"),
}

_FLAG = "RawAttentionScore_mat_mul"
_TEXTS = ((4096, 4, 1.0), (32_768, 4, 2.0), (32_768, 32, 2.0))
"""Positions of the prompt, heads, and the seconds that the first picture may take."""

_WRITTEN = 32
_CANDIDATES = 20
_MOST_BYTES = 2_000_000


@benchmark("Attention of long texts", "one round", rounds=(5, 1, "times that each is opened"), **_PICTURES)
def attention(options: argparse.Namespace) -> Measured:
    """Attention of long texts: from the command to the first picture, and the bytes that it takes."""
    rows = []
    for positions, heads, most in _TEXTS:
        run = _write_run(options.folder / f"{positions}-tokens-{heads}-heads", positions, heads)
        homes = [options.folder / f"{run.name}-{turn}" for turn in range(options.rounds)]
        seen = [_opened("attention", home, run, options) for home in homes]
        rows += _first_rows(f"{positions:,} tokens, {heads} heads", most, seen)
    how = (
        f"A recorded text: a prompt of so many tokens, read in one pass, and {_WRITTEN} more, with {_CANDIDATES} candidates each. Attention of one layer is kept as {Peaks()}: "
        f"of blocks of 16 × 16 and of 128 × 128 (at 32,768 the matrix itself would be 4.3 GB a head) the largest probability, 262 kB a head, of which the first picture has as much as fits into 2 MB. The probabilities are made up. The view is opened by its command in JupyterLab with its own server, "
        f"in Chromium without a GPU, {options.rounds} times, each with a server and a browser that know nothing of it yet, and once more in the same page. From the command to the animation frame after the canvas has colours on it: "
        f"the view's code, server, transfer, putting the passes together, and drawing; the tokens of a long text, and finer blocks, are read after that."
    )
    return Measured(rows, how)


def _first_rows(what: str, most: float, seen: Sequence[dict[str, Any]]) -> list[Row]:
    opened, again = ([each[name] / 1000 for each in seen] for name in ("opened", "again"))
    taken = max(sum(each["bytes"].values()) for each in seen)
    later = max(each["later"] for each in seen)
    note = f"again in the same page {statistics.median(again):.2f} s"
    return [
        worst(f"{what}: command to first picture (worst of {len(seen)})", opened, f"≤ {most:g}", note),
        Row(
            f"{what}: rows that the first picture takes",
            taken / 1e6,
            "MB",
            target=f"≤ {_MOST_BYTES / 1e6:g}",
            met=0 < taken <= _MOST_BYTES,
            note=f"and then {later / 1e6:.1f} MB of tokens",
        ),
    ]


def _write_run(folder: Path, positions: int, heads: int) -> Path:
    """Write the recording of a lab that wrote one text."""
    folder.mkdir(parents=True)
    _write(folder, "tensors", _tensors(positions, heads))
    _write(folder, "tokens", _tokens(positions))
    request = {"prompts": ["…"], "tokens": _WRITTEN, "attention": True}
    state = {
        "step": _WRITTEN,
        "time": STARTED,
        "generation": 1,
        "state": "finished",
        "who": "bench",
        "place": 0,
        "control": 0,
        "sequences": 1,
        "padded": positions,
        "first_step": 1,
        "last_step": _WRITTEN,
        "tokens": _WRITTEN,
        "seconds": 1.0,
        "request": json.dumps(request),
        "message": "",
    }
    _write(folder, "generations", [state])
    info = flag_info(_FLAG, [0], title="Attention probabilities", axes=["head", "query", "key"])
    about: dict[str, Any] = {
        "model": {"name": "GPT", "layers": 1, "heads": heads},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [info],
        "config": {"flags": {}},
    }
    return write_header(folder, **about)


def _tensors(positions: int, heads: int) -> Iterator[dict[str, Any]]:
    compressor = Peaks()
    rng = np.random.default_rng(0)
    for step in range(1, _WRITTEN + 1):
        queries, keys = (positions, positions) if step == 1 else (1, positions + step - 1)
        down, across = (-(-length // compressor.side(length)) for length in (queries, keys))
        values = rng.uniform(0, 0.2, (1, heads, down, across)).astype(np.float32)
        values[..., 0] = 0.9
        if step == 1:
            values *= np.tril(np.ones((down, across), np.float32))
        yield {
            "step": step,
            "micro_batch": 0,
            "phase": "generate",
            "pass": "forward",
            "rank": 0,
            "layer": 0,
            "flag": _FLAG,
            "part": "",
            "compressor": str(compressor),
            "source_shape": [1, heads, queries, keys],
            "shape": list(values.shape),
            "values": values.ravel(),
            "labels": [],
            "nan_count": 0,
            "inf_count": 0,
            **STREAMS["tensors"].absent,
        }


def _tokens(positions: int) -> Iterator[dict[str, Any]]:
    words = ["", "the", "of", "and", "model", "reads", "a", "text", "with", "its", "head", "in", "step"]
    candidates = {
        "candidate_ids": list(range(_CANDIDATES)),
        "candidate_texts": [f" {words[at % len(words)]}" for at in range(_CANDIDATES)],
        "candidate_logits": [float(-at) for at in range(_CANDIDATES)],
        "candidate_probabilities": [0.5 ** (at + 1) for at in range(_CANDIDATES)],
    }
    for position in range(positions + _WRITTEN):
        later = position - positions
        is_prompt, is_read = later < 0, later < _WRITTEN - 1
        yield {
            "step": 1 if later < 1 else later + 1,
            "generation": 1,
            "sequence": 0,
            "position": position,
            "kind": "prompt" if is_prompt else "generated",
            "id": position % 50_000,
            "text": f" {words[position % len(words)]}",
            "piece": f" {words[position % len(words)]}",
            "logit": 0.0,
            "probability": 0.5,
            "sampled_probability": float("nan") if is_prompt else 0.5,
            "rank": 0,
            "entropy": 1.0,
            **candidates,
            "candidate_sampled": [] if is_prompt else candidates["candidate_probabilities"],
            "tensor_step": (1 if is_prompt else later + 2) if is_read else -1,
            "tensor_pass": 0,
            "tensor_offset": position if is_prompt else 0,
        }


def _write(folder: Path, stream: str, rows: Iterator[dict[str, Any]] | list[dict[str, Any]]) -> None:
    pq.write_table(
        pa.Table.from_pylist(list(rows), schema=stream_schema(stream)), folder / f"{stream}.parquet"
    )


_JOB = Job(8, 16, 8, 5, 2, 100, faults=(Fault("device", (500,), 1.1, 40, 100),))
_SMALL = Job(2, 2, 2, 2, 1, 8)
_TOGETHER = 50_000
_VIEWS: tuple[tuple[int, int, dict[str, Any]], ...] = (
    (100, 100_000, {"kind": "tensors", "series": 100}),
    (25_000, 400, {"kind": "lines", "by": ["layer"]}),
)
"""Series, steps, and what is drawn of them."""

_FRAME_MS = 1000 / 60


@benchmark(
    "Explorer and timeline of large recordings",
    "one round of small recordings",
    rounds=(3, 1, "times that each is opened"),
    **_PICTURES,
)
def explorer(options: argparse.Namespace) -> Measured:
    """Explorer and timeline on recordings of ten million rows and spans: from the command to the first picture, and frames while it is panned."""
    rows, runs = [], options.folder / "runs"
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
        homes = [options.folder / f"{number}-{turn}" for turn in range(options.rounds)]
        seen = [_opened("explorer", home, run, options, command=command, view=view) for home in homes]
        rows += _panned_rows(what, seen)
    how = (
        f"A packed recording, opened by a command in JupyterLab with its own server, in Chromium without a GPU, {options.rounds} times, each with a server and a "
        "browser that know nothing of it yet (the file is in the system's cache). From the command to the animation frame after the canvas has lines or spans on it: server, worker, transfer and drawing. "
        f"Statistics are generated: 100 single tensors are 100 lines; of 25,000 the lines are their 50 layers, merged. Timelines are of a simulated job ({spans:,} spans). Then three zooms, and 120 moves of the mouse that drag the picture; a frame's time is that "
        "between two animation frames."
    )
    return Measured(rows, how)


def _recorded(folder: Path, job: Job) -> tuple[Path, int]:
    """Write the recording of a simulated job, steps in their order, and return its folder and the number of spans."""
    write_header(folder, job.steps)
    schema = stream_schema("spans")
    table = simulate(job)[0].sort_by("step").select(schema.names).cast(schema)
    write_segment(folder, "spans", 0, 1, table.to_batches(max_chunksize=_TOGETHER))
    return folder, table.num_rows


def _panned_rows(what: str, seen: Sequence[dict[str, Any]]) -> list[Row]:
    """Return how long the first picture took, and how long the frames of a drag did."""
    opened = [each["opened"] / 1000 for each in seen]
    frames = [time for each in seen for time in each["frames"]]
    middle, slow = statistics.median(frames), percentile(frames, 95)
    return [
        worst(f"{what}: command to first picture (worst of {len(seen)})", opened, "≤ 2"),
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
