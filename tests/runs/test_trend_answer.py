"""Lines that the server answers with equal the golden cases that the page reads too."""

import json
import math
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from recorded_run import tensor

from megalens.protocol import STREAMS, stream_schema
from megalens.runs.answers.lines_answer import read_trend, thin_line

FIXTURES = Path(__file__).parents[2] / "protocol" / "fixtures"
WHOLE = json.loads((FIXTURES / "whole-tensors.json").read_text("utf-8"))
POOLED = [json.loads(path.read_text("utf-8")) for path in sorted((FIXTURES / "aggregate").glob("*.json"))]
BANDS = [json.loads(path.read_text("utf-8")) for path in sorted((FIXTURES / "bands").glob("*.json"))]
THINNED = json.loads((FIXTURES / "lines" / "thinned.json").read_text("utf-8"))["thinned"]
MOMENTS = ("count", "mean", "m2", "m3", "m4", "min", "max")


class Rows:
    """Rows of a golden case, in as many batches as there are rows."""

    streams = STREAMS
    missing_steps = ()

    def __init__(self, case, compressor="NoOp()"):
        rows = []
        for row in case["rows"]:
            values = [float(value) for value in row["values"]]
            whole = row.get("whole") or {}
            said = {
                "source_shape": [1, len(values)],
                "shape": row.get("shape", [1, len(values)]),
                "nan_count": row.get("nan_count", sum(map(math.isnan, values))),
                "inf_count": row.get("inf_count", sum(map(math.isinf, values))),
                **{name: float(whole.get(name, "nan")) for name in MOMENTS},
            }
            of = case.get("compressor", compressor)
            rows.append(tensor(row["step"], row["layer"], "F", "", of, np.array(values, np.float32), **said))
        self.table = pa.Table.from_pylist(rows, stream_schema("tensors"))
        self.read = 0
        self.columns = set()

    def batches(self, stream, query=None, columns=None):
        self.columns.update(columns or ())
        table = self.table if columns is None else self.table.select(columns)
        for batch in table.to_batches(max_chunksize=1):
            self.read += 1
            yield batch


def ask(case, rows=None, **members):
    return read_trend(rows or Rows(case), {"flag": "F", **members}, threading.Event())


def same(answer, expected, column="value"):
    found = {(row["step"], row["layer"]): row[column] for row in answer.table.to_pylist()}
    assert set(found) == {(row["step"], row["layer"]) for row in expected}
    for row in expected:
        want = float(row[column])
        if math.isnan(want):
            assert math.isnan(found[row["step"], row["layer"]])
        else:
            assert found[row["step"], row["layer"]] == pytest.approx(want, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("statistic", "moments"),
    [("rms", "count mean m2"), ("max", "count mean m2 max"), ("kurtosis", "count mean m2 m3 m4"), ("nonfinite", "count")],
)  # fmt: skip
def test_only_the_moments_that_a_statistic_needs_are_read(statistic, moments):
    rows = Rows(WHOLE[0])
    ask(WHOLE[0], rows, statistic=statistic)
    assert rows.columns & {*MOMENTS} == {*moments.split()}


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case["doc"])
def test_lines_of_whole_tensors_come_out_as_written(case):
    for statistic, expected in case["expected"].items():
        answer = ask(case, statistic=statistic)
        same(answer, expected)
        if not statistic.startswith("kept_") and statistic != "nonfinite":
            assert answer.about["kept"] is case["kept"]


@pytest.mark.parametrize("case", POOLED, ids=lambda case: case["doc"][:40])
def test_lines_of_kept_values_come_out_as_written(case):
    for statistic, expected in case["expected"].items():
        same(ask(case, statistic=statistic), expected)


@pytest.mark.parametrize("statistic", ["rms", "mean", "abs_mean"])
def test_a_layer_of_which_fewer_values_are_finite_than_not_has_no_number(statistic):
    values = [[3, -3, "nan"], [0, "nan", "nan"]]
    case = {"rows": [{"step": at, "layer": 0, "values": each} for at, each in enumerate(values)]}
    whole, broken = ask(case, statistic=f"kept_{statistic}").table["value"].to_pylist()
    assert math.isfinite(whole)
    assert math.isnan(broken)


@pytest.mark.parametrize("case", BANDS, ids=lambda case: case.get("doc", "")[:40])
@pytest.mark.parametrize("interval", ["std", "ci95"])
def test_bands_come_out_as_written(case, interval):
    chosen = {name: case[name] for name in ("positions", "vector")}
    selection = {"axes": case.get("axes", []), **chosen, "interval": interval}
    answer = ask(case, statistic="mean", selection=selection)
    expected = case["expected"][interval]
    same(answer, expected)
    same(answer, expected, "half")


@pytest.mark.parametrize("case", THINNED, ids=lambda case: case["name"])
def test_a_line_is_thinned_out_as_the_page_thins_it_out(case):
    values = np.array([float(value) for value in case["values"]])
    kept, begins = thin_line(
        np.array(case["steps"]), values, np.array(case["starts"], np.int64), case["points"]
    )
    assert (kept.tolist(), begins.tolist()) == (case["kept"], case["begins"])


TOKENS = {"shape": [1, 4, 2], "values": [1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0, 34.0]}
EVERY = {"axes": ["position"], "positions": "all", "vector": 0, "interval": "none"}
FLAT = {"shape": [8], "values": TOKENS["values"]}
MEASURED = {"count": 8, "mean": 1, "m2": 8, "m3": 0, "m4": 8, "min": 0, "max": 2}


def run_of(*shapes):
    rows = [{"step": step, "layer": 0, "whole": MEASURED, **shape} for step, shape in enumerate(shapes, 1)]
    return {"axes": ["position"], "rows": rows}


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({}, False),
        ({"selection": {**EVERY, "interval": "std"}}, True),
        ({"selection": {**EVERY, "positions": "0-1"}}, True),
        ({"statistic": "kept_rms"}, False),
    ],
    ids=str,
)
def test_rows_are_read_once(asked, kept):
    case = run_of(*[TOKENS] * 20)
    rows = Rows(case)
    answer = ask(case, rows, **{"statistic": "mean", **asked})
    assert (answer.table.num_rows, answer.about["kept"]) == (20, kept)
    # And the first once more, which says what is left out.
    assert rows.read <= 21


@pytest.mark.parametrize("shapes", [(TOKENS, TOKENS, FLAT), (FLAT, FLAT, TOKENS)], ids=["flat", "tokens"])
def test_the_newest_row_says_whether_positions_are_left_out(shapes):
    answer = ask(run_of(*shapes), statistic="mean", selection={**EVERY, "positions": "0-1"})
    assert answer.about["kept"] is (shapes[-1] is TOKENS)


def test_a_question_that_was_cancelled_ends():
    asked = {"flag": "F", "statistic": "rms"}
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(Exception, match="cancelled"):
        read_trend(Rows(WHOLE[0]), asked, cancelled)
