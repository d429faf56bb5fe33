"""What views and reports ask of a live run is answered from its recording and from what came since."""

import json

import pyarrow as pa
import pytest
from live_run import eventually

from megalens.runs import connect
from megalens.runs.answers import RunAnswers
from megalens.runs.query import Query

STEPS = 120


@pytest.fixture
def run(live, tmp_path):
    run = live("--record", tmp_path / "runs", "--backlog-bytes", 20_000)
    run.step(STEPS)
    return run


def test_a_live_run_is_answered_for_from_its_first_step(run):
    by_address = connect(run.address, token=run.token)
    with by_address:
        eventually(lambda: by_address.step == STEPS, "the newest step")
        came = by_address._received("tensors", Query())
        assert came["step"].to_pylist()[0] > 1
        answers = RunAnswers(by_address)
        (entry,) = answers.index()
        assert entry["steps"] == list(range(1, STEPS + 1))
        asked = {"flag": "HiddenStates", "statistic": "kept_mean", "layers": [2]}
        body = answers.answer("tensor_lines", {"request": asked})[1]
        table = pa.ipc.open_stream(body).read_all()
        assert table["step"].to_pylist() == table["value"].to_pylist() == list(range(1, STEPS + 1))
        assert json.loads(table.schema.metadata[b"megalens"])["total"] == STEPS
        early = answers.stream("tensors", {"flag": "HiddenStates", "steps": [3, 4]})
        steps = pa.ipc.open_stream(early.body).read_all()["step"].to_pylist()
        assert sorted(set(steps)) == [3, 4]
        assert len(steps) == 8
