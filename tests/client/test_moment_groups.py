"""Groups of moments: SQL against the golden cases and against numpy, over every grouping, filter and ratio."""

import json
import math
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.client import ClientError
from megalens.client.moments import MomentQuery, MomentSource, RecordedRows, TableRows
from megalens.client.trailing_mean import trailing_mean
from megalens.protocol import MOMENT_COLUMNS, merge_moments, read_moments, stream_schema

GOLDEN = Path(__file__).parents[2] / "protocol" / "fixtures" / "moments"
CASES = json.loads((GOLDEN / "merge.json").read_text(encoding="utf-8"))
READ = (
    "mean",
    "variance",
    "std",
    "l2",
    "rms",
    "skewness",
    "kurtosis",
    "excess_kurtosis",
    "min",
    "max",
    "nonfinite",
)


def row(name, step=1, stat="grad", **more):
    values = np.random.default_rng(abs(hash((name, step, stat))) % 2**32).normal(size=4)
    d = values - values.mean()
    return {
        "step": step,
        "samples": step * 8,
        "stat": stat,
        "name": name,
        "rank": 0,
        "stage": -1,
        "count": 4.0,
        "mean": values.mean(),
        "m2": (d**2).sum(),
        "m3": (d**3).sum(),
        "m4": (d**4).sum(),
        "min": values.min(),
        "max": values.max(),
        "nan_count": 0.0,
        "inf_count": 0.0,
        "rounding": 0.0,
        "gradient_stage": "",
        "loss_scale": 1.0,
        **more,
    }


def source(rows):
    held = TableRows()
    held.append(pa.Table.from_pylist(rows, schema=stream_schema("moments")))
    return MomentSource(held)


def ask(rows, stat="grad", **members):
    return source(rows).groups(MomentQuery.of(stat, **members))


def values(groups, *labels):
    return [tuple(entry.values()) for entry in groups.table.select([*labels, "step", "value"]).to_pylist()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["doc"])
@pytest.mark.parametrize("statistic", READ)
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
    lambda count, mean, m2, m3, m4, low, bad, rounding: {
        "count": float(count),
        "mean": mean,
        "m2": m2,
        "m3": m3,
        "m4": m4,
        "min": low,
        "max": low,
        "nan_count": bad,
        "inf_count": 0.0,
        "rounding": rounding,
    },
    st.sampled_from([0, 0, 1, 2, 1000, 2**53]),
    numbers,
    st.floats(-1e-3, 1e6),
    st.floats(-1e6, 1e6),
    st.floats(0, 1e8),
    numbers,
    st.sampled_from([0.0, 0.0, 3.0, math.nan]),
    st.sampled_from([0.0, 0.0, 2.0**-24]),
)


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


def model(steps=3, layers=(0, 2, 10), stat="activation"):
    return [
        row(f"decoder.layers.{layer}.{module}/{role}0", step, stat, stage=layer % 2, rank=layer % 2)
        for step in range(1, steps + 1)
        for layer in layers
        for module in ("mlp.linear_fc1", "attention.linear_proj")
        for role in ("input", "output")
    ]


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
        {"smoothing": -1},
        {"smoothing": True},
        {"show": "squared"},
        {"ratio": "gain", "stat": "grad"},
        {"stat": "weights"},
        {"first": "1"},
        {"other": 1},
    ],
)
def test_questions_that_contradict_themselves_are_refused_by_name(members):
    with pytest.raises(ClientError) as caught:
        MomentQuery.of_members({"stat": "activation", **members})
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


def spiky(steps, groups=2):
    rows = []
    for group in range(groups):
        for step in range(1, steps + 1):
            size = 100.0 if step == 77 + group else 0.01 if step == 501 else 1.0 + group + step / 1e6
            rows.append(row(f"layers.{group}.w", step, mean=size, m2=0.0, m3=0.0, m4=0.0))
    return rows


