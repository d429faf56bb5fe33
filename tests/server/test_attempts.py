"""A run whose training went back to a checkpoint, and its earlier attempt, which the server lists as a run of its own."""

import io

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from recorded_run import write_run

from megalens.hub.resumed import read_resumed, set_aside

RUN = "20261120-101500-gpt-demo"
ATTEMPT = f"{RUN}.attempt-1"


@pytest.fixture
def resumed(run_folder, tmp_path):
    """A run of 40 steps, of which those from 21 on were trained again up to 30."""
    set_aside(run_folder, read_resumed(run_folder), 21)
    again = write_run(tmp_path / "again", steps=30)
    for packed in again.glob("*.parquet"):
        pq.write_table(pq.read_table(packed).filter(pc.field("step") >= 21), run_folder / packed.name)
    (run_folder / "run.json").write_bytes((again / "run.json").read_bytes())
    return run_folder


async def test_steps_come_as_they_were_trained_last_and_the_attempt_as_they_were(ask, resumed):
    async def steps_of(run):
        status, index, _ = await ask("runs", run, "index")
        assert status == 200
        steps = next(one["steps"] for one in index["tensors"] if one["flag"] == "MLP1_mat_mul")
        status, lines, _ = await ask("runs", run, "lines", "scalars", body={"names": ["loss"]})
        assert status == 200
        drawn = pa.ipc.open_stream(io.BytesIO(lines)).read_all()["step"].to_pylist()
        assert drawn == steps
        return steps

    assert await steps_of(RUN) == list(range(1, 31))
    assert await steps_of(ATTEMPT) == list(range(1, 41))
    status, told, _ = await ask("runs", RUN)
    assert (status, told["status"]["step"]) == (200, 30)
    words = f"Steps from 21 on were trained again; what was recorded of them before is the run {ATTEMPT}."
    assert words in told["status"]["warnings"]


async def test_both_are_in_the_list_and_the_attempt_goes_with_its_run(ask, resumed):
    async def listed():
        return {run["id"]: run["name"] for run in (await ask("runs"))[1]["runs"]}

    assert await listed() == {RUN: "gpt-demo", ATTEMPT: "gpt-demo, attempt 1"}
    status, body, _ = await ask("runs", ATTEMPT, method="DELETE")
    assert (status, body["code"]) == (409, "refused")
    assert "an earlier attempt" in body["message"]
    status, body, _ = await ask("runs", RUN, method="DELETE")
    assert (status, body) == (200, {"gone": True})
    assert not resumed.exists()
    assert await listed() == {}


@pytest.mark.parametrize("instead", ["garbage", "link", "file"])
async def test_an_attempt_that_cannot_be_read_hides_no_run(ask, resumed, tmp_path, instead):
    home = resumed / "attempts"
    if instead == "garbage":
        (home / "1" / "run.json").write_text("{")
    else:
        home.rename(tmp_path / "moved")
        home.symlink_to(tmp_path / "moved") if instead == "link" else home.write_text("")
    runs = (await ask("runs"))[1]["runs"]
    assert [run["id"] for run in runs] == [RUN]
    status, index, _ = await ask("runs", RUN, "index")
    assert status == 200
    assert index["tensors"][0]["steps"][0] >= 21
