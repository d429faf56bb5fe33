"""How fast traces of PyTorch's profiler are opened, beside Python's json: files of one job in one run."""

from __future__ import annotations

import gzip
import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

import megalens
from megalens.demo import GPT

from .common import Row, asked, judged, ratio, report

__all__ = ["main"]

_OPENS = b'"traceEvents": ['


def _template() -> tuple[bytes, bytes, list[str]]:
    """Return head and tail of a real profile of the demo model, and its events as texts."""
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    ids = torch.randint(0, 200, (4, 128))
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, with_stack=True) as profiler:
        for _ in range(3):
            model(ids).logsumexp(-1).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.json")
        profiler.export_chrome_trace(str(path))
        text = path.read_bytes()
    at = text.index(_OPENS) + len(_OPENS)
    whole = json.loads(text)
    return text[:at], b"\n  ]}\n", [json.dumps(each, indent=4) for each in whole["traceEvents"]]


def _write(folder: Path, ranks: int, size: int, packed: bool) -> int:
    """Write a file of about ``size`` bytes for each rank; return how many bytes of JSON that is."""
    head, tail, events = _template()
    timed = [(text, json.loads(text)) for text in events]
    lasts = max(float(each.get("ts", 0)) for _, each in timed) - min(
        float(each["ts"]) for _, each in timed if each.get("ph") == "X"
    )
    total = 0
    for rank in range(ranks):
        path = folder / f"rank{rank}.pt.trace.json{'.gz' if packed else ''}"
        written, shift = 0, 0.0
        with gzip.open(path, "wb", 1) if packed else path.open("wb") as file:
            about = f'{{"backend": "gloo", "rank": {rank}, "world_size": {ranks}}}'
            first = head.replace(
                b'"schemaVersion"', f'"distributedInfo": {about},\n    "schemaVersion"'.encode()
            )
            file.write(first)
            between = b"\n"
            while written < size:
                moved = []
                for text, each in timed:
                    if "ts" in each:
                        text = text.replace(f'"ts": {each["ts"]}', f'"ts": {each["ts"] + shift:.3f}', 1)
                    moved.append(text)
                block = between + ",\n".join(moved).encode()
                file.write(block)
                written += len(block)
                between, shift = b",\n", shift + lasts + 1000
            file.write(tail)
        total += written
    return total


def _ours(folder: Path) -> tuple[float, int]:
    with tempfile.TemporaryDirectory() as cache:
        os.environ["MEGALENS_CACHE_DIR"] = cache
        began = time.perf_counter()
        with megalens.open(folder) as run:
            count = run.table("spans").num_rows
        return time.perf_counter() - began, count


def _json(folder: Path) -> float:
    began = time.perf_counter()
    for path in sorted(folder.iterdir()):
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            json.load(file)
    return time.perf_counter() - began


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/trace_reading.json``; return the page of all results."""
    options = asked(
        __doc__,
        arguments,
        "16 MB",
        megabytes=(1000, "of JSON in all"),
        ranks=(8, "files"),
        rounds=(3, "times that each is opened"),
    )
    megabytes = 16 if options.quick else options.megabytes
    rows = []
    for packed in (False, True):
        with tempfile.TemporaryDirectory() as where:
            folder = Path(where)
            size = _write(folder, options.ranks, megabytes * 1_000_000 // options.ranks, packed)
            ours, theirs, count = [], [], 0
            for _ in range(options.rounds):
                theirs.append(_json(folder))
                seconds, count = _ours(folder)
                ours.append(seconds)
        quotient = ratio(theirs, ours)
        name = "packed with gzip" if packed else "plain"
        rows += [
            Row(f"{name}: opened as a run", sum(ours) / len(ours), "s", note=f"{size / 1e9:.2f} GB of JSON, {count} spans"),
            Row(f"{name}: json.load of each file, and nothing else", sum(theirs) / len(theirs), "s"),
            judged(f"{name}: json over ours", quotient.value, "×", "≥ 3", low=quotient.low, high=quotient.high, by=quotient.low),
        ]  # fmt: skip
    how = (
        f"{options.ranks} files, made of a real profile of the demo model (operations with shapes and stacks) that is repeated, opened by `megalens.open` with an empty cache, "
        f"until its spans are a table; beside it `json.load` of the same files, which makes no spans of them. {options.rounds} rounds, one after the other."
    )
    return report("trace_reading", "Opening traces of PyTorch's profiler", rows, how=how, quick=options.quick)


if __name__ == "__main__":
    main()
