"""A live run answers from memory and from its recording as one, and says what is in neither."""

import warnings

import pyarrow as pa
import pytest
from live_run import WAIT, eventually, tensors_frame
from recorded_files import recorded_table

import megalens
from megalens.protocol import FrameChecker, decode_frame
from megalens.runs.query import Query
from megalens.runs.recorded import with_recorded

pytestmark = pytest.mark.slow
KEYS = ["step", "layer", "flag", "rank", "micro_batch", "pass", "part"]


def told(table: pa.Table) -> list[tuple]:
    """Rows in order, by what they are of and their values."""
    return list(
        zip(*(table[name].to_pylist() for name in KEYS), map(tuple, table["values"].to_pylist()), strict=True)
    )


@pytest.fixture
def recorded(live, tmp_path):
    """A training whose hub keeps little for viewers that come later, and its run folder."""
    training = live("--record", tmp_path / "runs", "--backlog-bytes", 8000)
    training.step(20)
    folder = tmp_path / "runs" / training.id
    eventually(lambda: recorded_table(folder, "tensors").num_rows == 80, "the recording of 20 steps")
    return training, folder


def test_steps_that_only_the_recording_has_are_read_from_there(recorded, attach) -> None:
    training, folder = recorded
    run = attach()
    assert run.folder == folder
    # Its memory begins later: the hub sent the newest frames only.
    assert min(run._received("tensors", Query())["step"].to_pylist()) > 1
    whole = megalens.open(folder)
    for asked in (
        {},
        {"steps": 1},
        {"steps": 20},
        {"steps": slice(1, None), "layers": "2-3"},
        {"steps": [1, 19], "flag": "HiddenStates", "rank": 0},
        {"steps": 99},
    ):
        assert told(run.tensors(**asked)) == told(whole.tensors(**asked))
    assert run.tensors(steps=1)["values"].to_pylist() == [[1.0] * 8] * 4
    assert run.array("HiddenStates", 2, 1).tolist() == whole.array("HiddenStates", 2, 1).tolist()
    training.step(5)
    assert run.wait(25, timeout=WAIT) == 25
    assert [row[0] for row in told(run.tensors(layers=0))] == list(range(1, 26))


def test_what_memory_gave_up_is_read_from_the_recording(live, attach, tmp_path) -> None:
    training = live("--record", tmp_path / "runs")
    run = attach()
    run._arrivals.memory["tensors"]._limit = 10_000
    training.step(40)
    assert run.wait(40, timeout=WAIT) == 40
    assert run.evicted_rows > 0
    eventually(lambda: len(run.tensors(steps=1)) == 4, "step 1 of the recording")
    assert [row[0] for row in told(run.tensors(layers=3))] == list(range(1, 41))
    (said,) = [text for text in run.warnings if "older rows were given up" in text]
    assert said.endswith("The recording has them, and they are read from there.")


def test_steps_that_are_nowhere_any_more_are_said(live, attach) -> None:
    training = live("--backlog-bytes", 8000)
    training.step(20)
    run = attach()
    with pytest.warns(UserWarning, match=r"Not kept: Of tensors only steps \d+ to 20 are here"):
        assert run.tensors(steps=1).num_rows == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.tensors(steps=20).num_rows == 4
        # Nothing is said of a question that does not name steps.
        assert run.tensors("QKV_mat_mul").num_rows == 0


def test_a_step_of_a_whole_memory_that_has_no_rows_is_only_empty(live, attach) -> None:
    live().step(3)
    run = attach()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.tensors(steps=9).num_rows == 0


def test_rows_that_are_recorded_and_in_memory_come_once_whatever_is_recorded_so_far(tmp_path, live) -> None:
    training = live("--record", tmp_path / "runs")
    training.step(3)
    folder = tmp_path / "runs" / training.id
    eventually(lambda: recorded_table(folder, "tensors").num_rows == 12, "the recording")

    def rows(step: int, layers) -> pa.Table:
        data = tensors_frame(step, layers=layers)
        return FrameChecker().check(decode_frame(data), data).table()

    received = pa.concat_tables([rows(2, (0, 1, 2, 3)), rows(3, (2, 3)), rows(3, (4,)), rows(4, (0, 1))])
    every = told(with_recorded(folder, "tensors", Query(), received))
    assert [row[:2] for row in every] == [
        *((step, layer) for step in (1, 2, 3) for layer in range(4)),
        (3, 4),
        (4, 0),
        (4, 1),
    ]
