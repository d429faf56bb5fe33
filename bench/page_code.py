"""The page's code in Node, in the product's own worker: regrouping a million rows of moments, and projecting vectors.

The rows are written once as an Arrow stream. A Node process reads them, hands them to the worker, and runs the product and a bare loop; DuckDB
runs here. They take turns in every block, so that whatever else the machine does meets all of them alike. Projections are compared with numpy's.
"""

from __future__ import annotations

import argparse
import json
import math
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .common import in_turns, ratio, timed
from .lab import node_side, node_version
from .report import Measured, Row, benchmark, divided, judged

__all__ = ["moments_grouping", "projection"]

_OTHERS = {
    "bare": "bare typed-array loop, groups known, no worker",
    "duckdb": "DuckDB in Python, result as Arrow",
}
_LAYERS = 50
_QUESTIONS = {"layer × step": "layer, step", "tensor × step": "name, step", "total": "step"}
_TARGET_MS = 100.0

# The same two passes: the group's mean, then the moments about it.
_QUERY = """
    with middle as (select {by}, sum(count) as n, sum(count * mean) / sum(count) as mu from moments group by {by}),
    apart as (select moments.*, n, mean - mu as d from moments join middle using ({by}))
    select {by}, (sum(m4 + 4 * d * m3 + 6 * d * d * m2 + count * d * d * d * d) / any_value(n))
        / pow(sum(m2 + count * d * d) / any_value(n), 2) as kurtosis
    from apart group by {by} order by {by}
"""


@benchmark(
    "Regrouping rows of moments",
    "fewer rows and blocks",
    tensors=(2500, 500, "of the model"),
    steps=(400, 240, "of each"),
    blocks=(20, 4, "blocks of each way"),
)
def moments_grouping(options: argparse.Namespace) -> Measured:
    """Regroup a million rows of moments three ways on the same rows."""
    names = [
        f"decoder.layers.{at % _LAYERS}.mlp.tensor{at // _LAYERS}.weight" for at in range(options.tensors)
    ]
    rows = _rows(options.tensors, options.steps)
    path = options.folder / "moments.arrows"
    with pa.ipc.new_stream(str(path), rows.schema) as writer:
        writer.write_table(rows)
    times, groups = _measured(rows, names, path, options.blocks)
    lines = []
    for question in _QUESTIONS:
        product = times["product", question]
        what = f"{question} ({groups[question]:,} groups): product, question to answer"
        lines.append(judged(what, median(product), "ms", f"≤ {_TARGET_MS:g}", ms=product))
        for way, text in _OTHERS.items():
            other = times[way, question]
            lines += [
                Row(f"{question}: {text}", median(other), "ms", extra={"ms": other}),
                divided(f"{question}: product ÷ {way}", ratio(product, other, middle=median)),
            ]
    loading = times["load", ""]
    what = "bringing the rows into the worker, once a run"
    lines.append(Row(what, median(loading), "ms", extra={"ms": loading}))
    how = (
        f"{rows.num_rows:,} rows that the worker has are merged into groups and their kurtosis is read, the statistic that takes most columns; medians of "
        f"{len(loading)} blocks in which the ways take turns in random order, all checked to agree."
    )
    return Measured(lines, how, {"node": node_version()})


def _rows(tensors: int, steps: int) -> pa.Table:
    """Return moments of every tensor at every step, ordered by step as a run leaves them."""
    rng = np.random.default_rng(20261121)
    rows = tensors * steps
    count = rng.integers(1_000, 1_000_000, rows).astype(np.float64)
    deviation = np.exp(rng.normal(-3, 1, rows))
    return pa.table(
        {
            "step": 1.0 + np.arange(rows) // tensors,
            "name_id": (np.arange(rows) % tensors).astype(np.int32),
            "count": count,
            "mean": rng.normal(0, 0.1, rows),
            "m2": count * deviation**2,
            "m3": count * deviation**3 * rng.normal(0, 0.2, rows),
            "m4": count * deviation**4 * rng.uniform(3, 9, rows),
            "min": -4 * deviation,
            "max": 4 * deviation,
        }
    ).combine_chunks()


def _measured(
    rows: pa.Table, names: list[str], path: Path, blocks: int
) -> tuple[dict[Any, list[float]], dict[str, int]]:
    """Return the milliseconds of every block by way and question (loading is a way), and the number of groups by question."""
    connection = duckdb.connect()
    # The server's tables name a tensor by its place in the names, as these do: only the layer is looked up.
    layers = np.array([int(name.split(".")[2]) for name in names], dtype=np.int32)
    table = rows.append_column("layer", pa.array(layers[rows["name_id"].to_numpy()]))
    connection.register("moments", table.rename_columns({"name_id": "name"}))

    def grouped(question: str) -> pa.Table:
        return connection.sql(_QUERY.format(by=_QUESTIONS[question])).to_arrow_table()

    groups, turns = {}, dict[Any, Any]()
    with node_side("moments", path, json.dumps(names)) as node:

        def asked(line: str) -> float:
            return float(node.ask(line)["ms"])

        for question in _QUESTIONS:
            wanted = grouped(question)
            groups[question] = wanted.num_rows
            turns["duckdb", question] = lambda question=question: 1000 * timed(partial(grouped, question))
            for way in ("product", "bare"):
                line = f"{way} {question}"
                _check(line, node.ask(line)["sums"], wanted)
                turns[way, question] = partial(asked, line)
        turns["load", ""] = partial(asked, "load")
        # The first rounds are the compilers'.
        return in_turns(turns, blocks, warm=3), groups


