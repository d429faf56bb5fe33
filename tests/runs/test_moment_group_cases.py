"""The server's groups of moments against the golden cases that the page reads too."""

import json
from pathlib import Path

import grouped_moments
import pytest

from megalens.runs import ClientError

GOLDEN = Path(__file__).parents[2] / "protocol" / "fixtures" / "moments" / "groups.json"
CASES = json.loads(GOLDEN.read_text(encoding="utf-8"))
REST = {"samples": -1, "m2": 0.0, "m3": 0.0, "m4": 0.0, "inf_count": 0.0, "rounding": 0.0, "loss_scale": 1.0}


def ask(case):
    rows = [
        {**REST, "min": row["mean"], "max": row["mean"], "gradient_stage": "", **row}
        for row in sorted(case["rows"], key=lambda row: row["step"])
    ]
    return grouped_moments.ask(rows, **case["query"])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["doc"])
def test_groups_are_those_of_the_golden_cases(case):
    if "refused" in case:
        with pytest.raises(ClientError) as refused:
            ask(case)
        assert refused.value.code == case["refused"]
        return
    expected = case["expected"]
    found = ask(case)
    assert [list(key) for key in found.keys] == expected["keys"]
    by = case["query"]["by"]
    table = found.table.select([*by, "step", "value"]).to_pylist()
    points = [
        [found.keys.index(tuple(row[column] for column in by)), row["step"], row["value"]] for row in table
    ]
    assert points == [
        [group, step, pytest.approx(value, rel=1e-12)] for group, step, value in expected["points"]
    ]
    assert (found.groups_total, found.steps_total) == (expected["groups"], expected["steps"])
