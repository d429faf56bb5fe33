"""How long a person waits: for the first picture of views of large recordings, of a cell, of a report and of marimo, for imports, and for JupyterLab's start; a real JupyterLab in a real Chromium."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import Peaks, stream_schema
from tests.kit.simulated_jobs import Fault, Job, simulate

from .common import ROOT, Measured, Row, benchmark, divided, percentile, ratio, timed, typical, worst
from .live import Lab, free_port, fresh, paced_training, running_lab, serving
from .recordings import STARTED, flag_info, rows_of, tensor_rows, write_header, write_recording, write_segment

__all__ = ["attention", "explorer", "imports", "marimo", "pictures"]


def _opened(script: str, home: Path, run: Path, **page: Any) -> dict[str, Any]:
    """Open a view of a recording by its command, in a JupyterLab and a browser of its own below ``home``; return what the page says."""
    runs = home / "root" / "megalens-runs"
    runs.mkdir(parents=True)
    # The server follows no link that leads out of its folders.
    shutil.copytree(run, runs / run.name, copy_function=os.link)
    with running_lab(home) as lab:
        return lab.look(script, 240, run=run.name, **page)


_FLAG = "RawAttentionScore_mat_mul"
_TEXTS = ((4096, 4, 1.0), (32_768, 4, 2.0), (32_768, 32, 2.0))
"""Positions of the prompt, heads, and the seconds that the first picture may take."""

_WRITTEN = 32
_CANDIDATES = 20
_MOST_BYTES = 2_000_000


@benchmark("Attention of long texts", "one round", rounds=(5, 1, "times that each is opened"))
def attention(options: argparse.Namespace) -> Measured:
    """Attention of long texts: from the command to the first picture, and the bytes that it takes."""
    rows = []
    for positions, heads, most in _TEXTS:
        run = _write_run(options.folder / f"{positions}-tokens-{heads}-heads", positions, heads)
        homes = [options.folder / f"{run.name}-{turn}" for turn in range(options.rounds)]
        seen = [_opened("attention", home, run) for home in homes]
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
    state = {"step": _WRITTEN, "generation": 1, "state": "finished", "who": "bench", "sequences": 1}
    told = {"prompts": ["…"], "tokens": _WRITTEN, "attention": True}
    ends = {"first_step": 1, "last_step": _WRITTEN, "tokens": _WRITTEN, "padded": positions, "seconds": 1.0}
    request = json.dumps(told)
    rows = {
        "tensors": _tensors(positions, heads),
        "tokens": [_tokens(positions)],
        "generations": [rows_of("generations", 1, time=STARTED, request=request, **state, **ends)],
    }
    for stream, batches in rows.items():
        pq.write_table(pa.Table.from_batches(batches), folder / f"{stream}.parquet")
    info = flag_info(_FLAG, [0], title="Attention probabilities", axes=["head", "query", "key"])
    about: dict[str, Any] = {
        "model": {"name": "GPT", "layers": 1, "heads": heads},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [info],
        "config": {"flags": {}},
    }
    return write_header(folder, **about)


def _tensors(positions: int, heads: int) -> Iterator[pa.RecordBatch]:
    compressor = Peaks()
    rng = np.random.default_rng(0)
    for step in range(1, _WRITTEN + 1):
        queries, keys = (positions, positions) if step == 1 else (1, positions + step - 1)
        down, across = (-(-length // compressor.side(length)) for length in (queries, keys))
        values = rng.uniform(0, 0.2, (1, heads, down, across)).astype(np.float32)
        values[..., 0] = 0.9
        if step == 1:
            values *= np.tril(np.ones((down, across), np.float32))
        yield tensor_rows(
            1,
            list(values.shape),
            [1, heads, queries, keys],
            **{"step": step, "phase": "generate", "flag": _FLAG, "compressor": str(compressor)},
            values=[values.ravel()],
        )


def _tokens(positions: int) -> pa.RecordBatch:
    words = ["", "the", "of", "and", "model", "reads", "a", "text", "with", "its", "head", "in", "step"]
    at = np.arange(positions + _WRITTEN)
    later = at - positions
    is_prompt, is_read = later < 0, later < _WRITTEN - 1
    texts = [f" {words[position % len(words)]}" for position in at]
    chances = [0.5 ** (one + 1) for one in range(_CANDIDATES)]
    return rows_of(
        "tokens",
        len(at),
        step=np.where(later < 1, 1, later + 1),
        generation=1,
        position=at,
        kind=np.where(is_prompt, "prompt", "generated").tolist(),
        id=at % 50_000,
        text=texts,
        piece=texts,
        probability=0.5,
        sampled_probability=np.where(is_prompt, np.nan, 0.5),
        entropy=1.0,
        candidate_ids=[list(range(_CANDIDATES))] * len(at),
        candidate_texts=[[f" {words[one % len(words)]}" for one in range(_CANDIDATES)]] * len(at),
        candidate_logits=[[float(-one) for one in range(_CANDIDATES)]] * len(at),
        candidate_probabilities=[chances] * len(at),
        candidate_sampled=[[] if prompt else chances for prompt in is_prompt],
        tensor_step=np.where(is_read, np.where(is_prompt, 1, later + 2), -1),
        tensor_offset=np.where(is_prompt, at, 0),
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
        seen = [_opened("explorer", home, run, command=command, view=view) for home in homes]
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
    return fresh(_BEGIN + work, run, cwd=place, PYTHONPATH=str(place))


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
