"""Every way of measuring equals float64 numpy on the whole tensor, whatever the values are and however they are cut."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from megalens.protocol import MOMENT_COLUMNS, read_moments
from megalens.tracer.moments import merge as merging
from megalens.tracer.moments import merge_pieces, merge_rows
from megalens.tracer.moments.measure import measure_plainly
from megalens.tracer.moments.native.build import FOLDER, LIBRARY
from megalens.tracer.moments.native.library import NativeKernel, load

BEST = load()
TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
LIMITS = {"mean": 1e-6, "std": 1e-6, "l2": 1e-6, "rms": 1e-6, "skewness": 1e-4, "kurtosis": 1e-4}


def natively(level):
    kernel = NativeKernel(FOLDER / LIBRARY, level)
    return lambda tensors: kernel.measure([kernel.describe(each) for each in tensors])


def plainly(tensors):
    return torch.stack([measure_plainly(each) for each in tensors])


# Where there is no compiler only plain torch measures; which one does here is asserted in test_moment_kernel_build.py.
LEVELS = [] if isinstance(BEST, str) else range(BEST.level + 1)
CASES, PARTS = 4_000, 4
WAYS = [pytest.param(natively(level), CASES, id=f"native-{level}") for level in LEVELS]
# A tensor at a time takes a hundred times as long.
WAYS.append(pytest.param(plainly, CASES // 10, id="plain"))


def whole_tensor(rng):
    """One tensor's values before they are rounded to its type: a shape of distribution, a size, a spread, and a mean up to 10⁴ deviations away."""
    n = int(rng.choice([rng.integers(1, 40), rng.integers(1, 700), rng.integers(1, 3000)]))
    shape = rng.integers(8)
    x = rng.standard_normal(n)
    if shape == 1:
        x = rng.random(n)
    elif shape == 2:
        x = np.exp(2 * x)
    elif shape == 3:
        x = rng.standard_t(2, n)
    elif shape == 4:
        x *= rng.random(n) < 0.02
    elif shape == 5:
        x = np.sign(x)
    elif shape == 6:
        x[rng.integers(n)] = 300
    elif shape == 7:
        x = np.sort(x)
    away = rng.choice([0, 0, 1, -1]) * 10.0 ** rng.uniform(-2, 4)
    return x + away * (x.std() or 1)


def rounded(values, dtype, rng):
    if dtype == torch.float16:
        # As far as its range goes, subnormal numbers among them.
        values = values * (10.0 ** rng.uniform(-4, 4) / (np.abs(values).max() or 1))
    else:
        values = values * 10.0 ** rng.uniform(-18, 12)
    return torch.from_numpy(values).to(dtype)


def pieces(tensor, parts, rng):
    """Cut as shards and micro-batches cut it; some pieces are empty."""
    ends = np.sort(rng.integers(0, len(tensor) + 1, parts - 1))
    return list(torch.tensor_split(tensor, ends.tolist()))


def truth(tensor):
    x = tensor.double().numpy()
    # About one of its own values: equal values then have no spread, not even by rounding.
    d = x - x[0]
    mean, d = x[0] + d.mean(), d - d.mean()
    variance, square = (d**2).mean(), (x**2).mean()
    spread = variance if variance > 0 else math.nan
    return {
        "mean": mean, "std": math.sqrt(variance), "l2": math.sqrt((x**2).sum()), "rms": math.sqrt(square),
        "skewness": (d**3).mean() / spread**1.5, "kurtosis": (d**4).mean() / spread**2,
        "count": len(x), "min": x.min(), "max": x.max(),
    }  # fmt: skip


def read(rows):
    return read_moments({name: rows[:, i].numpy() for i, name in enumerate(MOMENT_COLUMNS)})


def errors(found, expected):
    """Relative ones; the mean's in units of the larger of mean and deviation, skewness's of 1 and itself."""
    # Next to 0 only 0 is right.
    scale = {name: np.abs(expected[name]) + 1e-300 for name in LIMITS}
    scale["mean"] = np.maximum(scale["mean"], expected["std"])
    scale["skewness"] = np.maximum(scale["skewness"], 1)
    return {
        name: np.where(
            (found[name] == expected[name]) | (np.isnan(found[name]) & np.isnan(expected[name])),
            0,
            np.abs(found[name] - expected[name]) / scale[name],
        )
        for name in LIMITS
    }


@cache
def random_cases():
    """Tensors, each cut into as many pieces, and what is true of each."""
    rng = np.random.default_rng(5)
    tensors = [rounded(whole_tensor(rng), TYPES[i % len(TYPES)], rng) for i in range(CASES)]
    cut = [pieces(tensor, PARTS, rng) for tensor in tensors]
    columns = [truth(tensor) for tensor in tensors]
    return (
        tensors,
        cut,
        {name: np.array([each[name] for each in columns], dtype=np.float64) for name in columns[0]},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "cases"), WAYS)
def test_whole_and_merged_tensors_equal_float64_numpy(measure, cases) -> None:
    tensors, cut, expected = random_cases()
    tensors, expected = tensors[:cases], {name: column[:cases] for name, column in expected.items()}
    rows = (
        measure([piece for each in cut[:cases] for piece in each])
        .reshape(cases, PARTS, len(MOMENT_COLUMNS))
        .transpose(0, 1)
    )
    joined = torch.from_numpy(merge_pieces(rows.contiguous().numpy()))
    for measured in (measure(tensors), merge_rows(rows), joined):
        found = read(measured)
        for name in ("count", "min", "max"):
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)
        for name, error in errors(found, expected).items():
            print(name, error.max())
            worst = int(error.argmax())
            assert error[worst] <= LIMITS[name], (
                f"{name} of {tensors[worst]}: {found[name][worst]}, not {expected[name][worst]}"
            )


