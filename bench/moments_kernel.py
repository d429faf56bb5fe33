"""Moments, histograms and casts of a model's tensors, against one plain read of the same memory; and readings of a process's memory.

Blocks of all ways alternate in one run, in random order. Run ``python -m bench.moments_kernel`` (``--quick`` for a short run that proves only that it
works).
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from bench.common import Row, asked, ratio, report
from megalens.tracer.memory import memory_reader
from megalens.tracer.moments import kernel_name, measure
from megalens.tracer.moments.casts import FORMATS, cast_plainly, cast_rows
from megalens.tracer.moments.measure import measure_plainly
from megalens.tracer.moments.native.library import load

_TARGETS = {"Megalens' kernel": 1.5, "Histogram(bins=128)": 1.3}
_WIDTH, _LAYERS, _WORDS, _POSITIONS = 384, 12, 22_000, 1024
_SAME, _CAST = 1 << 23, 384 << 10
_JUDGED = (torch.float32, torch.bfloat16)
_READ = "sum()"
_KERNEL, _HISTOGRAM = _TARGETS

Way = Callable[[Sequence[Tensor]], object]


def main(arguments: Sequence[str] | None = None) -> Path:
    """Measure and write ``results/moments_kernel.json``; return the page of all results."""
    quick = asked(__doc__, arguments, "few rounds").quick
    kernel, plain_rounds = kernel_name("cpu"), 3 if quick else 7
    rounds = 5 if quick else 61
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
            rows += _histogram(values.to(dtype).view(-1, 4096), kind, 5 if quick else 41)
    rows += _casts(3 if quick else 21)
    torch.set_num_threads(threads)
    reader = memory_reader([])
    if reader is not None:
        rows.append(_each("a reading of the process's memory", reader.read, 50 if quick else 2000))
    small = [torch.randn(_WIDTH)]
    calls = 200 if quick else 5000
    rows.append(_each(f"a call with one tensor of {_WIDTH} values", lambda: measure(small), calls))
    how = (
        f"The parameters of a GPT of width {_WIDTH} and {_LAYERS} layers: {len(shapes())} tensors, {_values() / 1e6:.1f} million values, more than the caches hold. "
        "Every way goes over all of them, all ways in random order, round after round; a figure is the median over the rounds, a ratio that of the medians, its interval "
        f"over rounds. One plain read is `tensor.sum()` of each. The kernel in use is {kernel}, on torch's {torch.get_num_threads()} threads. The kernel gives all nine figures in "
        "float64; naive torch and numpy take mean, variance, third and fourth power, extremes and non-finite counts one after the other; `torch._foreach` has "
        "powers of many tensors at once but no sums, and gives neither extremes nor non-finite counts: its figures are raw sums in the tensor's own type. Histograms by distribution are of one tensor of {_SAME / 1e6:.1f} million values, casts of {_CAST / 1e6:.1f} million "
        "normal ones, both in one thread; casts against torch's own operations, which the fallback takes."
    )
    return report("moments_kernel", "Moments of a tensor against one read of its memory", rows, how=how, quick=quick)  # fmt: skip


def shapes() -> list[tuple[int, ...]]:
    """Return the shapes of a GPT's parameters: large matrices and as many small vectors."""
    d = _WIDTH
    layer = [
        (d,),
        (d,),
        (3 * d, d),
        (3 * d,),
        (d, d),
        (d,),
        (d,),
        (d,),
        (4 * d, d),
        (4 * d,),
        (d, 4 * d),
        (d,),
    ]
    return [(_WORDS, d), (_POSITIONS, d), (2, d), *(layer * _LAYERS), (d,), (d,), (_WORDS,)]


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
    times = _alternate(ways, rounds)
    quotient = ratio(times[_HISTOGRAM], times[_READ], middle=statistics.median)
    name = f"{str(values.dtype).removeprefix('torch.')}, {kind}, 1 thread: {_HISTOGRAM} over {_READ}"
    target = _TARGETS[_HISTOGRAM]
    return [
        Row(name, quotient.value, "", quotient.low, quotient.high, f"≤ {target}", quotient.value <= target)
    ]


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
            for way, spent in _alternate(ways, rounds).items():
                each = [time / values.numel() * 1e9 for time in spent]
                middle, low, high = (float(np.quantile(each, share)) for share in (0.5, 0.025, 0.975))
                target = "≤ 2" if native and not way else ""
                what = f"{str(dtype).removeprefix('torch.')}: a cast to {name}{way}"
                rows.append(Row(what, middle, "ns/value", low, high, target, middle <= 2 if target else None))
    return rows


