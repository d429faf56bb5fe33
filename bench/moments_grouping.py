"""Regroup a million rows of moments three ways on the same rows: ``python -m bench.moments_grouping [--quick]``.

The rows are written once as an Arrow stream. A Node process reads them, hands them to the product's worker, and runs the product and a bare loop; DuckDB
runs here. They take turns in every block, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from .common import Row, asked, judged, ratio, report
from .lab import NodeSide, node_version

_WAYS = ("product", "bare", "duckdb")
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


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure, check that all three agree, write the results and print the table."""
    quick = asked(__doc__, arguments, "fewer rows and blocks").quick
    tensors, steps, blocks = (500, 240, 4) if quick else (2_500, 400, 20)
    names = [f"decoder.layers.{at % _LAYERS}.mlp.tensor{at // _LAYERS}.weight" for at in range(tensors)]
    rows = _rows(tensors, steps)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "moments.arrows"
        with pa.ipc.new_stream(str(path), rows.schema) as writer:
            writer.write_table(rows)
        times, groups = _measure(rows, names, path, blocks)
    return _report(times, groups, rows.num_rows, quick)


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


def _measure(
    rows: pa.Table, names: list[str], path: Path, blocks: int
) -> tuple[dict[tuple[str, str], list[float]], dict[str, int]]:
    """Return the milliseconds of every block by way and question (loading is a way), and the number of groups by question."""
    connection = duckdb.connect()
    # The server's tables name a tensor by its place in the names, as these do: only the layer is looked up.
    layers = np.array([int(name.split(".")[2]) for name in names], dtype=np.int32)
    table = rows.append_column("layer", pa.array(layers[rows["name_id"].to_numpy()]))
    connection.register("moments", table.rename_columns({"name_id": "name"}))
    turns = [(way, question) for question in _QUESTIONS for way in _WAYS] + [("load", "")]
    times: dict[tuple[str, str], list[float]] = {turn: [] for turn in turns}
    groups = {}
    with NodeSide("moments", str(path), json.dumps(names)) as node:
        for question, by in _QUESTIONS.items():
            wanted = connection.sql(_QUERY.format(by=by)).to_arrow_table()
            groups[question] = wanted.num_rows
            for way in ("product", "bare"):
                found = node.ask(f"{way} {question}")["sums"]
                _check(f"{way} {question}", found, wanted)
        order = random.Random(0)
        # The first rounds are the compilers'.
        for block in range(-3, blocks):
            for way, question in order.sample(turns, len(turns)):
                if way == "duckdb":
                    began = time.perf_counter()
                    connection.sql(_QUERY.format(by=_QUESTIONS[question])).to_arrow_table()
                    taken = (time.perf_counter() - began) * 1000
                else:
                    taken = node.ask(f"{way} {question}".strip())["ms"]
                if block >= 0:
                    times[way, question].append(taken)
    return times, groups


def _check(way: str, found: dict[str, float], wanted: pa.Table) -> None:
    """Raise unless a way found the same groups and kurtoses as DuckDB."""
    total = math.fsum(wanted["kurtosis"].to_numpy())
    if found["groups"] != wanted.num_rows or not math.isclose(found["kurtosis"], total, rel_tol=1e-9):
        raise RuntimeError(
            f"{way} found {found} where DuckDB found {wanted.num_rows} groups, in sum {total!r}."
        )


def _report(
    times: dict[tuple[str, str], list[float]], groups: dict[str, int], rows: int, quick: bool
) -> Path:
    lines = []
    for question in _QUESTIONS:
        product = times["product", question]
        middle = statistics.median(product)
        found = {way: ratio(product, times[way, question], middle=statistics.median) for way in _WAYS[1:]}
        lines.append(
            judged(
                f"{question} ({groups[question]:,} groups): product, question to answer",
                middle,
                "ms",
                f"≤ {_TARGET_MS:g}",
                ms=product,
            )
        )
        words = {
            "bare": "bare typed-array loop, groups known, no worker",
            "duckdb": "DuckDB in Python, result as Arrow",
        }
        for way, text in words.items():
            other = times[way, question]
            lines.append(Row(f"{question}: {text}", statistics.median(other), "ms", extra={"ms": other}))
            lines.append(
                Row(f"{question}: product ÷ {way}", found[way].value, "×", found[way].low, found[way].high)
            )
    loading = times["load", ""]
    lines.append(
        Row(
            "bringing the rows into the worker, once a run",
            statistics.median(loading),
            "ms",
            extra={"ms": loading},
        )
    )
    return report(
        "moments_grouping",
        f"Regrouping {rows:,} rows of moments",
        lines,
        how=(
            f"{rows:,} rows that the worker has are merged into groups and their kurtosis is read, the statistic that takes most columns; medians of "
            f"{len(loading)} blocks in which the ways take turns in random order, all checked to agree."
        ),
        quick=quick,
        facts={"node": node_version()},
    )


if __name__ == "__main__":
    main()
