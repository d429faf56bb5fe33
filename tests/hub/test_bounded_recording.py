"""A recording that may not take more than so many bytes keeps the newest steps, and names those that it gave up."""

import errno
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hub_process import moments, put, scalars, tensors, until
from recorded_files import parquet_of, recorded_table

from megalens.protocol import STREAMS, Streams, decode_frame, encode_frame
from megalens.runs import open_run
from megalens.runs.moments.rows.recorded_rows import RecordedRows
from megalens.runs.query import Query
from megalens.runs.recorded_streams import KnownFiles, RecordedStreams

LIMIT = 200_000


def record(recorder, frames):
    put(recorder, *frames)
    # Where the disk failed it goes on only after the last row was written.
    until(lambda: not recorder._waiting_bytes and recorder.state == "on")


def run_of(first, last):
    for step in range(first, last + 1):
        yield tensors(step)
        if step % 20 == 0:
            yield scalars(step)


def steps_of(folder, stream="tensors"):
    return recorded_table(folder / "run", stream)["step"].to_pylist()


@pytest.mark.slow
def test_the_newest_steps_stay_and_the_others_are_named(recorder, tmp_path):
    bounded = recorder(limit_bytes=LIMIT)
    record(bounded, run_of(1, 1000))
    status = bounded.status()
    assert status["bytes"] <= LIMIT == status["limit_bytes"]
    assert status["bytes"] > LIMIT / 2
    ((first, last),) = status["missing_steps"]
    # A tail that was being sealed when it was given up may come back until the sealer has answered.
    until(lambda: steps_of(tmp_path)[0] > last)
    steps = steps_of(tmp_path)
    assert first == 1
    assert sorted(set(steps)) == list(range(steps[0], 1001))
    assert status["missing_steps"] == [[1, steps[0] - 1]]
    assert status["message"] == "The recording may take 0 MB: its oldest steps are given up for newer ones."
    # What a bound gives up was not dropped.
    assert bounded.dropped_rows == 0
    # Scalars are kept whole.
    assert steps_of(tmp_path, "scalars") == list(range(20, 1001, 20))
    bounded.close({"format": 2})
    assert parquet_of(tmp_path / "run", "tensors")["step"].to_pylist() == steps
    header = json.loads((tmp_path / "run" / "run.json").read_text())
    assert header["missing_steps"] == [[1, steps[0] - 1]]
    assert header["streams"]["tensors"]["first_step"] == steps[0]


def test_streams_give_up_the_same_steps(recorder, tmp_path):
    bounded = recorder(limit_bytes=LIMIT)
    record(bounded, (frame for step in range(1, 400) for frame in (tensors(step), moments(step))))
    firsts = [steps_of(tmp_path, stream)[0] for stream in ("tensors", "moments")]
    assert max(firsts) > 100
    # As far as whole segments can be equal.
    assert abs(firsts[0] - firsts[1]) <= 20
    assert bounded.status()["missing_steps"] == [[1, max(firsts) - 1]]


@pytest.mark.slow
def test_a_reader_of_statistics_that_grow_sees_that_old_ones_are_gone(recorder, tmp_path):
    bounded = recorder(limit_bytes=LIMIT)
    record(bounded, (moments(step) for step in range(1, 100)))
    rows = RecordedRows(tmp_path / "run")
    rows.refresh()
    (found,) = rows.stats().values()
    assert found.steps[0] == 1
    record(bounded, (moments(step) for step in range(100, 1500)))
    assert rows.refresh()
    steps = steps_of(tmp_path, "moments")
    (found,) = rows.stats().values()
    assert (found.steps[0], found.rows) == (steps[0], len(steps))
    rows.close()


@pytest.mark.slow
def test_a_disk_that_fails_meanwhile_costs_nothing_but_time(recorder, tmp_path, monkeypatch):
    bounded = recorder(limit_bytes=LIMIT)
    unlink, failures = Path.unlink, []

    def failing(path, **options):
        if path.parent.name == "tensors" and len(failures) < 3:
            failures.append(path)
            raise OSError(errno.EIO, "Input/output error")
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", failing)
    record(bounded, run_of(1, 1000))
    # The bound is kept after the row was written, and the disk may fail only then.
    until(lambda: len(failures) == 3 and bounded.state == "on")
    steps = steps_of(tmp_path)
    assert sorted(set(steps)) == list(range(steps[0], 1001))
    assert bounded.status()["missing_steps"] == [[1, steps[0] - 1]]
    assert bounded.status()["bytes"] <= LIMIT


