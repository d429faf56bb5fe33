"""Groups of moments: SQL against the golden cases and against numpy, over every grouping, filter and ratio."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from grouped_moments import ask, model, row, values
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.protocol import MOMENT_COLUMNS, MOMENT_READINGS, merge_moments, read_moments
from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery

GOLDEN = Path(__file__).parents[2] / "protocol" / "fixtures" / "moments"

CASES = json.loads((GOLDEN / "merge.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["doc"])
@pytest.mark.parametrize("statistic", MOMENT_READINGS)
def test_groups_have_the_statistics_of_the_golden_cases(case, statistic):
    rows = [
        row(f"{entry['group']}.{at}", **{k: float(v) for k, v in entry.items() if k != "group"})
        for at, entry in enumerate(case["rows"])
    ]
    groups = ask(rows, statistic=statistic, by=["capture"], pattern=r"^(\w+)\.")
    found = dict(zip(groups.table["capture"].to_pylist(), groups.table["value"].to_pylist(), strict=True))
    assert list(found) == sorted(entry["group"] for entry in case["expected"])
    for expected in case["expected"]:
        wanted = (
            float(expected["nan_count"]) + float(expected["inf_count"])
            if statistic == "nonfinite"
            else float(expected[statistic])
        )
        assert found[expected["group"]] == pytest.approx(wanted, rel=1e-9, abs=0, nan_ok=True)


numbers = st.floats(-1e4, 1e4) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])

pieces = st.builds(
    lambda count, mean, m2, m3, m4, low, bad, near, rounding: {
        "count": float(count),
        "mean": mean,
        "m2": m2,
        "m3": m3,
        "m4": m4,
        "min": low,
        "max": low,
        "nan_count": bad,
        "inf_count": 0.0,
        "negative_inf_count": 0.0,
        "near_zero_count": near,
        "rounding": rounding,
    },
    st.sampled_from([0, 0, 1, 2, 1000, 2**53]),
    numbers,
    st.floats(-1e-3, 1e6),
    st.floats(-1e6, 1e6),
    st.floats(0, 1e8),
    numbers,
    st.sampled_from([0.0, 0.0, 3.0, math.nan]),
    st.sampled_from([0.0, 0.0, 7.0, math.nan]),
    st.sampled_from([0.0, 0.0, 2.0**-24]),
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), pieces), min_size=1, max_size=12))
def test_any_rows_merge_as_they_do_in_numpy(rows):
    names = [f"g{group}.{at}" for at, (group, _) in enumerate(rows)]
    groups = ask(
        [row(name, **piece) for name, (_, piece) in zip(names, rows, strict=True)],
        by=["capture"],
        pattern=r"^g(\d)",
    )
    present = sorted({group for group, _ in rows})
    columns = {name: np.array([piece[name] for _, piece in rows]) for name in (*MOMENT_COLUMNS, "rounding")}
    expected = merge_moments(columns, np.array([present.index(group) for group, _ in rows]), len(present))
    assert groups.table["capture"].to_pylist() == [str(group) for group in present]
    for name, column in expected.items():
        np.testing.assert_allclose(
            groups.table[name].to_numpy(),
            column,
            rtol=1e-9,
            # Sums of large terms of both signs: what cancels is known to a share of the terms, in either order.
            atol=1e-13 * size_of_terms(columns, name),
            equal_nan=True,
            err_msg=name,
        )


def size_of_terms(columns, name):
    power = {"mean": 1, "m2": 2, "m3": 3, "m4": 4}.get(name)
    there = columns["count"] > 0
    means = columns["mean"][there & np.isfinite(columns["mean"])]
    if power is None or not len(means):
        return 0.0
    n = np.where(there, columns["count"], 1)
    reach = np.ptp(means) + max(np.max(np.abs(columns[f"m{k}"] / n)[there]) ** (1 / k) for k in (2, 3, 4))
    return float(np.max(np.abs(means)) if power == 1 else n[there].sum() * reach**power)


def total(rows, statistic="l2"):
    columns = {name: np.array([entry[name] for entry in rows]) for name in (*MOMENT_COLUMNS, "rounding")}
    return read_moments(merge_moments(columns, np.zeros(len(rows), int), 1))[statistic][0]


def test_groups_by_columns_of_names_are_in_natural_order_with_null_last():
    rows = [*model(1, stat="param"), row("embedding.weight", 1, "param")]
    found = values(ask(rows, "param", by=["layer"]), "layer")
    assert [key for key, *_ in found] == [0, 2, 10, None]
    assert found[1][2] == pytest.approx(total([entry for entry in rows if ".layers.2." in entry["name"]]))
    kinds = ask(rows, "param", by=["family", "role"])
    assert kinds.keys == [
        ("attention", "input"),
        ("attention", "output"),
        ("embedding", None),
        ("mlp", "input"),
        ("mlp", "output"),
    ]


def test_the_total_and_the_columns_that_rows_say():
    rows = [*model(2, stat="param"), row("x", 2, "param", rank=-1, stage=-1)]
    assert values(ask(rows, "param"))[0] == (1, pytest.approx(total([r for r in rows if r["step"] == 1])))
    by_stage = ask(rows, "param", by=["stage", "layer"])
    assert by_stage.keys == [(0, 0), (0, 2), (0, 10), (None, None)]
    assert ask(rows, "param", by=["rank"], where={"stage": "1-5"}).keys == []


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ({"layer": 2, "role": "output"}, 2),
        ({"layer": "0-3"}, 8),
        ({"layer": range(3), "kind": ["input0"]}, 4),
        ({"family": ["mlp"], "layer": [0, 10]}, 4),
        ({"name": r"fc1/(in|out)put0$"}, 6),
        ({"name": re.compile("(?!decoder)")}, 12),
        (lambda name: name.endswith("/input0"), 6),
        ({"name": "nothing"}, 0),
        ({"layer": "all"}, 12),
        ({"stage": 0}, 12),
        ({"stage": [1]}, 0),
        ({"role": []}, 0),
    ],
)
def test_filters(where, names):
    assert len(ask(model(1), "activation", by=["name"], where=where).keys) == names


def test_captures_join_and_leave_out_what_they_do_not_match():
    found = ask(
        model(1, stat="param"), "param", by=["capture"], pattern=r"layers\.(?P<layer>\d+)\.(mlp)(?:\.x)?"
    )
    assert found.keys == [("0.mlp",), ("2.mlp",), ("10.mlp",)]
    assert ask(model(1, stat="param"), "param", by=["capture"], pattern="mlp|attention").keys == [
        ("attention",),
        ("mlp",),
    ]
    assert ask(model(1, stat="param"), "param", by=["capture"], pattern=r"[(](x)|(?<n>mlp)").keys == [
        (".mlp",)
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"by": ["colour"]},
        {"by": ["capture"]},
        {"by": ["capture"], "pattern": "("},
        {"by": ["capture"], "pattern": "(a)(?=b)"},
        {"by": ["layer", "layer"]},
        {"where": {"layer": "x"}},
        {"where": {"colour": "x"}},
        {"where": {"kind": 3}},
        {"where": {"name": "("}},
        {"statistic": "median"},
        {"points": 0},
        {"smoothing": True},
        {"show": "squared"},
        {"ratio": "gain", "stat": "grad"},
        {"stat": "weights"},
        {"first": "1"},
    ],
)
def test_questions_that_contradict_themselves_are_refused_by_name(members):
    with pytest.raises(ClientError) as caught:
        MomentQuery.of(**{"stat": "activation", **members})
    assert caught.value.code == "bad-parameter"
    assert caught.value.field


def test_inputs_and_outputs_do_not_mix_unless_it_is_allowed():
    with pytest.raises(ClientError, match="The group 0 would hold both") as caught:
        ask(model(1), "activation", by=["layer"])
    assert caught.value.code == "mixed"
    assert "mixed=True" in str(caught.value)
    assert len(ask(model(1), "activation", by=["layer"], mixed=True).keys) == 3
    assert len(ask(model(1), "activation", by=["layer"], where={"role": "input"}).keys) == 3
    assert len(ask(model(1), "activation", by=["role"]).keys) == 2
    assert len(ask(model(1, stat="residual"), "residual").keys) == 1


def test_the_ratio_of_gradients_to_parameters_takes_names_and_steps_that_both_have():
    rows = [
        row(f"layers.{layer}.w", step, stat)
        for layer in range(3)
        for step in (1, 2)
        for stat in ("grad", "param")
    ]
    rows = [
        entry for entry in rows if (entry["name"], entry["step"], entry["stat"]) != ("layers.1.w", 2, "param")
    ]
    found = ask(rows, "dgrad", ratio="grad_to_param")
    for step, value in values(found):
        both = [layer for layer in range(3) if (layer, step) != (1, 2)]
        sides = [
            total(
                [
                    r
                    for r in rows
                    if r["stat"] == stat
                    and r["step"] == step
                    and r["name"] in {f"layers.{n}.w" for n in both}
                ]
            )
            for stat in ("grad", "param")
        ]
        assert value == pytest.approx(sides[0] / sides[1])
    assert found.table["count"].to_pylist() == [12.0, 8.0]


@pytest.mark.parametrize(("stat", "above"), [("activation", "output"), ("dgrad", "input")])
def test_the_gain_of_modules_is_of_what_has_both_ends(stat, above):
    rows = [*model(1, stat=stat), row("embedding/output0", 1, stat)]
    found = ask(
        rows, stat, statistic="rms", by=["layer"], ratio="gain", where={"family": ["mlp"], "role": ["input"]}
    )
    for layer, _, value in values(found, "layer"):
        sides = {
            role: total([r for r in rows if f".{layer}.mlp" in r["name"] and role in r["name"]], "rms")
            for role in ("input", "output")
        }
        below = {"input": "output", "output": "input"}[above]
        assert value == pytest.approx(sides[above] / sides[below])
    assert found.keys == [(0,), (2,), (10,)]
    assert ask(rows, stat, by=["name"], ratio="gain").keys[0] == ("decoder.layers.0.attention.linear_proj",)
