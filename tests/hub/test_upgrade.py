"""Older recordings, rewritten as those of today are."""

import errno
import itertools
import os
import shutil
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_process import scalars, tensors
from hypothesis import given
from hypothesis import strategies as st
from recorded_files import file_names, parquet_of, recorded_table, segments_of

from megalens.__main__ import main
from megalens.hub import segment_file
from megalens.hub.resumed import upgrade_recording
from megalens.protocol import stream_schema

RECORDINGS = Path(__file__).parents[2] / "protocol/fixtures/recordings"


@pytest.fixture(params=["growing", "finished", "went-back"])
def old(request, tmp_path):
    return Path(shutil.copytree(RECORDINGS / request.param, tmp_path / "run"))


def sorted_rows(folder, stream):
    return sorted(map(repr, recorded_table(folder, stream).to_pylist()))


def test_every_row_is_in_one_segment(old, capsys):
    names = {"scalars", *(path.stem for path in old.glob("tensors.*"))}
    before = {name: sorted_rows(old, name) for name in names}
    aside = sorted_rows(old / "attempts/1", "scalars") if (old / "attempts").exists() else None
    assert main(["check", str(old), "--upgrade"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(names) + (aside is not None)
    assert said[0].startswith("tensors." if "tensors" in names else "scalars.")
    assert " is now " in said[0]
    for name in names:
        assert [each.suffix for each in segments_of(old, name)] == [".parquet"]
        assert file_names(old, name) == [segments_of(old, name)[0].name]
        assert sorted_rows(old, name) == before[name]
    assert not [path for path in old.rglob("*") if path.suffix in (".index", ".arrows", ".partial")]
    if aside is not None:
        assert sorted_rows(old / "attempts/1", "scalars") == aside
    assert main(["check", str(old), "--upgrade"]) == 0
    assert capsys.readouterr().out == "Every file is as it should be.\n"


def write_old(folder, steps, rows_a_group):
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    schema = stream_schema("scalars")
    rows = [
        {"step": step, "time": float(count), "rank": 0, "name": "loss", "value": 1.0, "unit": ""}
        for count, step in enumerate(steps)
    ]
    pq.write_table(
        pa.Table.from_pylist(rows, schema), folder / "scalars.parquet", row_group_size=rows_a_group
    )
    return folder


def test_rows_that_came_late_are_put_in_order(tmp_path):
    steps = [1, 2, 3, 2, 5, 4, 3, 6, 6, 7, 1, 9, 8, 7]
    folder = write_old(tmp_path / "run", steps, 3)
    assert list(upgrade_recording(folder)) == [
        "scalars.parquet is now scalars/000000-step-1.parquet.",
    ]
    table = pq.read_table(segments_of(folder, "scalars"))
    assert table["step"].to_pylist() == sorted(steps)
    assert table["time"].to_pylist() == sorted(range(len(steps)), key=lambda at: steps[at])


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=12),
    st.integers(1, 200),
)
def test_pieces_are_put_in_order_in_memory_of_a_few(pieces, together):
    rows = [(step, at) for at, step in enumerate(step for piece in pieces for step in piece)]
    tables, read = [], []
    for piece in pieces:
        part, rows_left = rows[: len(piece)], rows[len(piece) :]
        tables.append(pa.table({"step": [step for step, _ in part], "at": [at for _, at in part]}))
        rows = rows_left

    def take(at):
        read.append(at)
        return tables[at]

    with mock.patch.object(segment_file, "_TOGETHER_BYTES", together):
        made = []
        for table in segment_file.in_order([min(piece) for piece in pieces], take):
            made.append(table)
            # What is complete waits for nothing that was not read.
            later = [step for piece in pieces[len(read) :] for step in piece]
            assert not later or max(table["step"].to_pylist()) < min(later)
    expected = sorted((row for table in tables for row in table.to_pylist()), key=lambda row: row["step"])
    assert [row for table in made for row in table.to_pylist()] == expected
    steps = [set(table["step"].to_pylist()) for table in made]
    assert not any(one & other for one, other in itertools.combinations(steps, 2))
    assert read == list(range(len(pieces)))


def test_a_piece_a_step_is_no_more_work_for_each_than_a_few():
    # Work that grew with the square of the pieces would be ended by the time limit of a test.
    pieces = [pa.table({"step": [step]}) for step in range(20_000)]
    made = list(segment_file.in_order(range(len(pieces)), pieces.__getitem__))
    assert [step for table in made for step in table["step"].to_pylist()] == list(range(len(pieces)))


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    folder = write_old(tmp_path / "run", [1, 2, 3], 2)

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert list(upgrade_recording(folder)) == ["scalars.parquet stays as it is: No space left on device."]
    assert (folder / "scalars.parquet").exists()
    assert file_names(folder, "scalars") == []
    list(upgrade_recording(folder))
    assert recorded_table(folder, "scalars")["step"].to_pylist() == [1, 2, 3]


def test_the_tail_of_a_hub_that_was_killed_is_sealed_and_a_live_one_refused(start_hub, tmp_path, capsys):
    hub = start_hub("--record", tmp_path)
    producer = hub.producer()
    viewer = hub.viewer()
    for step in (1, 2, 3):
        producer.send(tensors(step))
        producer.send(scalars(step))
    viewer.wait_frames(3, "scalars")
    assert main(["check", str(hub.record), "--upgrade"]) == 2
    assert "The run is live" in capsys.readouterr().err
    while not file_names(hub.record, "scalars") or recorded_table(hub.record, "scalars").num_rows < 3:
        pass
    hub.process.kill()
    hub.process.wait()
    assert main(["check", str(hub.record), "--upgrade"]) == 0
    assert file_names(hub.record, "scalars") == ["000000-step-1.parquet"]
    assert file_names(hub.record, "tensors") == ["000000-step-1.parquet"]
    assert parquet_of(hub.record, "scalars")["step"].to_pylist() == [1, 2, 3]


def test_what_is_no_recording_is_said(tmp_path, capsys):
    assert main(["check", str(tmp_path), "--upgrade"]) == 2
    assert "has no run.json" in capsys.readouterr().err
