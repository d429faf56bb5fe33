"""Statistics of a live run: what is recorded and what arrived since are answered together, each row once."""

import numpy as np
import pyarrow as pa
import pytest
from grouped_moments import row, source

from megalens.protocol import LAST_STEP, stream_schema
from megalens.runs.moments import LiveRows, MomentQuery, MomentSource
from megalens.runs.moments.rows import live_rows

SCHEMA = stream_schema("moments")
NAMES = ["layers.0.weight", "layers.1.weight"]


def rows_at(step, rank=0, stats=("grad", "param")):
    return [{**row(name, step, stat, mean=step + rank), "rank": rank} for stat in stats for name in NAMES]


def table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def recorded(folder, messages):
    with pa.ipc.new_stream(str(folder / "moments.arrows"), SCHEMA) as writer:
        for rows in messages:
            writer.write_table(table(rows).combine_chunks())


STEPS = {step: rows_at(step) for step in range(1, 41)}
CASES = {
    "all of it is recorded": ([*STEPS.values()], [rows for step, rows in STEPS.items() if step > 30]),
    "the newest steps are not recorded yet": (
        [rows for step, rows in STEPS.items() if step <= 36],
        [rows for step, rows in STEPS.items() if step > 30],
    ),
    "half of the newest step is recorded": (
        [*(rows for step, rows in STEPS.items() if step < 40), STEPS[40][:2]],
        [rows for step, rows in STEPS.items() if step > 30],
    ),
    "a rank is behind": (
        [*STEPS.values(), *(rows_at(step, 1) for step in range(1, 36))],
        [rows for step in range(30, 41) for rows in (STEPS[step], rows_at(step, 1))],
    ),
    "a stat that was not there before": ([*STEPS.values()], [STEPS[40], rows_at(40, stats=("residual",))]),
    "nothing arrived": ([*STEPS.values()], []),
    "nothing is recorded": ([], [*STEPS.values()]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("window", [64, 10_000])
def test_answers_are_those_of_all_rows_together(tmp_path, monkeypatch, case, window):
    monkeypatch.setattr(live_rows, "_MOST_BEHIND", window)
    messages, arrived = CASES[case]
    recorded(tmp_path, messages)
    received = table([one for rows in arrived for one in rows])
    live = MomentSource(LiveRows(lambda: received, tmp_path))
    live.refresh()
    every = {
        (one["stat"], one["step"], one["name"], one["rank"]): one
        for rows in [*messages, *arrived]
        for one in rows
    }
    whole = source(sorted(every.values(), key=lambda one: one["step"]))
    assert live.index()["stats"] == whole.index()["stats"]
    assert sorted(live.index()["names"]) == sorted(whole.index()["names"])
    for asked in (
        {"stat": "grad", "by": ["layer"]},
        {"stat": "param", "by": [], "steps": [35, LAST_STEP]},
        {"stat": "grad", "by": ["rank"], "steps": [0, 37]},
        {"stat": "grad", "by": ["name"], "steps": [5, 6]},
    ):
        one, other = (each.groups(MomentQuery.of_request(**asked, lean=True)).table for each in (live, whole))
        for name in (*(each for each in asked["by"] if each != "name"), "step", "count", "value"):
            np.testing.assert_allclose(one[name], other[name], err_msg=f"{asked} {name}")
    assert live.rows(["grad"]).num_rows == whole.rows(["grad"]).num_rows
    live.close()
    whole.close()
