"""Group a million rows by layer and step and take five statistics, four ways on the same rows: ``python -m bench.aggregation [--quick]``.

The rows are written once as an Arrow stream. A Node process reads them with the browser's Arrow reader and runs the three JavaScript ways; DuckDB runs
here. The four take turns in every block, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from ..common import Row, ratio, write_results
from ..node_side import NodeSide, node_version

_JAVASCRIPT = ("product", "arquero", "bare")
_LAYERS = 24
_QUERY = """
    select step, layer, avg(value) as mean, stddev_pop(value) as std, min(value) as min, max(value) as max, sqrt(avg(value * value)) as rms
    from rows group by step, layer order by step, layer
"""
_TARGET = 3.0


def main() -> int:
    """Measure, check that all four agree, write the results and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.aggregation", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows and blocks")
    quick = parser.parse_args().quick
    rows, blocks = (100_001, 5) if quick else (1_000_000, 30)
    table = _rows(rows)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.arrows"
        with pa.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table)
        times, groups = _measure(table, path, blocks)
    print(_report(times, groups, rows, quick).read_text(encoding="utf-8"))
    return 0


def _rows(count: int) -> pa.Table:
    """Return rows as a training run leaves them: ordered by step, the layers of a step in turn, about twenty values each."""
    dice = np.random.default_rng(20261121)
    index = np.arange(count, dtype=np.int64)
    return pa.table(
        {
            "step": (1 + index // (_LAYERS * 20)).astype(np.int32),
            "layer": (1 + index % _LAYERS).astype(np.int32),
            "value": dice.normal(0.1, 2.0, count),
        }
    ).combine_chunks()


def _measure(table: pa.Table, path: Path, blocks: int) -> tuple[dict[str, list[float]], int]:
    """Return the milliseconds of every block by way, and the number of groups."""
    connection = duckdb.connect()
    connection.register("rows", table)
    ways = (*_JAVASCRIPT, "duckdb")
    times: dict[str, list[float]] = {way: [] for way in ways}
    with NodeSide(Path(__file__).parent / "ways.mjs", str(path)) as node:
        answers = {way: node.ask(way)["sums"] for way in _JAVASCRIPT}
        answers["duckdb"] = _sums(connection.sql(_QUERY).to_arrow_table())
        _check(answers)
        # The first rounds are the compilers'.
        order = random.Random(0)
        for block in range(-3, blocks):
            for way in order.sample(ways, len(ways)):
                if way == "duckdb":
                    began = time.perf_counter()
                    connection.sql(_QUERY).to_arrow_table()
                    taken = (time.perf_counter() - began) * 1000
                else:
                    taken = node.ask(way)["ms"]
                if block >= 0:
                    times[way].append(taken)
    return times, int(answers["bare"]["groups"])


def _sums(result: pa.Table) -> dict[str, float]:
    sums = {name: math.fsum(result[name].to_numpy()) for name in ("mean", "std", "min", "max", "rms")}
    return {"groups": result.num_rows, **sums}


def _check(answers: dict[str, dict[str, float]]) -> None:
    """Raise unless every way found the same groups and statistics."""
    wanted = answers["duckdb"]
    for way, sums in answers.items():
        for name, value in wanted.items():
            if not math.isclose(sums[name], value, rel_tol=1e-9):
                raise RuntimeError(f"{way} found {name} {sums[name]!r} where DuckDB found {value!r}.")


def _report(times: dict[str, list[float]], groups: int, rows: int, quick: bool) -> Path:
    words = {
        "product": "the product's path: copy to a worker, typed-array pass there, columns back",
        "bare": "bare typed-array loop, groups known beforehand, no worker",
        "arquero": "plain arquero: groupby and rollup",
        "duckdb": "DuckDB in Python, result as Arrow",
    }
    lines = []
    for other in ("bare", "arquero", "duckdb"):
        found = ratio(times["product"], times[other], middle=statistics.median)
        met = found.value <= _TARGET if other == "bare" else None
        target = f"≤ {_TARGET:g}" if other == "bare" else ""
        what = f"product ÷ {words[other].split(':')[0].split(',')[0]}"
        lines.append(Row(what, found.value, "×", found.low, found.high, target, met))
    lines += [
        Row(words[way], statistics.median(times[way]), "ms", extra={"ms": times[way]})
        for way in ("product", "bare", "arquero", "duckdb")
    ]
    return write_results(
        "aggregation",
        f"Aggregation of {rows:,} rows",
        lines,
        how=(
            f"{rows:,} rows grouped by layer and step into {groups:,} groups, five statistics (mean, standard deviation, min, max, rms); medians of "
            f"{len(times['product'])} blocks in which the four ways take turns in random order, all four checked to agree."
        ),
        quick=quick,
        facts={"node": node_version()},
    )


if __name__ == "__main__":
    raise SystemExit(main())
