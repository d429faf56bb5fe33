"""The run folder: readable at any moment, lossless, or it says what is missing."""

import json
import resource
import signal

import pytest
from hub_process import WAIT, HubProcess, announce, scalars, tensors, until
from recorded_files import file_names, parquet_of, recorded_table, tails_of

from megalens.hub.recorder import Recorder
from megalens.protocol import FrameChecker, decode_frame, stream_schema

pytestmark = pytest.mark.slow


def record(hub, steps):
    viewer, producer = hub.viewer(), hub.producer()
    for step in range(1, steps + 1):
        producer.send(tensors(step))
        producer.send(scalars(step, value=float("nan") if step == 2 else step))
    viewer.wait_frames(steps, "scalars")
    return viewer, producer


def test_a_finished_run_is_packed_and_says_what_it_is(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--linger", 0.2)
    viewer, producer = record(hub, 50)
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    folder = hub.record
    assert folder == tmp_path / "runs" / hub.ready["id"]
    assert sorted(path.name for path in folder.iterdir()) == ["audit", "run.json", "scalars", "tensors"]
    assert [file_names(folder, stream) for stream in ("audit", "scalars", "tensors")] == [
        ["000000-step-0.parquet"],
        ["000000-step-1.parquet"],
        ["000000-step-1.parquet"],
    ]
    table = parquet_of(folder, "tensors")
    assert table.schema.equals(stream_schema("tensors"))
    assert table.column("step").to_pylist() == [step for step in range(1, 51) for _ in (1, 2)]
    values = parquet_of(folder, "scalars").column("value").to_pylist()
    assert values[2] == 3.0
    assert values[1] != values[1]
    run = json.loads((folder / "run.json").read_text())
    assert (run["format"], run["state"], run["missing_steps"]) == (2, "finished", [])
    assert run["run"]["name"] == "gpt-demo"
    assert run["model"] == announce()["model"]
    entry = run["streams"]["tensors"]
    assert (entry["rows"], entry["first_step"], entry["last_step"]) == (100, 1, 50)
    assert run["ended"] >= run["run"]["started"]
    assert hub.entry.token not in (folder / "run.json").read_text()
    viewer.close()
    assert hub.process.wait(WAIT) == 0


def rows_of(folder, stream="tensors"):
    return recorded_table(folder, stream).num_rows if tails_of(folder, stream) else 0


def test_killing_the_hub_leaves_every_frame_that_was_written(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    record(hub, 30)
    until(lambda: rows_of(hub.record) == 60, "the rows were not written")
    hub.process.kill()
    hub.process.wait(WAIT)
    assert recorded_table(hub.record, "tensors").column("step").to_pylist()[-1] == 30
    assert json.loads((hub.record / "run.json").read_text())["run"]["id"] == hub.ready["id"]


def test_killing_the_hub_in_full_flow_leaves_a_readable_prefix(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    producer = hub.producer()
    frames = [tensors(step, size=20_000) for step in range(1, 200)]
    for frame in frames[:20]:
        producer.send(frame)
    until(lambda: tails_of(hub.record, "tensors"), "no file")
    for frame in frames[20:60]:
        producer.send(frame)
    hub.process.kill()
    hub.process.wait(WAIT)
    steps = recorded_table(hub.record, "tensors").column("step").to_pylist()
    assert steps == [step for step in range(1, len(steps) // 2 + 1) for _ in (1, 2)]


def test_a_lost_trainer_closes_the_recording_as_lost(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    viewer, producer = record(hub, 3)
    producer.socket.socket.close()
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    assert json.loads((hub.record / "run.json").read_text())["state"] == "lost"
    assert parquet_of(hub.record, "scalars").num_rows == 3


def test_ending_the_hub_closes_the_recording(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    record(hub, 5)
    assert hub.terminate(signal.SIGINT) == 0
    assert parquet_of(hub.record, "tensors").num_rows == 10


def test_a_rank_that_comes_after_the_recording_closed_is_counted_as_missing(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path)
    viewer, producer = record(hub, 3)
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    again = hub.producer()
    again.send(tensors(9))
    status = viewer.wait("status", lambda m: m["dropped"]["recorder"] >= 2)
    assert status["recording"]["missing_steps"][-1] == [9, 9]
    assert hub.terminate() == 0
    assert json.loads((hub.record / "run.json").read_text())["missing_steps"][-1] == [9, 9]


def test_a_full_disk_ends_the_recording_and_nothing_else(runtime, tmp_path):
    def limit_files():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000))

    hub = HubProcess(runtime, "--record", tmp_path / "runs", preexec=limit_files).wait_ready()
    try:
        viewer, producer = hub.viewer(), hub.producer()
        for step in range(1, 101):
            producer.send(tensors(step, size=200))
        status = viewer.wait("status", lambda m: m["recording"]["state"] == "failed" and m["step"] == 100)
        viewer.wait_frames(100)
        assert "recording stopped" in status["recording"]["message"]
        assert str(tmp_path) not in status["recording"]["message"]
        rows = recorded_table(hub.record, "tensors")
        steps = sorted(set(rows.column("step").to_pylist()))
        assert 0 < len(steps) < 100
        status = viewer.wait("status", lambda m: m["recording"].get("missing_steps", [[0, 0]])[-1][1] == 100)
        assert status["recording"]["missing_steps"] == [[steps[-1] + 1, 100]]
        assert status["dropped"]["recorder"] == 2 * (100 - len(steps))
        assert hub.terminate() == 0
        assert json.loads((hub.record / "run.json").read_text())["missing_steps"] == [[steps[-1] + 1, 100]]
    finally:
        hub.close()


def test_a_folder_that_cannot_be_written_is_one_line_and_exit_code_2(runtime, tmp_path):
    (tmp_path / "file").write_text("")
    hub = HubProcess(runtime, "--record", tmp_path / "file")
    try:
        assert hub.process.wait(WAIT) == 2
        error = hub.process.stderr.read()
        assert len(error.splitlines()) == 1
        assert "--record" in error
        assert not list(runtime.glob("hub-*"))
    finally:
        hub.close()


def test_what_does_not_fit_the_queue_is_counted_by_step(tmp_path):
    body = FrameChecker().check(decode_frame(tensors(1)), tensors(1))
    recorder = Recorder(tmp_path / "run", {"format": 1}, queue_bytes=10)
    recorder.put(body, 1, 1000)
    recorder.put(body, 1, 1000)
    assert recorder.dropped_rows == 4
    assert recorder.status()["missing_steps"] == [[1, 1]]
    assert [*recorder.sentences, *recorder.overflow.totals()] == [
        "HiddenStates, layers 1-2: 2 rows of step 1 were given up, because too much waits for the disk "
        "(1e-05 MB may wait). If it is slow, trace less, or every few steps.",
        "HiddenStates, layers 1-2: in all 4 rows of step 1 were given up, because too much waits for the disk.",
    ]
    recorder.close({"format": 1})
    recorder.close({"format": 1})
    assert json.loads((tmp_path / "run" / "run.json").read_text())["missing_steps"] == [[1, 1]]
