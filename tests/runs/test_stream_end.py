"""Where a recorded stream ends: the same answer as from reading all of it."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recorded_moments import moment_table
from recorded_run import write_run

from megalens.protocol import stream_schema
from megalens.runs import ClientError, RunFolder


@pytest.fixture
def folder(tmp_path):
    folder = write_run(tmp_path / "run", steps=3, layers=1)
    header = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**header, "ended": None, "streams": {}}))
    pq.write_table(moment_table(range(1, 4)).cast(stream_schema("moments")), folder / "moments.parquet")
    return folder


def alone(folder):
    """Leave nothing but the scalars, and return their file."""
    for stream in ("tensors", "moments", "audit"):
        (folder / f"{stream}.parquet").unlink()
    return folder / "scalars.parquet"


def messages(table, stream):
    """Return the schema's message and one for each of three pieces of the rows."""
    schema = stream_schema(stream)
    size = -(-table.num_rows // 3)
    pieces = [table.slice(at, size).cast(schema).combine_chunks() for at in range(0, table.num_rows, size)]
    batches = [batch for piece in pieces for batch in piece.to_batches()]
    return [bytes(schema.serialize()), *(bytes(batch.serialize()) for batch in batches)]


def as_read(folder, stream):
    """Return what reading every row tells of the end."""
    read = RunFolder(folder)
    steps = [batch.column(0).to_pylist()[-1] for batch in read.batches(stream, columns=["step"])]
    return stream in read.truncated(), max(steps, default=0)


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["scalars", "tensors", "moments", "audit"])
def test_a_stream_cut_at_any_byte_ends_where_reading_it_ends(folder, stream):
    parts = messages(pq.read_table(folder / f"{stream}.parquet"), stream)
    for other in folder.glob("*.parquet"):
        other.unlink()
    data, file = b"".join(parts), folder / f"{stream}.arrows"
    ends = np.cumsum([len(part) for part in parts]).tolist()
    near = {end + off for end in ends for off in (*range(-9, 17), 40, 200) if 0 <= end + off <= len(data)}
    for cut in sorted({*range(0, 24), *near, *range(0, len(data), max(1, len(data) // 40))}):
        file.write_bytes(data[:cut])
        looked = RunFolder(folder)
        found = stream in looked.truncated(), looked.status()["step"]
        truncated, step = as_read(folder, stream)
        assert found == (truncated, 0 if stream == "audit" else step), cut
        assert truncated == (cut not in ends), cut


def test_a_last_message_that_has_its_length_and_not_its_content_is_cut(folder):
    table = pq.read_table(folder / "tensors.parquet")
    (folder / "tensors.parquet").unlink()
    parts = messages(table, "tensors")
    # What a machine that lost its power may leave: the file's length is on the disk, the end of its content is not.
    spoiled = parts[3][: len(parts[3]) // 2] + b"\xee" * (len(parts[3]) - len(parts[3]) // 2)
    (folder / "tensors.arrows").write_bytes(b"".join([*parts[:3], spoiled]))
    looked = RunFolder(folder)
    assert looked.truncated() == ["tensors"] == [name for name in ("tensors",) if as_read(folder, name)[0]]
    assert looked.newest_step("tensors") == as_read(folder, "tensors")[1]


def test_of_parquet_only_the_footer_is_read(folder):
    path = alone(folder)
    footer = struct.unpack("<I", path.read_bytes()[-8:-4])[0]
    data = path.read_bytes()
    path.write_bytes(b"\xff" * (len(data) - footer - 8) + data[-footer - 8 :])
    looked = RunFolder(folder)
    assert (looked.truncated(), looked.status()["step"]) == ([], 3)
    with pytest.raises(ClientError, match="scalars"):
        looked.read("scalars")


def test_parquet_without_figures_of_its_steps_is_read(folder):
    path = alone(folder)
    pq.write_table(pq.read_table(path), path, write_statistics=False)
    assert RunFolder(folder).newest_step("scalars") == 3


def test_compressed_messages_are_read_as_before(folder):
    path = alone(folder)
    table = pq.read_table(path).cast(stream_schema("scalars"))
    path.unlink()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(str(folder / "scalars.arrows"), table.schema, options=options) as writer:
        writer.write_table(table)
    looked = RunFolder(folder)
    assert (looked.truncated(), looked.status()["step"]) == ([], 3)


def test_other_columns_are_refused_as_in_reading(folder):
    for name, write in (("scalars.parquet", pq.write_table), ("tensors.arrows", _as_arrows)):
        (folder / name).with_suffix(".parquet").unlink()
        write(pa.table({"step": [1], "other": [2]}), folder / name)
        stream = name.split(".")[0]
        told = []
        for look in (lambda run: run.truncated(), lambda run, stream=stream: run.read(stream)):
            with pytest.raises(ClientError, match="columns") as caught:
                look(RunFolder(folder))
            told.append(caught.value.message)
        assert told[0] == told[1]
        (folder / name).unlink()


def _as_arrows(table, path):
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)
