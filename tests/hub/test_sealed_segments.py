"""What a sealed segment is, and that its rows are in exactly one file at every moment of its making."""

import errno
import os
import signal
import subprocess
import sys
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_process import ROOT, WAIT
from recorded_files import file_names, recorded_table

from megalens.hub.options import HubError
from megalens.hub.resumed import set_aside
from megalens.hub.segment_file import clear_leftovers, seal_tail
from megalens.protocol import STREAMS, stream_schema, stream_segments

SCALARS = STREAMS["scalars"]
# A function of os that sealing calls, and at which of its calls the sealer is killed.
MOMENTS = [("fsync", 1), ("fsync", 2), ("replace", 1), ("unlink", 2)]


def tail_of(folder, steps, stream="scalars"):
    """Write a tail with a row a message, of these steps; ``time`` counts the rows."""
    place = folder / stream
    place.mkdir(parents=True, exist_ok=True)
    tail = place / f"000000-step-{steps[0]}.arrows"
    with pa.ipc.new_stream(str(tail), stream_schema(stream)) as writer:
        for count, step in enumerate(steps):
            row = {"step": step, "time": float(count), "rank": 0, "name": "loss", "value": 1.0, "unit": ""}
            writer.write_batch(pa.RecordBatch.from_pylist([row], stream_schema(stream)))
    # A tail has no mark at its end.
    tail.write_bytes(tail.read_bytes()[:-8])
    return tail


def test_rows_are_sorted_by_step_and_keep_their_order_within_one(tmp_path):
    segment = seal_tail(tail_of(tmp_path, [3, 1, 3, 2, 1]), SCALARS, rows=5)
    assert file_names(tmp_path, "scalars") == [segment.name] == ["000000-step-3.parquet"]
    table = pq.read_table(segment)
    assert table["step"].to_pylist() == [1, 1, 2, 3, 3]
    assert table["time"].to_pylist() == [1.0, 4.0, 3.0, 0.0, 2.0]
    assert table.schema.equals(SCALARS.schema)


@pytest.mark.parametrize(
    ("steps", "groups"),
    [
        ([1, 1, 2, 2, 3, 3, 4], [[1, 1, 2, 2], [3, 3, 4]]),
        ([1, 2, 2, 2, 3, 3, 4, 4], [[1, 2, 2, 2], [3, 3, 4, 4]]),
        ([1, 2, 2, 2, 2, 3], [[1], [2, 2, 2, 2], [3]]),
        # One step alone is more than a group may have.
        ([1, *[2] * 6, 3], [[1], [2] * 4, [2] * 2, [3]]),
        ([5] * 9, [[5] * 4, [5] * 4, [5]]),
    ],
)
def test_row_groups_hold_whole_steps(tmp_path, steps, groups):
    small = replace(SCALARS, policy=replace(SCALARS.policy, group_rows=4))
    file = pq.ParquetFile(seal_tail(tail_of(tmp_path, steps), small))
    found = [file.read_row_group(each)["step"].to_pylist() for each in range(file.num_row_groups)]
    assert found == groups
    for each in range(file.num_row_groups):
        statistics = file.metadata.row_group(each).column(0).statistics
        assert (statistics.min, statistics.max) == (groups[each][0], groups[each][-1])


def test_row_groups_are_bounded_in_bytes_too(tmp_path):
    small = replace(SCALARS, policy=replace(SCALARS.policy, group_bytes=200))
    file = pq.ParquetFile(seal_tail(tail_of(tmp_path, list(range(40))), small))
    # A row of a loss has 40.
    assert file.num_row_groups == 8


def test_a_tail_that_was_cut_is_sealed_up_to_its_last_whole_message(tmp_path):
    tail = tail_of(tmp_path, [1, 2, 3])
    tail.write_bytes(tail.read_bytes()[:-20])
    with pytest.raises(HubError, match=r"is damaged: 2 of its 3 rows can be read"):
        seal_tail(tail, SCALARS, rows=3)
    assert file_names(tmp_path, "scalars") == [tail.name]
    assert pq.read_table(seal_tail(tail, SCALARS))["step"].to_pylist() == [1, 2]


def test_a_tail_that_is_damaged_in_the_middle_stays(tmp_path):
    tail = tail_of(tmp_path, list(range(100)))
    data = bytearray(tail.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = bytes([255]) * 400
    tail.write_bytes(data)
    with pytest.raises(HubError, match="is damaged"):
        seal_tail(tail, SCALARS)
    assert file_names(tmp_path, "scalars") == [tail.name]


def test_another_file_in_the_place_of_a_tail_is_left_alone(tmp_path):
    tail = tail_of(tmp_path, [1, 2])
    with pytest.raises(HubError, match="is another file by now"):
        seal_tail(tail, SCALARS, identity=(0, 0))
    assert file_names(tmp_path, "scalars") == [tail.name]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_tail_as_it_was(tmp_path, monkeypatch, call):
    tail = tail_of(tmp_path, [1, 2])
    before = tail.read_bytes()

    def full(*given, **named):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, call, full)
        with pytest.raises(OSError, match="No space left"):
            seal_tail(tail, SCALARS)
    assert file_names(tmp_path, "scalars") == [tail.name]
    assert tail.read_bytes() == before
    assert pq.read_table(seal_tail(tail, SCALARS)).num_rows == 2


KILLED = """
import os, signal, sys
from pathlib import Path
from megalens.hub.resumed import set_aside
from megalens.hub.segment_file import seal_tail
from megalens.protocol import STREAMS
name, left = sys.argv[2], int(sys.argv[3])
real = getattr(os, name)
def last(*given, **named):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*given, **named)
setattr(os, name, last)
seal_tail(Path(sys.argv[1]), STREAMS["scalars"])
"""


@pytest.mark.parametrize(("call", "count"), MOMENTS)
def test_a_sealer_that_is_killed_loses_no_row_and_duplicates_none(tmp_path, call, count):
    tail = tail_of(tmp_path, [1, 2, 2, 3])
    done = subprocess.run([sys.executable, "-c", KILLED, tail, call, str(count)], cwd=ROOT, timeout=WAIT)
    assert done.returncode == -signal.SIGKILL
    left = file_names(tmp_path, "scalars")
    assert len(left) == 2
    assert recorded_table(tmp_path, "scalars")["time"].to_pylist() == [0.0, 1.0, 2.0, 3.0]
    clear_leftovers(tmp_path, "scalars")
    (segment,) = stream_segments(tmp_path, "scalars")
    assert file_names(tmp_path, "scalars") == [segment.path.name]
    # Whoever seals it again has the same rows.
    again = seal_tail(tail, SCALARS)
    assert file_names(tmp_path, "scalars") == [again.name]
    assert pq.read_table(again)["time"].to_pylist() == [0.0, 1.0, 2.0, 3.0]


def test_a_recording_that_goes_on_sets_whole_folders_aside(tmp_path):
    header = {"format": 2, "run": {"id": "one", "name": "", "started": "2026-11-27T10:00:00Z"}}
    tail = tail_of(tmp_path, [1, 2])
    segment = seal_tail(tail, SCALARS)
    tail_of(tmp_path, [1, 2])
    (segment.parent / "000001-step-3.parquet.partial").write_bytes(b"half")
    (tmp_path / "mine").mkdir()
    set_aside(tmp_path, header, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["attempts", "mine"]
    assert file_names(tmp_path / "attempts/1", "scalars") == [segment.name]