def test_decimation_keeps_ends_extremes_and_every_step_that_is_not_finite():
    rows = spiky(1000)
    rows[300] |= {"nan_count": 2.0}
    rows[1301] |= {"mean": math.nan, "m2": math.nan, "nan_count": math.nan, "inf_count": math.nan}
    rows[1402] |= {"nan_count": 1.0, "count": 0.0, "mean": math.nan}
    groups = ask(rows, by=["layer"], points=40)
    kept = {}
    for layer, step, _ in values(groups, "layer"):
        kept.setdefault(layer, []).append(step)
    for layer, steps in kept.items():
        assert steps == sorted(steps)
        assert {1, 77 + layer, 501, 1000} <= set(steps)
        assert len(steps) <= 43
    assert 301 in kept[0]
    assert {302, 403} <= set(kept[1])
    assert (groups.groups_total, groups.steps_total) == (2, 1000)
    assert len(ask(rows, by=["layer"], points=1000).table) == 2000


def test_many_rows_are_answered_in_two_passes_as_in_one(monkeypatch):
    rows = spiky(300)
    rows[10] |= {"nan_count": 1.0}
    for members in (
        {"points": 20},
        {"series": 1},
        {"points": 20, "by": ["name"], "statistic": "rms"},
        {"statistic": "kurtosis", "points": 8},
    ):
        members = {"by": ["layer"], **members}
        one = ask(rows, **members)
        with monkeypatch.context() as patch:
            patch.setattr("megalens.client.moments.answer._HELD_CELLS", 10)
            patch.setattr("megalens.client.moments.sql_chunks._CHUNK_ROWS", 50)
            two = ask(rows, **members)
        for name in two.table.column_names:
            if name != "name":
                np.testing.assert_array_equal(
                    one.table[name].to_numpy(), two.table[name].to_numpy(), err_msg=name
                )
        assert (one.keys, one.groups_total, one.steps_total) == (two.keys, two.groups_total, two.steps_total)


@pytest.mark.parametrize("statistic", READ)
def test_a_lean_answer_has_the_same_values_errors_and_counts(statistic):
    rows = spiky(60)
    rows[10] |= {"nan_count": 1.0}
    rows[20] |= {"count": 0.0, "mean": math.nan}
    rows[30] |= {"mean": math.inf, "m2": math.nan, "nan_count": math.nan, "inf_count": math.nan}
    rows[40] |= {"rounding": 2.0**-24, "m2": 3.0, "loss_scale": math.nan, "min": math.nan}
    for members in (
        {"by": []},
        {"by": ["layer"], "points": 20, "series": 1},
        {"by": ["rank"], "ratio": "grad_to_param"},
    ):
        body = {"stat": "grad", "statistic": statistic, **members}
        both = rows + [{**entry, "stat": "param"} for entry in spiky(60)]
        whole = ask(both, **{key: value for key, value in body.items() if key != "stat"}).table
        lean = source(both).groups(MomentQuery.of_members(body)).table
        for name in ("step", "samples", "value", "count", "nan_count", "inf_count", "scaled"):
            np.testing.assert_allclose(
                lean[name].to_numpy(), whole[name].to_numpy(), rtol=1e-12, equal_nan=True, err_msg=name
            )
        # An error is a difference of two roots: it is known to the last digits of these.
        np.testing.assert_allclose(
            lean["error"].to_numpy(), whole["error"].to_numpy(), rtol=1e-12, atol=1e-14
        )


def test_of_many_groups_the_greatest_stay_and_those_that_are_not_finite_before_them():
    rows = [row(f"layers.{at}.w", mean=float(at), m2=0.0) for at in range(20)]
    rows[3] |= {"nan_count": 1.0}
    groups = ask(rows, by=["layer"], series=3)
    assert groups.keys == [(3,), (18,), (19,)]
    assert groups.groups_total == 20


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