@pytest.mark.slow
def test_a_hub_tells_its_viewers_the_size_and_the_bound(start_hub, tmp_path):
    hub = start_hub("--record", tmp_path / "runs", "--record-bytes", LIMIT, "--linger", 0.2)
    viewer, producer = hub.viewer(), hub.producer()
    for data in run_of(1, 1000):
        producer.send(data)
    viewer.wait_frames(50, "scalars")
    told = viewer.wait("status", lambda m: m["recording"].get("missing_steps"))
    assert told["recording"]["limit_bytes"] == LIMIT
    assert any("oldest steps are given up" in text for text in told["warnings"])
    producer.send({"type": "goodbye", "reason": "finished"})
    viewer.wait("status", lambda m: m["recording"]["state"] == "closed")
    run = open_run(hub.record)
    (missing,) = run.status["recording"]["missing_steps"]
    assert missing[0] == 1
    kept = run.table("tensors")["step"].to_pylist()
    assert min(kept) == missing[1] + 1
    assert max(kept) == 1000


def scores(step, layers=(1, 2)):
    """Rows of 16 kB that hardly become smaller in a file."""
    data = tensors(step, layers=layers, size=4096, flag="RawAttentionScore_mat_mul")
    table = decode_frame(data).table()
    values = np.random.default_rng(step).random(4096 * len(layers), np.float32)
    lists = pa.ListArray.from_arrays(np.arange(0, values.size + 1, 4096, np.int32), values)
    at = table.schema.get_field_index("values")
    return encode_frame("tensors", table.set_column(at, table.schema.field(at), lists), step=step)


@pytest.mark.slow
def test_values_go_before_rows_and_rows_keep_their_statistics(recorder, tmp_path):
    limit = 3_000_000
    bounded = recorder(limit_bytes=limit)
    frames = (frame for step in range(1, 201) for frame in (scores(step), tensors(step)))
    record(bounded, frames)
    bounded.close({"format": 2})
    status = bounded.status()
    assert status["bytes"] <= limit
    assert "missing_steps" not in status
    assert (
        status["message"]
        == "The recording may take 3 MB: values of its oldest tensors are given up for newer ones."
    )
    (said,) = bounded.totals()
    assert said.startswith("Large values of traced tensors of steps 1 to ")
    rows = parquet_of(tmp_path / "run", "tensors").to_pylist()
    # No row is missing, and none comes twice.
    assert len({(row["step"], row["layer"], row["flag"]) for row in rows}) == len(rows) == 800
    large = [row for row in rows if row["flag"] == "RawAttentionScore_mat_mul"]
    bare = [row for row in large if not row["values"]]
    first = max(row["step"] for row in bare) + 1
    assert {row["step"] for row in large if row["values"]} == set(range(first, 201))
    for row in rows:
        if row in bare:
            assert (row["shape"], row["compressor"]) == ([1, 1, 0], "Empty()")
        else:
            assert (row["shape"], row["compressor"]) == ([1, 1, len(row["values"])], "NoOp()")
        assert row["source_shape"] == [1, 1, 4096 if row in large else 8]


@pytest.mark.slow
def test_rows_without_values_do_not_fill_a_recording(recorder, tmp_path):
    bounded = recorder(limit_bytes=100_000)
    record(bounded, (scores(step) for step in range(1, 401)))
    bounded.close({"format": 2})
    status = bounded.status()
    assert status["bytes"] <= 100_000
    steps = steps_of(tmp_path)
    ((first, last),) = status["missing_steps"]
    assert first == 1
    assert sorted(set(steps)) == list(range(last + 1, 401))
    assert status["message"].endswith("its oldest steps are given up for newer ones.")


@pytest.mark.slow
def test_a_reader_of_tensors_sees_that_values_are_gone(recorder, tmp_path):
    bounded = recorder(limit_bytes=3_000_000)
    record(bounded, (scores(step) for step in range(1, 50)))
    folder = tmp_path / "run"
    known = RecordedStreams(folder, Streams(STREAMS.values()), False, KnownFiles())

    def lengths():
        batches = known.batches("tensors", Query(), ["step", "values"])
        return {row["step"]: len(row["values"]) for batch in batches for row in batch.to_pylist()}

    assert lengths()[1] == 4096
    assert [entry["steps"][0] for entry in known.tensor_index(lambda: None).index()] == [1]
    record(bounded, (scores(step) for step in range(50, 200)))
    bounded.close({"format": 2})
    found = lengths()
    assert (found[1], found[199]) == (0, 4096)
    assert [entry["steps"] for entry in known.tensor_index(lambda: None).index()] == [list(range(1, 200))]