@cache
def millions(dtype):
    """Of values, and what is true of them."""
    tensor = (torch.randn(3_000_017, generator=torch.Generator().manual_seed(1)) + 100).to(dtype)
    # A drift and one far value: blocks unlike each other.
    tensor[1_000_000:] *= 3
    tensor[2_222_222] = 30_000
    return tensor, {name: np.array([value]) for name, value in truth(tensor).items()}


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "cases"), WAYS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_millions_of_values_lose_nothing(measure, cases, dtype) -> None:
    tensor, expected = millions(dtype)
    for name, error in errors(read(measure([tensor])), expected).items():
        assert error[0] <= LIMITS[name] / 10, name


@pytest.mark.parametrize(("measure", "cases"), WAYS)
@pytest.mark.parametrize("scale", [2.0**-149, 1e-42, 1e-38, 1e-30, 1e-20, 1e20, 3e37])
def test_the_ends_of_float32s_range_are_measured_like_its_middle(measure, cases, scale) -> None:
    values = np.random.default_rng(0).integers(-9, 10, 5000) * np.float64(scale)
    tensor = torch.from_numpy(values).float()
    expected = {name: np.array([value]) for name, value in truth(tensor).items()}
    found = read(measure([tensor]))
    # std and kurtosis are quotients of float64, in which fourth powers of 1e-42 are still whole numbers.
    for name, error in errors(found, expected).items():
        assert error[0] <= LIMITS[name], name


@cache
def every_value(dtype, every):
    """One tensor of those of a narrow type, and each of them by itself."""
    tensor = torch.arange(-(2**15), 2**15, every, dtype=torch.int32).to(torch.int16).view(dtype)
    return tensor, tensor.split(1)


@pytest.mark.slow
@pytest.mark.parametrize(("measure", "cases"), WAYS)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_value_of_the_narrow_types_is_read_as_torch_reads_it(measure, cases, dtype) -> None:
    if dtype.itemsize == 2:
        tensor, alone = every_value(dtype, 1 if cases == CASES else 61)
    else:
        tensor = torch.tensor([0.0, -0.0, 1.0, torch.finfo(dtype).max, torch.finfo(dtype).min, torch.finfo(dtype).smallest_normal], dtype=dtype)  # fmt: skip
        alone = tensor.split(1)
    rows = measure(list(alone))
    finite = tensor.isfinite()
    assert torch.equal(rows[:, 0], finite.double())
    assert torch.equal(rows[finite, 1], tensor[finite].double())
    assert torch.equal(rows[finite, 5], tensor[finite].double())
    assert torch.equal(rows[:, 7], tensor.isnan().double())
    assert torch.equal(rows[:, 8], tensor.isinf().double())
    (row,) = measure([tensor])
    assert row[0] == finite.sum()
    assert row[7] == tensor.isnan().sum()
    assert row[5] == tensor[finite].min()
    assert row[6] == tensor[finite].max()


@pytest.mark.parametrize(("measure", "cases"), WAYS)
def test_equal_values_have_no_spread_whatever_is_not_finite_among_them(measure, cases) -> None:
    tensors = []
    for dtype in TYPES:
        for value in (0.1, -10_000 / 3, 1e-30):
            for length in (7, 63, 5000, 70_000):
                for one in (math.nan, math.inf, -math.inf):
                    tensor = torch.full((length,), value).to(dtype)
                    tensor[length // 3 :: 5] = one
                    tensors.append(tensor)
    for row, tensor in zip(measure(tensors), tensors, strict=True):
        value = float(tensor[0])
        assert row[1:7].tolist() == [value, 0, 0, 0, value, value], (tensor.dtype, len(tensor), value)


@pytest.mark.parametrize(("measure", "cases"), WAYS)
def test_a_value_that_is_not_finite_hides_nothing_around_it(measure, cases) -> None:
    rng = np.random.default_rng(3)
    for dtype in TYPES:
        tensor = (torch.from_numpy(rng.standard_normal(20_000)) + 5).to(dtype)
        kept = tensor.clone()
        places = torch.from_numpy(rng.choice(20_000, 300, replace=False))
        tensor[places[:100]], tensor[places[100:150]], tensor[places[150:]] = math.nan, math.inf, -math.inf
        left = torch.ones(20_000, dtype=torch.bool)
        left[places] = False
        (row,) = measure([tensor])
        assert row[[0, 7, 8]].tolist() == [19_700, 100, 200]
        expected = {name: np.array([value]) for name, value in truth(kept[left]).items()}
        assert all(error[0] <= LIMITS[name] for name, error in errors(read(row[None]), expected).items())


@pytest.mark.parametrize("without", [False, True], ids=["native", "without the library"])
def test_pieces_of_which_some_have_nothing_or_are_not_known_are_merged(without, monkeypatch) -> None:
    if without:
        monkeypatch.setattr(merging.library, "load", lambda: "none")
    here = [[1.0, 5.0], [], [math.nan], [2.0]]
    there = [[math.inf, 9.0], [], [7.0], [3.0]]
    rows = torch.stack([plainly(map(torch.tensor, each)) for each in (here, there)]).numpy()
    rows[1, 3, :7] = math.nan
    found = merge_pieces(rows)
    assert found[0].tolist() == [3, 5, 32, 0, 512, 1, 9, 0, 1, 0, 0]
    assert found[1, 0] == 0
    assert np.isnan(found[1, [1, 5, 6]]).all()
    assert found[2].tolist() == [1, 7, 0, 0, 0, 7, 7, 1, 0, 0, 0]
    # Of a piece nothing is known: the first one's row stands.
    assert found[3].tolist() == rows[0, 3].tolist()
