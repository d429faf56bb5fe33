"""Lines of recorded and of growing runs, against the recording's own rows."""

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_run import tensor, values_of, write_run

from megalens.runs.answers.lines_answer import gap_starts, thin_line

LINES = Path(__file__).parents[2] / "protocol" / "fixtures" / "lines"
RUN = "20261120-101500-gpt-demo"
FLAG = "MLP1_mat_mul"


def lines_of(body):
    table = pa.ipc.open_stream(body).read_all()
    return table, json.loads(table.schema.metadata[b"megalens"])


def rms_of(rows, flag=FLAG):
    """Every (layer, step) with its rms, by the rows alone."""
    found = {}
    for row in rows:
        if row["flag"] == flag:
            values = np.array(row["values"], np.float64)
            found.setdefault((row["layer"], row["step"]), []).append(values[np.isfinite(values)])
    return {key: np.sqrt((np.concatenate(parts) ** 2).mean()) for key, parts in found.items()}


def shown(table):
    return dict(
        zip(
            zip(table["layer"].to_pylist(), table["step"].to_pylist(), strict=True),
            table["value"].to_pylist(),
            strict=True,
        )
    )


@pytest.mark.parametrize(
    "case", json.loads((LINES / "gaps.json").read_text())["gaps"], ids=lambda case: case["name"]
)
def test_a_line_begins_anew_as_the_golden_cases_say(case):
    assert gap_starts(np.array(case["steps"], np.int64)).tolist() == case["starts"]


async def test_every_point_is_what_the_recording_holds(ask, run_folder):
    rows = pq.read_table(run_folder / "tensors.parquet").to_pylist()
    status, body, _ = await ask(
        "runs", RUN, "lines", "tensors", body={"flag": FLAG, "rank": "lowest", "statistic": "rms"}
    )
    assert status == 200
    table, about = lines_of(body)
    assert shown(table) == pytest.approx(rms_of(rows), rel=1e-12)
    assert (about["total"], about["kept"], about["missing"]) == (40, True, [[8, 9]])
    assert table.filter(pa.compute.field("nonfinite") > 0).to_pylist()[0]["nonfinite"] == 3


@pytest.mark.slow
async def test_no_spike_is_lost_and_fewer_steps_refine(ask, jp_root_dir):
    values = values_of(1, 1)
    rows = []
    for step in range(100, 3100):
        for micro_batch in range(2):
            some = np.full((1, 2, 3), 50.0 if step == 1777 else step % 7 + micro_batch, np.float32)
            rows.append({**tensor(step, 3, "HiddenStates", "", "NoOp()", some), "micro_batch": micro_batch})
    assert values.size
    folder = write_run(jp_root_dir / "megalens-runs" / RUN, more=rows)
    exact = rms_of(pq.read_table(folder / "tensors.parquet").to_pylist(), "HiddenStates")
    asked = {"flag": "HiddenStates", "statistic": "rms", "points": 200}
    _, body, _ = await ask("runs", RUN, "lines", "tensors", body=asked)
    table, about = lines_of(body)
    found = shown(table)
    assert about["total"] == 3000
    assert len(found) < 400
    assert found[(3, 1777)] == pytest.approx(exact[(3, 1777)])
    assert all(value == pytest.approx(exact[key], rel=1e-12) for key, value in found.items())
    _, body, _ = await ask("runs", RUN, "lines", "tensors", body={**asked, "steps": [1700, 1850]})
    assert len(shown(lines_of(body)[0])) == 151


async def test_a_change_of_the_compressor_breaks_the_line(ask, jp_root_dir):
    rows = [
        tensor(step, 1, "HiddenStates", "", f"Tile(tiles={96 if step < 12 else 48})", values_of(step, 1))
        for step in [*range(1, 20), *range(50, 60)]
    ]
    write_run(jp_root_dir / "megalens-runs" / RUN, more=rows)
    _, body, _ = await ask("runs", RUN, "lines", "tensors", body={"flag": "HiddenStates", "statistic": "rms"})
    table, about = lines_of(body)
    starts = table.filter(pa.compute.field("start") == 1)["step"].to_pylist()
    assert starts == [12, 50]
    assert about["compressors"] == ["Tile(tiles=96)", "Tile(tiles=48)"]


async def test_scalars_keep_their_extremes_and_answer_any_step(ask, jp_root_dir):
    folder = write_run(jp_root_dir / "megalens-runs" / RUN, points=5000)
    rows = [
        row
        for row in pq.read_table(folder / "scalars.parquet").to_pylist()
        if row["name"] == "tokens_per_second"
    ]
    exact = {row["step"]: row["value"] for row in rows}
    names = ["tokens_per_second", "gone"]
    _, body, _ = await ask("runs", RUN, "lines", "scalars", body={"names": names, "points": 200})
    table, about = lines_of(body)
    assert about["lines"] == [{"name": "tokens_per_second", "total": 5000}]
    assert about["units"] == {"loss": "nats/byte", "tokens_per_second": "1/s", "held_out_loss": "nats/byte"}
    found = dict(zip(table["step"].to_pylist(), table["value"].to_pylist(), strict=True))
    assert len(found) <= 220
    assert (min(found.values()), max(found.values())) == (min(exact.values()), max(exact.values()))
    assert all(exact[step] == value for step, value in found.items())
    asked = {"names": ["held_out_loss"], "steps": [41, 47], "points": 200}
    _, body, _ = await ask("runs", RUN, "lines", "scalars", body=asked)
    assert lines_of(body)[0]["step"].to_pylist() == [41]


async def test_the_recording_of_a_run_that_goes_on_is_read_up_to_its_newest_step(ask, live, outside):
    run = live("--record", outside)
    run.step(60)
    asked = {"flag": "HiddenStates", "rank": "lowest", "statistic": "kept_mean"}
    for newest in (60, 75):
        end = time.monotonic() + 60
        while True:
            status, body, _ = await ask("runs", run.id, "lines", "tensors", body=asked)
            found = shown(lines_of(body)[0]) if status == 200 else {}
            if (3, newest) in found or time.monotonic() > end:
                break
            await asyncio.sleep(0.05)
        assert found == {(layer, step): step for layer in range(4) for step in range(1, newest + 1)}
        _, index, _ = await ask("runs", run.id, "index")
        assert index["tensors"][0]["steps"] == list(range(1, newest + 1))
        run.step(15)


@pytest.mark.parametrize(
    ("stream", "asked", "field"),
    [
        ("tensors", {}, "flag"),
        ("scalars", {"colour": "red"}, "colour"),
    ],
)
async def test_a_bad_question_is_named(ask, run_folder, stream, asked, field):
    status, body, _ = await ask("runs", RUN, "lines", stream, body=asked)
    assert (status, body["field"]) == (400, field)


def test_a_thinned_line_keeps_its_stretches():
    steps = np.concatenate([np.arange(2000), np.arange(5000, 7000)])
    values = np.sin(steps) + 9.0 * (steps == 777)
    kept, begins = thin_line(steps, values, np.array([2000]), 40)
    assert {0, 777, 1999, 5000, 6999} <= set(steps[kept].tolist())
    assert steps[kept][begins].tolist() == [5000]