def test_rows_come_by_step_with_places_of_names_and_are_refused_when_too_many():
    moments = source([*model(3), row("w", 2, "grad")])
    index = moments.index()
    assert index["stats"] == [
        {"stat": "grad", "rows": 1, "first": 2, "last": 2, "steps": 1},
        {"stat": "activation", "rows": 36, "first": 1, "last": 3, "steps": 3},
    ]
    rows = moments.rows(["activation", "grad"], {"layer": 10}, (2, None))
    assert rows["step"].to_pylist() == [2] * 4 + [3] * 4
    assert {index["names"][place] for place in rows["name_id"].to_pylist()} == {
        entry["name"] for entry in model(1) if ".10." in entry["name"]
    }
    assert rows.schema.names == [
        "name_id" if name == "name" else name for name in stream_schema("moments").names
    ]
    with pytest.raises(ClientError, match="36 rows match, and at most 35") as caught:
        moments.rows(["activation"], limit=35)
    assert caught.value.code == "too-large"


def test_a_recording_answers_the_same_growing_and_packed(tmp_path):
    tmp_path = tmp_path / "it's [a] *run?"
    tmp_path.mkdir()
    rows = model(6)
    schema = stream_schema("moments")
    tables = [
        pa.Table.from_pylist([r for r in rows if r["step"] == step], schema=schema) for step in range(1, 7)
    ]
    file = (tmp_path / "moments.arrows").open("wb")
    writer = pa.ipc.new_stream(file, schema)
    moments = MomentSource(RecordedRows(tmp_path))
    file.flush()
    assert not moments.refresh()
    seen = {moments.version}
    for step, table in enumerate(tables, 1):
        writer.write_table(table)
        file.flush()
        assert moments.refresh()
        assert moments.index()["stats"][0]["last"] == step
        seen.add(moments.version)
    assert len(seen) == 7
    assert not moments.refresh()
    names = moments.index()["names"]
    query = MomentQuery.of("activation", by=["layer", "role"])
    growing = moments.groups(query).table
    whole = (tmp_path / "moments.arrows").read_bytes()
    file.close()
    pq.write_table(pa.concat_tables(tables), tmp_path / "moments.parquet")
    assert moments.refresh()
    assert moments.index()["names"] == names
    assert moments.groups(query).table.equals(growing)
    (tmp_path / "moments.parquet").unlink()
    (tmp_path / "moments.arrows").write_bytes(whole[:-40])
    cut = MomentSource(RecordedRows(tmp_path))
    cut.refresh()
    assert cut.index()["stats"][0]["last"] == 5
    assert "ends within a message" in cut.warnings[0]
    moments.close()
    with pytest.raises(ClientError, match="closed"):
        moments.groups(query)


def test_what_is_shown_starts_at_the_first_finite_value_and_gaps_stay():
    sizes = (math.nan, 4.0, math.nan, 8.0, 2.0)
    rows = [
        row("a", step, mean=size, m2=0.0, nan_count=float(math.isnan(size)), rounding=2.0**-24)
        for step, size in enumerate(sizes, 1)
    ]
    rows += [row("b", step, mean=0.0, m2=0.0) for step in (1, 2)]
    shown = ask(rows, statistic="mean", by=["name"], show="relative", smoothing=3)
    raw = ask(rows, statistic="mean", by=["name"])
    assert [value for *_, value in values(shown, "name")] == [
        pytest.approx(value, nan_ok=True)
        for value in (math.nan, 1.0, math.nan, 1.5, 1.25, math.nan, math.nan)
    ]
    np.testing.assert_allclose(shown.table["error"].to_numpy()[:5], raw.table["error"].to_numpy()[:5] / 4)
    delta = ask(rows, statistic="mean", by=["name"], show="delta")
    np.testing.assert_array_equal(delta.table["error"].to_numpy(), raw.table["error"].to_numpy())
    assert [value for *_, value in values(delta, "name")][5:] == [0.0, 0.0]


def test_a_spike_does_not_stay_in_the_trailing_means_behind_it():
    means = np.ones(100)
    means[10], means[20], means[30] = 1e20, math.inf, math.nan
    expected = [
        np.mean(part[np.isfinite(part)]) for part in (means[max(0, at - 6) : at + 1] for at in range(100))
    ]
    np.testing.assert_allclose(trailing_mean(means, 7), expected, rtol=1e-15)
    assert len(trailing_mean(means[:0], 7)) == 0
