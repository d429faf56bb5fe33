"""The reduction language gives what torch gives, and says where an expression is wrong."""

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.protocol import ProtocolError, read_moments
from megalens.tracer import parse_reduction

DATA = torch.randn(2, 5, 4, 7, generator=torch.Generator().manual_seed(3))
SAME = {
    "mean": DATA.mean(-1),
    "mean()": DATA.mean(-1),
    "data.mean(dim=-1)": DATA.mean(-1),
    "data.mean(-1)": DATA.mean(-1),
    "mean(data, dim=-1)": DATA.mean(-1),
    "sum": DATA.sum(-1),
    "min": DATA.amin(-1),
    "max(data)": DATA.amax(-1),
    "std": torch.from_numpy(DATA.numpy().std(-1)),
    "data.var(dim=-1)": torch.from_numpy(DATA.numpy().var(-1)),
    "median": DATA.median(-1).values,
    "norm": DATA.norm(dim=-1),
    "norm(data, 1)": DATA.abs().sum(-1),
    "data.norm(p=3)": torch.linalg.vector_norm(DATA, 3, -1),
    "quantile(0.9)": DATA.quantile(0.9, dim=-1),
    "quantile(data, 0.9)": DATA.quantile(0.9, dim=-1),
    "data.quantile(q=0.25, dim=-1)": DATA.quantile(0.25, dim=-1),
    "abs().mean()": DATA.abs().mean(-1),
    "data.abs().mean(dim=-1)": DATA.abs().mean(-1),
    "mean(abs(data))": DATA.abs().mean(-1),
    "max - min": DATA.amax(-1) - DATA.amin(-1),
    "-data.max()": -DATA.amax(-1),
    "(data > 0).mean()": (DATA > 0).float().mean(-1),
    "(data >= 0.5).sum() / 7": (DATA >= 0.5).float().sum(-1) / 7,
    "mean < 0": (DATA.mean(-1) < 0).float(),
    "data.abs().max() != data.max()": (DATA.abs().amax(-1) != DATA.amax(-1)).float(),
    "((data - data.mean(dim=-1, keepdim=True)) ** 2).mean()": DATA.var(-1, correction=0),
    "sqrt(mean(data ** 2))": DATA.square().mean(-1).sqrt(),
    "log(sum(exp(data)))": DATA.logsumexp(-1),
    "2 * data.mean() + 1e-3": 2 * DATA.mean(-1) + 1e-3,
    "2 ** 3 * mean": 8 * DATA.mean(-1),
    "-2 ** 2 * mean": -4 * DATA.mean(-1),
    "mean / - 2": DATA.mean(-1) / -2,
    "1 - 2 - 3 + mean": DATA.mean(-1) - 4,
    "(data / norm).max()": (DATA / DATA.norm(dim=-1, keepdim=True)).amax(-1),
}
WRONG = {
    "": 1,
    "   ": 4,
    "data": 1,
    "abs": 1,
    "3": 1,
    "2 + 2": 1,
    "meen": 1,
    "data.meen()": 6,
    "data.mean": 10,
    "data.mean(": 11,
    "data.mean)": 10,
    "mean(data": 10,
    "mean mean": 6,
    "data.mean(dim=0)": 11,
    "data.mean(dim=-1, axis=2)": 19,
    "mean(mean(data))": 1,
    "mean(3, 4)": 6,
    "quantile": 1,
    "quantile(2)": 10,
    "norm(p=0)": 6,
    "abs(data, 2).mean()": 11,
    "1 < mean < 2": 10,
    "mean + $": 8,
    "mean +\x1f": 7,
    "mean % 2": 6,
    "data[0].mean()": 5,
    "__import__('os')": 12,
    "data.__class__": 6,
    "mean(data for data in data)": 11,
    "lambda: 0": 7,
    "10 ** 400 * mean": 4,
    "(0 - 8) ** 0.5 * mean": 9,
    "1 / 0 * mean": 3,
    "mean; mean": 5,
    "mean = 2": 6,
}


@pytest.mark.parametrize("text", SAME)
def test_an_expression_gives_what_torch_gives(text: str) -> None:
    torch.testing.assert_close(parse_reduction(text)(DATA), SAME[text])


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_expression_is_refused_with_its_column(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_reduction(text, "flags.X.reduction")
    assert (caught.value.code, caught.value.field, caught.value.column) == (
        "bad-reduction",
        "flags.X.reduction",
        WRONG[text],
    )


def test_an_expression_is_bounded_in_length_depth_and_operations() -> None:
    for text in (
        "(" * 200 + "mean" + ")" * 200,
        "2**" * 100 + "mean",
        "+".join(["mean"] * 99),
        "mean" + " " * 600,
    ):
        with pytest.raises(ProtocolError, match=r"at most|deeper|more than"):
            parse_reduction(text)


def test_the_standard_deviation_is_that_of_the_population_in_tiles_and_statistics() -> None:
    values = np.random.default_rng(1).normal(3, 2, 64).astype(np.float32)
    expected = values.astype(np.float64).std()
    assert float(parse_reduction("std")(torch.from_numpy(values))) == pytest.approx(expected, rel=1e-6)
    sums = pa.table({f"sum_{power}": [float((values.astype(np.float64) ** power).sum())] for power in (1, 2)})
    variance = sums["sum_2"][0].as_py() / 64 - (sums["sum_1"][0].as_py() / 64) ** 2
    merged = {"count": [64.0], "mean": [values.mean()], "m2": [variance * 64], "m3": [0.0], "m4": [0.0]}
    extremes = {name: [0.0] for name in ("min", "max", "nan_count", "inf_count")}
    found = read_moments({name: np.array(each) for name, each in {**merged, **extremes}.items()})
    assert found["std"][0] == pytest.approx(expected, rel=1e-9)


def test_a_median_of_an_even_number_of_values_is_the_lower_of_the_two_in_the_middle() -> None:
    assert float(parse_reduction("median")(torch.tensor([4.0, 1.0, 3.0, 2.0]))) == 2.0
    assert float(parse_reduction("quantile(0.5)")(torch.tensor([4.0, 1.0, 3.0, 2.0]))) == 2.5


def test_the_spread_of_a_single_value_is_zero_and_non_finite_values_stay() -> None:
    one = torch.tensor([[3.0], [torch.nan]])
    assert parse_reduction("std")(one)[0] == 0
    assert parse_reduction("var")(one)[1].isnan()
    data = torch.tensor([[1.0, torch.nan], [1.0, torch.inf]])
    for name in ("mean", "max", "sum", "norm", "std"):
        assert not parse_reduction(name)(data).isfinite().any()


WORDS = st.sampled_from(
    [
        "data",
        "mean",
        "max",
        "abs",
        "quantile",
        "(",
        ")",
        ".",
        ",",
        "+",
        "-",
        "*",
        "**",
        "<",
        "==",
        "dim",
        "=",
        "-1",
        "0.5",
        "2",
        "9e99",
        " ",
    ]
)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.one_of(st.lists(WORDS, max_size=14).map("".join), st.text(max_size=40)))
def test_any_text_gives_one_number_per_tile_or_the_typed_error(text: str) -> None:
    error = None
    try:
        shape = parse_reduction(text)(DATA).shape
    except ProtocolError as refusal:
        error = refusal
    if error is None:
        assert shape == DATA.shape[:-1]
    else:
        assert error.code == "bad-reduction"
        assert error.column is not None
        assert 1 <= error.column <= len(text) + 1
