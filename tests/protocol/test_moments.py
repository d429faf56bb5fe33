"""Moments: golden cases, and any grouping of any split against the values themselves."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.protocol import (
    MOMENT_COLUMNS,
    MOMENT_STATISTICS,
    merge_moments,
    moments_from_raw_sums,
    name_values,
    natural_key,
    parse_name,
    raw_sums_from_moments,
    read_moments,
    single_moments,
)

GOLDEN = Path(__file__).parents[2] / "protocol" / "fixtures" / "moments"


def cases(name: str) -> list[dict]:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def columns(rows: list[dict]) -> dict[str, np.ndarray]:
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0] if name != "group"}


def moments_of(values: np.ndarray) -> dict[str, float]:
    values = values.astype(np.float64)
    d = values - values.mean() if values.size else values
    return {
        "count": float(values.size),
        "mean": values.mean() if values.size else np.nan,
        **{f"m{power}": float((d**power).sum()) for power in (2, 3, 4)},
        "min": values.min(initial=np.inf) if values.size else np.nan,
        "max": values.max(initial=-np.inf) if values.size else np.nan,
        "nan_count": 0.0,
        "inf_count": 0.0,
        "negative_inf_count": 0.0,
        "near_zero_count": float((np.abs(values) < 1e-8).sum()),
    }


@pytest.mark.parametrize("case", cases("merge"), ids=lambda case: case["doc"])
def test_groups_of_rows_have_the_statistics_of_their_values(case: dict) -> None:
    names = [group["group"] for group in case["expected"]]
    group = np.array([names.index(row["group"]) for row in case["rows"]])
    found = read_moments(merge_moments(columns(case["rows"]), group, len(names)))
    for place, expected in enumerate(case["expected"]):
        for name in MOMENT_STATISTICS:
            assert found[name][place] == pytest.approx(float(expected[name]), rel=1e-9, abs=0, nan_ok=True), (
                name
            )


@pytest.mark.parametrize("case", cases("raw"), ids=lambda case: case["doc"])
def test_raw_sums_become_central_moments_and_back(case: dict) -> None:
    sums = {name: np.array([float(value)]) for name, value in case["sums"].items()}
    row = moments_from_raw_sums(**sums)
    for name in MOMENT_COLUMNS:
        assert row[name][0] == pytest.approx(float(case["row"][name]), rel=1e-12, abs=1e-9, nan_ok=True), name
    if all(np.isfinite(value[0]) for value in sums.values()):
        back = raw_sums_from_moments(row)
        for name, value in sums.items():
            assert back[name][0] == pytest.approx(value[0], rel=1e-9), name


def test_infinite_sums_have_an_infinite_size_and_no_spread() -> None:
    inf = np.array([np.inf])
    read = read_moments(moments_from_raw_sums(np.array([8.0]), inf, inf, inf, inf))
    assert read["l2"] == read["rms"] == np.inf
    assert np.isnan([read["variance"], read["skewness"], read["kurtosis"]]).all()


def test_a_sum_that_overflowed_takes_only_what_needs_it() -> None:
    read = read_moments(moments_from_raw_sums(*(np.array([x]) for x in (4.0, 10.0, 30.0, 100.0, np.inf))))
    assert read["kurtosis"] == np.inf
    assert read["skewness"] == 0
    assert read["variance"] == 1.25


def test_a_diverged_row_is_seen_in_its_group() -> None:
    row = moments_from_raw_sums(
        *(np.array([4.0, 4.0]), *(np.array([x, np.nan]) for x in (10.0, 30.0, 100.0, 354.0)))
    )
    found = read_moments(merge_moments(row, np.array([0, 0]), 1))
    assert found["count"] == 8
    assert np.isnan([found["mean"], found["rms"], found["nan_count"]]).all()


def test_non_finite_values_are_written_as_their_sums_would_be() -> None:
    row = {name: np.array([value]) for name, value in moments_of(np.array([1.0, 2.0])).items()}
    nan = raw_sums_from_moments({**row, "nan_count": np.array([3.0])})
    assert nan["count"] == 5
    assert all(np.isnan(nan[f"sum_{k}"]) for k in (1, 2, 3, 4))
    for negative, odd in ((0.0, np.inf), (2.0, -np.inf), (1.0, np.nan), (np.nan, np.nan)):
        inf = raw_sums_from_moments(
            {**row, "inf_count": np.array([2.0]), "negative_inf_count": np.array([negative])}
        )
        np.testing.assert_array_equal([inf["sum_1"], inf["sum_3"]], [[odd], [odd]])
        assert inf["sum_2"] == inf["sum_4"] == np.inf


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "count": st.sampled_from([0.0, 1.0, 2.0, 1e17]),
                **{
                    name: st.sampled_from([0.0, 3.5, -2.25, 1e200, np.inf, -np.inf, np.nan])
                    for name in ("mean", "m2", "m3", "m4", "min", "max")
                },
                "nan_count": st.sampled_from([0.0, 2.0, np.nan]),
                "inf_count": st.sampled_from([0.0, 1.0, np.nan]),
                "rounding": st.sampled_from([0.0, 2.0**-24]),
            }
        ),
        min_size=1,
        max_size=8,
    ),
    st.sampled_from(
        [(), ("m4",), ("m3", "m4"), ("m3", "m4", "min", "max"), ("mean", "m2", "m3", "m4", "min", "max")]
    ),
)
def test_rows_that_are_each_a_group_are_merged_as_they_are(rows: list[dict], absent: tuple[str, ...]) -> None:
    given_columns = {name: column for name, column in columns(rows).items() if name not in absent}
    expected = merge_moments(given_columns, np.arange(len(rows)), len(rows))
    found = single_moments(given_columns)
    assert found.keys() == expected.keys()
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column, err_msg=name)


@pytest.mark.parametrize("rounding", [0.0, 2.0**-24])
def test_rows_merged_before_merge_as_the_rows_themselves_with_their_errors(rounding: float) -> None:
    rng, rows = np.random.default_rng(4), 60
    count = rng.integers(0, 4, rows) * 10.0
    every = {
        **{"count": count, "mean": rng.normal(3, 1, rows), "m2": count * rng.uniform(1, 2, rows)},
        **{"m3": rng.normal(size=rows), "m4": count * rng.uniform(2, 3, rows)},
        **{
            "min": -rng.uniform(size=rows),
            "max": rng.uniform(size=rows),
            "rounding": np.full(rows, rounding),
        },
        **{name: rng.integers(0, 2, rows) * 1.0 for name in MOMENT_COLUMNS if name.endswith("_count")},
    }
    group = rng.integers(0, 5, rows)
    whole = merge_moments(every, group, 5)
    halves = [
        merge_moments({name: column[half] for name, column in every.items()}, group[half], 5)
        for half in (slice(0, 25), slice(25, None))
    ]
    both = {name: np.concatenate([half[name] for half in halves]) for name in whole}
    found = merge_moments(both, np.tile(np.arange(5), 2), 5)
    assert (whole["m2_error"] > 0).all() == bool(rounding)
    for name, column in whole.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-12, atol=1e-12, err_msg=name)
        assert not name.endswith("count") or (found[name] == column).all()


@pytest.mark.parametrize("far", [0, 10, 30, 100, 300, 1000])
def test_the_bound_holds_for_raw_sums_in_float32(far: int) -> None:
    values = np.random.default_rng(far).normal(far, 1, 1_000_000)
    sums = [np.array([float(np.float32((values**power).sum()))]) for power in range(5)]
    row = moments_from_raw_sums(*sums) | {"rounding": np.array([2.0**-24])}
    found = read_moments(merge_moments(row, np.array([0]), 1))
    truth = read_moments({name: np.array([value]) for name, value in moments_of(values).items()})
    assert abs(found["kurtosis"] - truth["kurtosis"]) <= found["kurtosis_error"]
    assert abs(found["variance"] / truth["variance"] - 1) <= found["variance_error"]


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=12),
    st.integers(0, 3),
    st.sampled_from([1.0, 1e-8, 1e6]),
    st.sampled_from([0.0, 1.0, 100.0, 1e4]),
    st.integers(0, 2**32),
)
def test_any_split_and_any_grouping_equals_the_values(
    sizes: list[int], groups: int, std: float, far: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pieces = [rng.normal(far * std, std, size) for size in sizes]
    group = rng.integers(0, groups + 1, len(sizes))
    rows = [moments_of(piece) for piece in pieces]
    found = read_moments(merge_moments(columns(rows), group, groups + 1))
    for place in range(groups + 1):
        whole = np.concatenate([np.empty(0), *(p for p, g in zip(pieces, group, strict=True) if g == place)])
        truth = read_moments({name: np.array([value]) for name, value in moments_of(whole).items()})
        for name in ("mean", "std", "l2", "rms", "min", "max", "count"):
            assert found[name][place] == pytest.approx(
                truth[name][0], rel=1e-6, abs=std * 1e-9, nan_ok=True
            ), name
        if whole.size > 1:
            assert found["kurtosis"][place] == pytest.approx(truth["kurtosis"][0], rel=1e-4, nan_ok=True)


@pytest.mark.parametrize("case", cases("names"), ids=lambda case: case["name"] or "empty")
def test_a_name_says_its_layer_expert_and_role(case: dict) -> None:
    said = {name: value for name, value in case.items() if name != "name"}
    assert parse_name(case["name"])._asdict() == said
    assert {field: name_values([case["name"]], field) for field in said} == {
        field: [value] for field, value in said.items()
    }


def test_names_of_one_form_differ_in_the_numbers_that_they_say() -> None:
    forms = {
        "decoder.layers.{}.mlp.experts.{}.weight": ("layer", "expert"),
        "experts.{}/layers.{}": ("expert", "layer"),
        "mlp.{}.layers.{}.weight": (None, "layer"),
        "layers.{}.conv.{}.weight": ("layer", None),
        "layers.{}.experts.weight{}": ("layer", "expert"),
    }
    for form, columns in forms.items():
        for numbers in ((0, 0), (3, 12), (12, 3), (7, 123456789)):
            said = parse_name(form.format(*numbers))
            for column, number in zip(columns, numbers, strict=True):
                if column is not None:
                    assert getattr(said, column) == number
            assert (said.expert is None) == ("expert" not in columns)
    assert parse_name("layers.1.conv.0.weight").item_type == "conv.0.weight"
    assert parse_name("layers.1.conv.2.weight").item_type == "conv.2.weight"
    assert parse_name("mlp.5.layers.1.weight").stack == "mlp.5.layers"


def test_names_sort_as_people_count() -> None:
    names = ["layers.10.b", "layers.2.b", "layers.2.a", "10", "2", "a10", "a9"]
    assert sorted(names, key=natural_key) == [
        "2",
        "10",
        "a9",
        "a10",
        "layers.2.a",
        "layers.2.b",
        "layers.10.b",
    ]
