"""What is computed of numbers: moments, histograms and casts of a model's tensors against one plain read of the same memory, and the page's code in Node, in the product's own worker, that regroups a million rows of moments and projects vectors.

Blocks of all ways alternate in one run, in random order, so that whatever else the machine does meets all of them alike.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from megalens.tracer.memory import memory_reader
from megalens.tracer.moments import kernel_name, measure
from megalens.tracer.moments.casts import FORMATS, cast_plainly, cast_rows
from megalens.tracer.moments.measure import measure_plainly
from megalens.tracer.moments.native.library import load

from .common import Measured, Row, benchmark, divided, in_turns, judged, ratio, timed
from .live import node_side, node_version

__all__ = ["moments_grouping", "moments_kernel", "projection"]

_TARGETS = {"Megalens' kernel": 1.5, "Histogram(bins=128)": 1.3}
_WIDTH, _DEPTH, _WORDS, _POSITIONS = 384, 12, 22_000, 1024
_SAME, _CAST = 1 << 23, 384 << 10
_JUDGED = (torch.float32, torch.bfloat16)
_READ = "sum()"
_KERNEL, _HISTOGRAM = _TARGETS

Way = Callable[[Sequence[Tensor]], object]


@benchmark(
    "Moments of a tensor against one read of its memory",
    "few rounds",
    rounds=(61, 5, "rounds of the fast ways, two in three as many of histograms and one in three of casts"),
    plain_rounds=(7, 3, "rounds of the slow ways"),
    calls=(5000, 200, "calls with one small tensor"),
)
def moments_kernel(options: argparse.Namespace) -> Measured:
    """Moments, histograms and casts of a model's tensors, against one plain read of the same memory; and readings of a process's memory."""
    kernel, rounds, plain_rounds = kernel_name("cpu"), options.rounds, options.plain_rounds
    rows: list[Row] = []
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
        tensors = [torch.randn(shape).mul_(0.02).to(dtype) for shape in shapes()]
        rows += _compare(tensors, rounds, plain_rounds if dtype in _JUDGED else 0)
        if dtype in _JUDGED:
            # Alone, without threads that wait for each other: what the arithmetic costs where memory is not the limit.
            rows += _compare(tensors, rounds, 0, threads=1)
        del tensors
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for dtype in _JUDGED:
        for kind, values in distributions().items():
            rows += _histogram(values.to(dtype).view(-1, 4096), kind, max(5, rounds * 2 // 3))
    rows += _casts(max(3, rounds // 3))
    torch.set_num_threads(threads)
    reader = memory_reader([])
    if reader is not None:
        took = timed(reader.read, options.calls * 2 // 5)
        rows.append(Row("a reading of the process's memory", 1e6 * took, "µs"))
    small = [torch.randn(_WIDTH)]
    took = timed(lambda: measure(small), options.calls)
    rows.append(Row(f"a call with one tensor of {_WIDTH} values", 1e6 * took, "µs"))
    how = (
        f"The parameters of a GPT of width {_WIDTH} and {_DEPTH} layers: {len(shapes())} tensors, {_values() / 1e6:.1f} million values, more than the caches hold. "
        "Every way goes over all of them, all ways in random order, round after round; a figure is the median over the rounds, a ratio that of the medians, its interval "
        f"over rounds. One plain read is `tensor.sum()` of each. The kernel in use is {kernel}, on torch's {torch.get_num_threads()} threads. The kernel gives all nine figures in "
        f"float64; naive torch takes mean, variance, third and fourth power, extremes and non-finite counts one after the other. Histograms by distribution are of one tensor of {_SAME / 1e6:.1f} million values, casts of {_CAST / 1e6:.1f} million "
        "normal ones, both in one thread; casts against torch's own operations, which the fallback takes."
    )
    return Measured(rows, how)


def shapes() -> list[tuple[int, ...]]:
    """Return the shapes of a GPT's parameters: large matrices and as many small vectors."""
    d = _WIDTH
    layer: list[tuple[int, ...]] = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,)]
    layer += [(4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(_WORDS, d), (_POSITIONS, d), (2, d), *(layer * _DEPTH), (d,), (d,), (_WORDS,)]


def distributions() -> dict[str, Tensor]:
    """Return float32 values of one tensor, by what they are like."""
    normal, even = torch.randn(_SAME), torch.rand(_SAME)
    return {
        "normal": normal * 0.02,
        "heavy-tailed, Student's t with 2": torch.distributions.StudentT(2.0).sample((_SAME,)) * 0.02,
        "half zeros, ReLU": normal.relu(),
        "GELU": torch.nn.functional.gelu(normal),
        "one constant": torch.full((_SAME,), 0.3),
        "log-uniform over 60 octaves": torch.exp2(even * 60 - 37) * normal.sign(),
    }


def _histogram(values: Tensor, kind: str, rounds: int) -> list[Row]:
    native = load()
    if isinstance(native, str):
        return []
    ways: dict[str, Callable[[], object]] = {
        _READ: values.sum,
        _HISTOGRAM: lambda: native.count(values[None], values.shape[-1], 128, None),
    }
    times = _seconds(ways, rounds)
    quotient = ratio(times[_HISTOGRAM], times[_READ], middle=median)
    name = f"{str(values.dtype).removeprefix('torch.')}, {kind}, 1 thread: {_HISTOGRAM} over {_READ}"
    return [divided(name, quotient, f"≤ {_TARGETS[_HISTOGRAM]}", unit="")]


def _casts(rounds: int) -> list[Row]:
    """Time casts by the kernel and by torch's operations; an interval has 95 % of the rounds."""
    rows: list[Row] = []
    native = not isinstance(load(), str)
    for dtype in _JUDGED:
        values = (torch.randn(_CAST // _WIDTH, _WIDTH) * 0.02).to(dtype)
        for name, form in FORMATS.items():
            ways: dict[str, Callable[[], object]] = {
                "": partial(cast_rows, values, form),
                ", the fallback": partial(cast_plainly, values, form, None),
            }
            for way, spent in _seconds(ways, rounds).items():
                each = [time / values.numel() * 1e9 for time in spent]
                middle, low, high = (float(np.quantile(each, share)) for share in (0.5, 0.025, 0.975))
                target = "≤ 2" if native and not way else ""
                what = f"{str(dtype).removeprefix('torch.')}: a cast to {name}{way}"
                rows.append(judged(what, middle, "ns/value", target, low=low, high=high))
    return rows


def _seconds(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return how long each way took in each round, without the first, which only warms up."""
    return in_turns({name: partial(timed, way) for name, way in ways.items()}, rounds, warm=1)


def _values() -> int:
    return sum(int(np.prod(shape)) for shape in shapes())


def _compare(tensors: list[Tensor], rounds: int, plain_rounds: int, threads: int | None = None) -> list[Row]:
    """Compare the ways on the tensors, the slow ones with one read in rounds of their own."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    read: Way = lambda given: [each.sum() for each in given]  # noqa: E731
    fast: dict[str, Way] = {_READ: read, _KERNEL: measure}
    native, portable = load(), _portable()
    if not isinstance(native, str):
        fast[_HISTOGRAM] = lambda given: [
            native.count(each[None], each.shape[-1], 128, None) for each in given
        ]
    if portable is not None:
        fast["the portable kernel"] = portable
    slow: dict[str, Way] = {
        _READ: read,
        "naive torch": lambda given: [_naively(each) for each in given],
        "plain torch, the fallback": lambda given: [measure_plainly(each) for each in given],
    }
    kind = str(tensors[0].dtype).removeprefix("torch.") + (f", {threads} thread" if threads else "")
    rows = []
    for ways, count in ((fast, rounds), (slow, plain_rounds)):
        times = _seconds({name: partial(way, tensors) for name, way in ways.items()}, count) if count else {}
        for name, spent in times.items():
            if name != _READ or ways is fast:
                each = median(spent) / _values() * 1e9
                rows.append(Row(f"{kind}: {name}", each, "ns/value", extra={"seconds": spent}))
            if name != _READ:
                found = ratio(spent, times[_READ], middle=median)
                is_judged = tensors[0].dtype in _JUDGED and name in _TARGETS
                target = f"≤ {_TARGETS[name]}" if is_judged else ""
                rows.append(divided(f"{kind}: {name} over {_READ}", found, target, unit=""))
    torch.set_num_threads(before)
    return rows


def _portable() -> Way | None:
    kernel = load()
    if isinstance(kernel, str) or not kernel.level:
        return None
    slower = type(kernel)(kernel.path, 0)
    return lambda given: slower.measure([item for each in given if (item := slower.describe(each))])


def _naively(x: Tensor) -> tuple[Tensor, ...]:
    mean = x.mean()
    d = x - mean
    return mean, x.var(), (d**3).mean(), (d**4).mean(), x.amin(), x.amax(), x.isnan().sum(), x.isinf().sum()


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
    return median(each["processor"] for each in answers) / 1000


def _row(what: str, answers: list[dict[str, Any]], target: str, note: str = "") -> Row:
    times = [each["ms"] for each in answers]
    blocked = median(each["blocked"] for each in answers)
    said = f"{_processor(answers):.2g} s of processor, blocked {blocked:.0f} ms{note}"
    return judged(what, median(times) / 1000, "s", target, said, ms=times)
