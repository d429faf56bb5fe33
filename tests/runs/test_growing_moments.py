"""A recording of statistics that grows: only the first message of each kind is read by Arrow, and every message says what Arrow says of it."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from grouped_moments import row

from megalens.protocol import stream_schema
from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows
from megalens.runs.moments.rows import growing_rows

SCHEMA = stream_schema("moments")
PLAIN = pa.ipc.IpcWriteOptions()
PACKED = pa.ipc.IpcWriteOptions(compression="lz4")


def message(step, names, stats=("grad", "param"), **columns):
    rows = [
        row(name, step, stat, mean=step + place / 8) for stat in stats for place, name in enumerate(names)
    ]
    table = pa.Table.from_pylist([{**one, **columns} for one in rows], schema=SCHEMA)
    return table.combine_chunks().to_batches()[0]


def written(path, batches, options=PLAIN):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return path


def opened(folder):
    source = MomentSource(RecordedRows(folder))
    source.refresh()
    return source


def rows_of(source, stats=("grad", "param"), **asked):
    names = source.index()["names"]
    rows = source.rows(stats, **asked).to_pylist()
    return [{"name": names[one.pop("name_id")], **one} for one in rows]


def reads(monkeypatch):
    found = []
    read = growing_rows.read_batch
    monkeypatch.setattr(growing_rows, "read_batch", lambda *asked: found.append(1) or read(*asked))
    return found


NAMES = ["layers.0.weight", "layers.1.weight"]
OTHERS = ["layers.2.weight", "layers.3.weight"]
MANY = {
    "one kind of message": [message(step, NAMES) for step in range(1, 9)],
    "names of the same length": [
        message(step, names, rank=rank) for step in range(1, 6) for rank, names in enumerate((NAMES, OTHERS))
    ],
    "some steps with more": [
        message(step, NAMES, ("grad", "param")[: 1 + (step % 3 == 0)], gradient_stage="pre_clip")
        for step in range(1, 9)
    ],
    "steps that come late, several in a message": [
        message(4, NAMES),
        pa.Table.from_batches([message(step, OTHERS) for step in (2, 3)]).combine_chunks().to_batches()[0],
        message(1, NAMES, gradient_stage="post_clip", nan_count=3.0),
        message(5, NAMES, mean=float("nan"), max=float("inf")),
    ],
}


@pytest.mark.parametrize("options", [PLAIN, PACKED], ids=["plain", "compressed"])
@pytest.mark.parametrize("batches", MANY.values(), ids=MANY)
def test_rows_are_those_that_arrow_reads(tmp_path, batches, options):
    path = written(tmp_path / "moments.arrows", batches, options)
    with pa.OSFile(str(path), "rb") as file:
        wanted = pa.ipc.open_stream(file).read_all().to_pylist()
    wanted.sort(key=lambda one: one["step"])
    found = rows_of(opened(tmp_path))
    assert str(found) == str([{"name": one["name"], **one} for one in wanted])


def test_arrow_reads_one_message_of_each_kind(tmp_path, monkeypatch):
    calls = reads(monkeypatch)
    batches = [message(step, names) for step in range(1, 101) for names in (NAMES, OTHERS)]
    written(tmp_path / "moments.arrows", batches)
    source = opened(tmp_path)
    assert len(calls) == 2
    source.groups(MomentQuery.of("grad", by=["layer"]))
    assert [(one["rows"], one["last"]) for one in source.index()["stats"]] == [(400, 100), (400, 100)]
    assert len(rows_of(source, ["param"], steps=(90, None))) == 4 * 11
    assert len(calls) == 2


def test_more_kinds_than_are_remembered_are_read_too(tmp_path):
    count = 3 * growing_rows.MOST_LAYOUTS
    written(
        tmp_path / "moments.arrows",
        [message(step, [f"layers.{step % count:04}.weight"]) for step in range(2 * count)],
    )
    source = opened(tmp_path)
    assert len(source.index()["names"]) == count
    assert [one["mean"] for one in rows_of(source, ["param"])] == list(range(2 * count))


def test_bytes_that_change_under_a_reader_are_read_as_they_are_then_or_refused(tmp_path):
    path = written(tmp_path / "moments.arrows", MANY["one kind of message"])
    source = opened(tmp_path)
    whole = path.read_bytes()
    # Other names of the same length: no kind that is known any more.
    path.write_bytes(whole.replace(b"layers.1.weight", b"layers.7.weight"))
    found = source.rows(["grad"])
    assert found.num_rows == 8
    assert set(found["mean"].to_pylist()) == {float(step) for step in range(1, 9)}
    schema = len(SCHEMA.serialize())
    for damaged in (
        whole.replace(b"layers.1.weight", b"layers.\xff.weight"),
        whole[:schema] + bytes(len(whole) - schema),
        whole[: schema + 8] + b"\xff" * (len(whole) - schema - 8),
        whole[: schema + 100],
    ):
        path.write_bytes(damaged)
        for ask in (lambda: source.rows(["grad"]), lambda: source.groups(MomentQuery.of("grad"))):
            with pytest.raises(ClientError, match="changed or went") as caught:
                ask()
            assert caught.value.code == "unreadable"


def test_a_message_that_is_not_whole_is_read_when_it_is(tmp_path):
    whole = written(tmp_path / "whole", MANY["one kind of message"]).read_bytes()
    path = tmp_path / "moments.arrows"
    source = MomentSource(RecordedRows(tmp_path))
    seen = []
    for end in [*range(0, len(whole), 301), len(whole)]:
        path.write_bytes(whole[:end])
        source.refresh()
        rows = sum(one["rows"] for one in source.index()["stats"])
        seen.append(rows)
    assert seen == sorted(seen)
    assert set(np.diff(seen)) <= {0, 4}
    assert seen[-1] == 32
    assert source.warnings == []


@pytest.mark.slow
def test_questions_about_a_growing_recording_need_no_duckdb(tmp_path):
    written(tmp_path / "moments.arrows", MANY["one kind of message"])
    program = """
import sys
from pathlib import Path
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows, load_libraries
load_libraries()
source = MomentSource(RecordedRows(Path(sys.argv[1])))
source.refresh()
source.index()
source.groups(MomentQuery.of_members({"stat": "grad", "by": ["layer"], "points": 5}))
source.rows(["grad"])
print("duckdb" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.split() == ["False"]