def _alternate(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return how long each way took in each round, without the first."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    rng = random.Random(0)
    for number in range(-1, rounds):
        for name in rng.sample(list(ways), len(ways)):
            began = time.perf_counter()
            ways[name]()
            if number >= 0:
                times[name].append(time.perf_counter() - began)
    return times


def _each(what: str, way: Callable[[], object], calls: int) -> Row:
    began = time.perf_counter()
    for _ in range(calls):
        way()
    return Row(what, (time.perf_counter() - began) / calls * 1e6, "µs")


def _values() -> int:
    return sum(int(np.prod(shape)) for shape in shapes())


def _compare(tensors: list[Tensor], rounds: int, plain_rounds: int, threads: int | None = None) -> list[Row]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        times = _times(tensors, rounds, plain_rounds)
    finally:
        torch.set_num_threads(before)
    kind = str(tensors[0].dtype).removeprefix("torch.") + (f", {threads} thread" if threads else "")
    judged = tensors[0].dtype in _JUDGED
    return [row for name in times if times[name] for row in _rows(kind, name, times, judged)]


def _times(tensors: list[Tensor], rounds: int, plain_rounds: int) -> dict[str, list[float]]:
    fast: dict[str, Way] = {_READ: lambda given: [each.sum() for each in given], _KERNEL: measure}
    native = load()
    if not isinstance(native, str):
        fast[_HISTOGRAM] = lambda given: [
            native.count(each[None], each.shape[-1], 128, None) for each in given
        ]
    portable = _portable()
    if portable is not None:
        fast["the portable kernel"] = portable
    slow: dict[str, Way] = {
        "naive torch": lambda given: [_naively(each) for each in given],
        "torch._foreach, raw sums": _foreach,
        "plain torch, the fallback": lambda given: [measure_plainly(each) for each in given],
    }
    if tensors[0].dtype == torch.float32:
        slow["numpy"] = lambda given: [_by_numpy(each.numpy()) for each in given]
    times: dict[str, list[float]] = {name: [] for name in fast | slow}
    rng = random.Random(0)
    for number in range(-1, rounds):
        ways = fast | slow if 0 <= number < plain_rounds else fast
        for name in rng.sample(list(ways), len(ways)):
            began = time.perf_counter()
            ways[name](tensors)
            # The first round only warms up.
            if number >= 0:
                times[name].append(time.perf_counter() - began)
    return times


def _rows(kind: str, name: str, times: dict[str, list[float]], judged: bool) -> list[Row]:
    values, spent = _values(), times[name]
    row = Row(
        f"{kind}: {name}", statistics.median(spent) / values * 1e9, "ns/value", extra={"seconds": spent}
    )
    if name == _READ:
        return [row]
    quotient = ratio(spent, times[_READ][: len(spent)], middle=statistics.median)
    target = _TARGETS.get(name) if judged else None
    return [
        row,
        Row(
            f"{kind}: {name} over {_READ}", quotient.value, "", quotient.low, quotient.high,
            "" if target is None else f"≤ {target}", None if target is None else quotient.value <= target,
        ),
    ]  # fmt: skip


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


def _foreach(tensors: Sequence[Tensor]) -> list[Tensor]:
    sums = [each.sum() for each in tensors]
    for power in (2, 3, 4):
        sums += [each.sum() for each in torch._foreach_pow(list(tensors), power)]
    return sums


def _by_numpy(x: np.ndarray) -> tuple[float, ...]:
    mean = x.mean(dtype=np.float64)
    d = x - mean
    return mean, x.var(dtype=np.float64), (d**3).mean(), (d**4).mean(), x.min(), x.max(), np.isnan(x).sum(), np.isinf(x).sum()  # fmt: skip


if __name__ == "__main__":
    main()
