"""Attention of long texts: from the command to the first picture, and the bytes that it takes; a real JupyterLab in a real Chromium.

Run ``python -m bench.attention`` (``--quick`` for one round).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from megalens.protocol import STREAMS, Peaks, stream_schema

from .common import Row, asked, judged, report
from .lab import environment_of, in_page, running_lab

__all__ = ["main"]

_FLAG = "RawAttentionScore_mat_mul"
_TEXTS = ((4096, 4, 1.0), (32_768, 4, 2.0), (32_768, 32, 2.0))
"""Positions of the prompt, heads, and the seconds that the first picture may take."""

_WRITTEN = 32
_CANDIDATES = 20
_MOST_BYTES = 2_000_000
_STARTED = 1_795_000_000.0


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/attention.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "one round",
        rounds=(5, "times that each is opened"),
        extension=(Path, "labextensions folder of another build than the installed one"),
        screenshot=(Path, "folder for pictures of the pages"),
    )
    rounds = 1 if options.quick else options.rounds
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for positions, heads, most in _TEXTS:
            run = _write_run(Path(folder) / f"{positions}-tokens-{heads}-heads", positions, heads)
            seen = [_seen(Path(folder) / f"{run.name}-{turn}", run, options) for turn in range(rounds)]
            rows += _rows(f"{positions:,} tokens, {heads} heads", most, seen)
    how = (
        f"A recorded text: a prompt of so many tokens, read in one pass, and {_WRITTEN} more, with {_CANDIDATES} candidates each. Attention of one layer is kept as {Peaks()}: "
        f"of blocks of 16 × 16 and of 128 × 128 (at 32,768 the matrix itself would be 4.3 GB a head) the largest probability, 262 kB a head, of which the first picture has as much as fits into 2 MB. The probabilities are made up. The view is opened by its command in JupyterLab with its own server, "
        f"in Chromium without a GPU, {rounds} times, each with a server and a browser that know nothing of it yet, and once more in the same page. From the command to the animation frame after the canvas has colours on it: "
        f"the view's code, server, transfer, putting the passes together, and drawing; the tokens of a long text, and finer blocks, are read after that."
    )
    return report("attention", "Attention of long texts", rows, how=how, quick=options.quick)


def _seen(home: Path, run: Path, options: argparse.Namespace) -> dict[str, Any]:
    environment = environment_of(home)
    runs = home / "root" / "megalens-runs"
    runs.mkdir(parents=True)
    # The server follows no link that leads out of its folders.
    shutil.copytree(run, runs / run.name)
    picture = options.screenshot and str(options.screenshot.absolute() / f"{run.name}.png")
    with running_lab(home, environment, options.extension) as (url, token):
        page = {"url": url, "run": run.name, "screenshot": picture}
        return in_page("attention", page, environment | {"BENCH_TOKEN": token}, 240)


def _rows(what: str, most: float, seen: Sequence[dict[str, Any]]) -> list[Row]:
    opened, again = ([each[name] / 1000 for each in seen] for name in ("opened", "again"))
    taken = max(sum(each["bytes"].values()) for each in seen)
    later = max(each["later"] for each in seen)
    slowest = max(opened)
    return [
        judged(
            f"{what}: command to first picture (worst of {len(seen)})",
            slowest,
            "s",
            f"≤ {most:g}",
            f"median {statistics.median(opened):.2f} s; again in the same page {statistics.median(again):.2f} s",
        ),
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
        "time": _STARTED,
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
    info = {
        "name": _FLAG,
        "title": "Attention probabilities",
        "layers": [0],
        "parts": [],
        "axes": ["head", "query", "key"],
        "bytes_per_layer": None,
    }
    header = {
        "format": 2,
        "run": {"id": folder.name, "name": folder.name, "started": _STARTED},
        "state": "finished",
        "ended": _STARTED + 1,
        "model": {"name": "GPT", "layers": 1, "heads": heads},
        "layout": {"world_size": 1, "tp": 1, "pp": 1, "dp": 1},
        "flags": [info],
        "config": {"flags": {}},
        "missing_steps": [],
    }
    (folder / "run.json").write_text(json.dumps(header), encoding="utf-8")
    return folder


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


if __name__ == "__main__":
    main()
