"""The golden recordings, which pyarrow wrote by the protocol's page alone, read as they should, and what a hub records says the same."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import megalens
from megalens.hub.recording_folder import RecordingFolder
from megalens.protocol import LAST_STEP, FrameChecker, decode_frame, stream_segments
from megalens.runs import open_run
from megalens.runs.answers import RunAnswers
from scripts.golden_files import arrow_table, frame_bytes, read_rows, recorded_frames, rows_as_json

RECORDINGS = Path(__file__).parents[2] / "protocol/fixtures/recordings"
ROWS = json.loads((RECORDINGS / "rows.json").read_text("utf-8"))
FRAMES = recorded_frames()


@pytest.mark.parametrize("stream", ROWS)
@pytest.mark.parametrize("form", ["segments", "growing", "finished"])
def test_a_recording_holds_what_was_written(form: str, stream: str) -> None:
    with megalens.open(RECORDINGS / form) as run:
        assert rows_as_json(run.table(stream)) == ROWS[stream]


@pytest.mark.parametrize("form", ["segments", "growing"])
def test_every_question_has_the_answer_of_the_packed_recording(form: str) -> None:
    found = [_answers(RECORDINGS / each) for each in (form, "finished")]
    assert found[0] == found[1]


def _answers(folder: Path) -> list[object]:
    with open_run(folder) as run:
        asked = RunAnswers(run)
        read = [
            ("tensors", {"flag": "MLP1_mat_mul", "steps": [2, LAST_STEP]}),
            ("tensors", {"layers": [1]}),
            ("scalars", {}),
        ]
        asked_lines = [
            ("tensor_lines", {"flag": "MLP1_mat_mul", "rank": "lowest", "statistic": "mean", "points": 50}),
            ("scalar_lines", {"steps": [2, 4]}),
        ]
        bodies = [asked.stream(*each).body for each in read]
        bodies += [asked.answer(method, {"request": request})[1] for method, request in asked_lines]
        tables = [rows_as_json(pa.ipc.open_stream(body).read_all()) for body in bodies]
        return [asked.index(), run.truncated, run.step, *tables]


@pytest.mark.parametrize("instead", [b"", b"MLNSIDX1" + b"\xff" * 248, None])
def test_an_index_of_an_older_recording_is_passed_over(instead: bytes | None, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(RECORDINGS / "growing", folder)
    for index in folder.glob("*.index"):
        index.unlink()
        index.mkdir() if instead is None else index.write_bytes(instead)
    assert _answers(folder) == _answers(RECORDINGS / "finished")


def test_of_an_earlier_attempt_the_steps_before_the_checkpoint_are_taken() -> None:
    with megalens.open(RECORDINGS / "went-back") as run:
        losses = run.scalars("loss")
    # 4 / step of the first attempt, half less once it went back to the checkpoint after step 2.
    assert losses["step"].to_pylist() == [1, 2, 3, 4, 5]
    assert losses["value"].to_pylist() == [4, 2, 4 / 3 - 0.5, 0.5, 0.8 - 0.5]


@pytest.mark.parametrize("stream", ROWS)
def test_a_hub_records_the_same_rows(stream: str, tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path / "run")
    for rows in FRAMES[stream]:
        header = {"seq": 1, "step": rows[-1]["step"], "time_us": 0, "caught_up": False, "merged": False}
        data = frame_bytes(stream, arrow_table(stream, rows), **header)
        folder.append(FrameChecker().check(decode_frame(data), data))
    (tail,) = stream_segments(tmp_path / "run", stream)
    assert not tail.sealed
    assert read_rows(tail.path.name, tail.path.read_bytes()) == ROWS[stream]
    assert folder.finish() is None
    (segment,) = stream_segments(tmp_path / "run", stream)
    assert segment == (0, tail.first_step, tail.path.with_suffix(".parquet"))
    assert read_rows(segment.path.name, segment.path.read_bytes()) == ROWS[stream]