def _check(way: str, found: dict[str, float], wanted: pa.Table) -> None:
    """Raise unless a way found the same groups and kurtoses as DuckDB."""
    total = math.fsum(wanted["kurtosis"].to_numpy())
    if found["groups"] != wanted.num_rows or not math.isclose(found["kurtosis"], total, rel_tol=1e-9):
        raise RuntimeError(
            f"{way} found {found} where DuckDB found {wanted.num_rows} groups, in sum {total!r}."
        )


_CLOSE = 1e-5


@benchmark(
    "Projections of vectors",
    "fewer points, one repetition",
    many=(10_000, 1000, "points of which components are computed"),
    some=(5000, 500, "points that UMAP places"),
    times=(3, 1, "repetitions"),
)
def projection(options: argparse.Namespace) -> Measured:
    """Measure what a page waits for when it projects vectors."""
    many, some, times = options.many, options.some, options.times
    rng = np.random.default_rng(0)
    rows = []
    with node_side("projections") as node:

        def ask(way: str, points: NDArray[np.float32]) -> list[dict[str, Any]]:
            file = options.folder / "points.f32"
            file.write_bytes(points.tobytes())
            line = [way, *points.shape, str(file)]
            if way == "umap-js":
                return [node.ask(line)]
            # The first is the compiler's.
            return [node.ask(line) for _ in range(times + 1)][1:]

        for spectrum, columns, power, target in (
            ("variances that fall as 1/k", 768, 1.0, "≤ 1"),
            ("variances that fall as 1/√k", 768, 0.5, ""),
            ("no direction but noise", 768, 0.0, ""),
            ("variances that fall as 1/k", 96, 1.0, ""),
        ):
            points = _points(rng, many, columns, power)
            answers = ask("components", points)
            _check_shares(points, answers[0]["ratios"])
            rows.append(_row(f"two components of {many:,} × {columns}, {spectrum}", answers, target))
        for columns in (96, 768):
            points = _points(rng, some, columns, 1.0)
            answers = ask("umap", points)
            what, note = f"UMAP of {some:,} × {columns}", f", told how far it is {answers[0]['told']} times"
            rows.append(_row(what, answers, "≤ 10", note))
            if columns == 96:
                theirs = ask("umap-js", points)
                title = f"{what}, umap-js 1.4.0, on the page's thread"
                note = f"{_processor(theirs):.2g} s of processor"
                rows.append(Row(title, theirs[0]["ms"] / 1000, "s", note=note))
    how = (
        "The product's worker in a thread of Node, from the question to the answer, with copying the numbers there; medians of "
        f"{times} runs, the shares of variance checked to be numpy's. Seconds of processor are of all threads; “blocked” is the longest stretch in which the page's thread did nothing else."
    )
    return Measured(rows, how, {"node": node_version()})


def _points(rng: np.random.Generator, rows: int, columns: int, power: float) -> NDArray[np.float32]:
    """Normally distributed points whose k-th greatest variance falls as ``k ** -power``, turned at random."""
    spread = np.arange(1, columns + 1) ** (-power / 2)
    turn, _ = np.linalg.qr(rng.standard_normal((columns, columns)))
    points: NDArray[np.float32] = (3 + rng.standard_normal((rows, columns)) * spread @ turn).astype(
        np.float32
    )
    return points


def _check_shares(points: NDArray[np.float32], found: list[float]) -> None:
    exact = np.linalg.eigvalsh(np.cov(points.astype(np.float64), rowvar=False))[::-1]
    expected = exact[:2] / exact.sum()
    if not np.allclose(found, expected, rtol=_CLOSE):
        raise RuntimeError(f"The worker found the shares {found}, and numpy {expected.tolist()}.")


def _processor(answers: list[dict[str, Any]]) -> float:
    """Seconds of processor, which other programs on the machine change less than those of the clock."""
    seconds: float = median(each["processor"] for each in answers) / 1000
    return seconds


def _row(what: str, answers: list[dict[str, Any]], target: str, note: str = "") -> Row:
    times = [each["ms"] for each in answers]
    blocked = median(each["blocked"] for each in answers)
    said = f"{_processor(answers):.2g} s of processor, blocked {blocked:.0f} ms{note}"
    return judged(what, median(times) / 1000, "s", target, said, ms=times)
