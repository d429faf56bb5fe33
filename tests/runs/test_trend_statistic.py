"""The trend statistic equals the golden cases that the browser's twin reads too."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from megalens.runs import ClientError
from megalens.runs.aggregate import STATISTICS, trend
from megalens.runs.query import Selection

GOLDEN = sorted((Path(__file__).parents[2] / "protocol" / "fixtures" / "aggregate").glob("*.json"))

WHOLE = json.loads((Path(__file__).parents[2] / "protocol/fixtures/whole-tensors.json").read_text("utf-8"))

BANDS = sorted((Path(__file__).parents[2] / "protocol" / "fixtures" / "bands").glob("*.json"))


def table_of(rows: list[dict]) -> pa.Table:
    return pa.table(
        {
            "step": pa.array([row["step"] for row in rows], pa.int64()),
            "layer": pa.array([row["layer"] for row in rows], pa.int32()),
            "values": pa.array([[float(v) for v in row["values"]] for row in rows], pa.list_(pa.float32())),
        }
    )


def test_there_are_golden_cases() -> None:
    assert len(GOLDEN) >= 6


def with_whole(rows: list[dict]) -> pa.Table:
    table = table_of(rows)
    for name in ("nan_count", "inf_count"):
        table = table.append_column(name, pa.array([row[name] for row in rows], pa.int64()))
    for name in ("count", "mean", "m2", "m3", "m4", "min", "max"):
        column = [float((row["whole"] or {}).get(name, "nan")) for row in rows]
        table = table.append_column(name, pa.array(column, pa.float64()))
    return table


@pytest.mark.parametrize("prefix", ["", "kept_"])
@pytest.mark.parametrize("statistic", ["mean", "std", "min", "max", "rms", "abs_mean", "nonfinite"])
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_a_golden_case_comes_out_as_written(path: Path, statistic: str, prefix: str) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    name = statistic if statistic == "nonfinite" else prefix + statistic
    same(trend(table_of(case["rows"]), name).to_pylist(), case["expected"][statistic])


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case["doc"])
@pytest.mark.parametrize("statistic", STATISTICS)
def test_a_golden_case_of_whole_tensors_comes_out_as_written(case: dict, statistic: str) -> None:
    same(trend(with_whole(case["rows"]), statistic).to_pylist(), case["expected"][statistic])


def test_parts_of_tensors_are_parts_of_what_was_kept() -> None:
    case = WHOLE[0]
    table = with_whole(case["rows"])
    table = table.append_column("shape", pa.array([[1, 4, 1]])).append_column(
        "compressor", pa.array(["NoOp()"])
    )
    selection = Selection(("position", "feature"), "1-2", 0, "none")
    assert trend(table, "mean", selection)["value"].to_pylist() == [np.mean(case["rows"][0]["values"][1:3])]


def same(found: list[dict], expected: list[dict]) -> None:
    assert [(r["step"], r["layer"]) for r in found] == [(e["step"], e["layer"]) for e in expected]
    for row, want in zip(found, expected, strict=True):
        value = float(want["value"])
        if math.isnan(value):
            assert math.isnan(row["value"])
        else:
            assert row["value"] == pytest.approx(value, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("interval", ["none", "std", "ci95"])
@pytest.mark.parametrize("path", BANDS, ids=lambda path: path.stem)
def test_a_band_comes_out_as_written(path: Path, interval: str) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    table = table_of(case["rows"])
    table = table.append_column("shape", pa.array([row["shape"] for row in case["rows"]]))
    table = table.append_column("compressor", pa.array([case["compressor"]] * len(case["rows"])))
    selection = Selection(case["axes"], case["positions"], case["vector"], interval)
    found = trend(table, "mean", selection).to_pylist()
    assert len(found) == len(case["expected"][interval])
    for row, want in zip(found, case["expected"][interval], strict=True):
        assert (row["step"], row["layer"]) == (want["step"], want["layer"])
        assert row["value"] == pytest.approx(want["value"], rel=1e-12)
        assert ("half" in row) == (interval != "none")
        if interval != "none":
            # The quantile of Student's t is right to three digits.
            assert row["half"] == pytest.approx(float(want["half"]), rel=1e-3, nan_ok=True)
            assert row["units"] == want["units"]


def test_the_count_is_of_the_finite_values() -> None:
    rows = [{"step": 1, "layer": 1, "values": [1, "nan", 3]}, {"step": 1, "layer": 1, "values": [5]}]
    assert trend(table_of(rows), "mean")["count"].to_pylist() == [3]


def test_sliced_and_chunked_tables_give_the_same_answer() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"step": int(s), "layer": int(layer), "values": rng.normal(size=7).tolist()}
        for s in range(9)
        for layer in range(4)
    ]
    whole = table_of(rows)
    pieces = pa.concat_tables([whole.slice(0, 5), whole.slice(5, 20), whole.slice(25)])
    assert trend(pieces, "std") == trend(whole, "std")
    assert trend(whole.slice(8, 8), "std") == trend(whole, "std").slice(8, 8)


def test_an_unknown_statistic_is_named() -> None:
    with pytest.raises(ClientError, match="no statistic 'median'") as caught:
        trend(table_of([]), "median")
    assert caught.value.field == "statistic"
