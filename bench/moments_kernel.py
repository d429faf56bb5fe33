"""Moments, histograms and casts of a model's tensors, against one plain read of the same memory; and readings of a process's memory.

Blocks of all ways alternate in one run, in random order.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

import numpy as np
import torch
from torch import Tensor

from megalens.tracer.memory import memory_reader
from megalens.tracer.moments import kernel_name, measure
from megalens.tracer.moments.casts import FORMATS, cast_plainly, cast_rows
from megalens.tracer.moments.measure import measure_plainly
from megalens.tracer.moments.native.library import load

from .common import in_turns, ratio, timed
from .report import Measured, Row, benchmark, divided, judged

__all__ = ["moments_kernel"]

_TARGETS = {"Megalens' kernel": 1.5, "Histogram(bins=128)": 1.3}
_WIDTH, _LAYERS, _WORDS, _POSITIONS = 384, 12, 22_000, 1024
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
        f"The parameters of a GPT of width {_WIDTH} and {_LAYERS} layers: {len(shapes())} tensors, {_values() / 1e6:.1f} million values, more than the caches hold. "
        "Every way goes over all of them, all ways in random order, round after round; a figure is the median over the rounds, a ratio that of the medians, its interval "
        f"over rounds. One plain read is `tensor.sum()` of each. The kernel in use is {kernel}, on torch's {torch.get_num_threads()} threads. The kernel gives all nine figures in "
        "float64; naive torch and numpy take mean, variance, third and fourth power, extremes and non-finite counts one after the other; `torch._foreach` has "
        "powers of many tensors at once but no sums, and gives neither extremes nor non-finite counts: its figures are raw sums in the tensor's own type. Histograms by distribution are of one tensor of {_SAME / 1e6:.1f} million values, casts of {_CAST / 1e6:.1f} million "
        "normal ones, both in one thread; casts against torch's own operations, which the fallback takes."
    )
    return Measured(rows, how)


def shapes() -> list[tuple[int, ...]]:
    """Return the shapes of a GPT's parameters: large matrices and as many small vectors."""
    d = _WIDTH
    layer: list[tuple[int, ...]] = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,)]
    layer += [(4 * d, d), (4 * d,), (d, 4 * d), (d,)]
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
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        times = _times(tensors, rounds, plain_rounds)
    finally:
        torch.set_num_threads(before)
    kind = str(tensors[0].dtype).removeprefix("torch.") + (f", {threads} thread" if threads else "")
    is_judged = tensors[0].dtype in _JUDGED
    return [row for name in times if times[name] for row in _rows(kind, name, times, is_judged)]


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
    both = (
        _seconds({name: partial(way, tensors) for name, way in (fast | slow).items()}, plain_rounds)
        if plain_rounds
        else {}
    )
    rest = _seconds({name: partial(way, tensors) for name, way in fast.items()}, rounds - plain_rounds)
    return {name: [*both.get(name, []), *rest.get(name, [])] for name in fast | slow}


def _rows(kind: str, name: str, times: dict[str, list[float]], is_judged: bool) -> list[Row]:
    values, spent = _values(), times[name]
    row = Row(f"{kind}: {name}", median(spent) / values * 1e9, "ns/value", extra={"seconds": spent})
    if name == _READ:
        return [row]
    quotient = ratio(spent, times[_READ][: len(spent)], middle=median)
    target = f"≤ {_TARGETS[name]}" if is_judged and name in _TARGETS else ""
    return [row, divided(f"{kind}: {name} over {_READ}", quotient, target, unit="")]


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
