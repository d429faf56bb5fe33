"""The bound of the rounding of a variance holds, whatever was measured and however it was cut, against exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from megalens.protocol import MOMENT_COLUMNS, merge_moments, read_moments
from megalens.tracer.moments import measure, merge_rows
from megalens.tracer.moments.measure import measure_plainly

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def exact_variance(tensor: torch.Tensor) -> Fraction:
    values = [Fraction(value) for value in tensor.double().tolist()]
    total = sum(values, Fraction(0))
    squares = sum((value * value for value in values), Fraction(0))
    return squares / len(values) - (total / len(values)) ** 2


def read(rows: torch.Tensor) -> dict[str, np.ndarray]:
    columns = {name: rows[:, at].numpy() for at, name in enumerate(MOMENT_COLUMNS)}
    return read_moments(merge_moments(columns, np.zeros(len(rows), int), 1))


def hold(tensor: torch.Tensor, pieces: int) -> float:
    """Measure whole, in pieces that are merged on the device, and in pieces that are merged as rows; return the largest bound."""
    truth = exact_variance(tensor)
    parts = [part for part in tensor.chunk(pieces) if len(part)]
    measured = measure(parts)
    ways = [measure([tensor]), merge_rows(measured[:, None]), measured]
    ways += [torch.stack([measure_plainly(part) for part in parts])]
    largest = 0.0
    for rows in ways:
        found = read(rows)
        variance, bound = Fraction(float(found["variance"][0])), float(found["variance_error"][0])
        assert bound >= 0
        if math.isfinite(bound):
            assert abs(variance - truth) <= Fraction(bound) * variance, (float(variance), float(truth), bound)
        else:
            assert min(tensor) < max(tensor)
        largest = max(largest, bound)
    return largest


@given(
    st.integers(0, 2**32),
    st.sampled_from(TYPES),
    st.integers(1, 5000),
    st.integers(1, 7),
    st.floats(-3, 8),
    st.floats(-30, 25),
    st.sampled_from(["normal", "one apart", "two values", "ends", "heavy"]),
)
@example(1, torch.float32, 4096, 1, 7.2, 0.0, "one apart")
@example(2, torch.float32, 5000, 3, 4.0, -30.0, "normal")
@example(3, torch.bfloat16, 5000, 2, 2.4, 0.0, "two values")
def test_the_bound_of_the_variance_holds(seed, dtype, size, pieces, away, scale, kind) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(size)
    if kind == "one apart":
        values = np.zeros(size)
        values[rng.integers(size)] = 1
    elif kind == "two values":
        values = rng.integers(0, 2, size).astype(float)
    elif kind == "ends":
        values = np.sort(values)
    elif kind == "heavy":
        values = rng.standard_t(1.5, size)
    # A mean of up to 10⁸ deviations, which float32 cannot even hold.
    values = (values + 10**away) * 10**scale
    limit = {torch.float16: 6e4, torch.bfloat16: 1e38, torch.float32: 1e38}.get(dtype, 1e100)
    hold(torch.from_numpy(values.clip(-limit, limit)).to(dtype), pieces)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_bound_is_small_where_values_are_as_they_usually_are(dtype) -> None:
    values = torch.randn(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert 0 < hold((values * 0.02 + 0.01).to(dtype), 5) < 1e-5
    assert hold((values + 100).to(dtype), 5) < 1e-5
    # Equal values and a single one have no rounding at all.
    for exact in (torch.full((5000,), 0.1), torch.zeros(7), torch.tensor([3.3])):
        assert hold(exact.to(dtype), 3) == 0


def test_a_tensor_that_is_empty_or_not_finite_has_no_variance_and_no_bound() -> None:
    found = read(measure([torch.empty(0), torch.full((3,), math.nan)]))
    assert np.isnan([found["variance"][0], found["variance_error"][0]]).all()
