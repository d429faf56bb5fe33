"""Many messages read at once give the rows that Arrow's own reader gives."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from megalens.protocol import stream_schema
from megalens.runs import RunFolder
from megalens.runs import joined_messages as joined
from megalens.runs.query import Query

SCHEMA = stream_schema("tensors")


def batch(rng, kind, step):
    """Return rows of a step: of a kind they are alike in all but their numbers, of kind 3 each is unlike."""
    rows = (4, 2, 6, int(rng.integers(1, 9)))[kind]
    sizes = [int(rng.integers(0, 40)) if kind == 3 else 3 + kind * 7 for _ in range(rows)]
    said = {
        "step": [step] * rows if kind != 2 else [step, step + 1] * 3,
        "phase": ["train", "eval"][kind == 1],
        "pass": "forward",
        "layer": list(range(rows)),
        "flag": [("A", "BB", "A", "ü" * int(rng.integers(0, 5)))[kind]] * rows,
        "compressor": "NoOp()",
        "source_shape": [[1, size] for size in sizes],
        "shape": [[1, size] for size in sizes],
        "values": [rng.normal(size=size).astype(np.float32) for size in sizes],
        "labels": [["é"] * size if kind == 3 else [] for size in sizes],
        "mean": rng.normal(size=rows),
    }
    arrays = []
    for field in SCHEMA:
        column = said.get(field.name, "" if pa.types.is_string(field.type) else 0)
        arrays.append(
            pa.array(column if isinstance(column, list | np.ndarray) else [column] * rows, field.type)
        )
    return pa.record_batch(arrays, schema=SCHEMA)


def written(folder, kinds, seed, options=None):
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text('{"format": 2, "run": {"id": "run", "name": "run", "started": 1}}')
    rng = np.random.default_rng(seed)
    batches = [batch(rng, kind, step) for step, kind in enumerate(kinds, 1)]
    with pa.ipc.new_stream(str(folder / "tensors.arrows"), SCHEMA, options=options) as writer:
        for each in batches:
            writer.write_batch(each)
    return pa.Table.from_batches(batches, SCHEMA)


QUERIES = [
    Query(),
    Query(flag="A"),
    Query(flag="BB", first=3, last=9),
    Query(layers=((1, 2), (5, 5))),
    Query(first=4, last=4),
    Query.of(steps="2-4,7-8"),
    Query(where=(("compressor", "NoOp()"),), phase="train", layers=((0, 0),)),
    Query(measured=True),
]
COLUMNS = [None, ["step", "values"], ["labels"], ["mean", "flag"], ["step"]]


def agree(folder, table):
    read = RunFolder(folder)
    for query in QUERIES:
        for columns in COLUMNS:
            found = read.read("tensors", query, columns)
            whole = query.filter(table)
            assert found.equals(whole if columns is None else whole.select(columns)), (query, columns)
    assert read.truncated() == []


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(
    kinds=st.lists(st.integers(0, 3), max_size=40),
    seed=st.integers(0, 99),
    sizes=st.sampled_from([200, 5000, 1 << 24]),
)
def test_rows_are_those_of_arrow_whatever_messages_come_after_each_other(
    tmp_path_factory, kinds, seed, sizes
):
    folder = tmp_path_factory.mktemp("runs") / "run"
    table = written(folder, kinds, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(joined, "_PIECE_BYTES", sizes)
        agree(folder, table)
        patch.setattr(joined, "_LARGE_BYTES", 1000)
        agree(folder, table)


def test_batches_keep_their_rows_when_the_next_are_read(tmp_path, monkeypatch):
    table = written(tmp_path / "run", [0] * 30, 1)
    monkeypatch.setattr(joined, "_PIECE_BYTES", 1)
    batches = list(RunFolder(tmp_path / "run").batches("tensors", Query(flag="A")))
    assert len(batches) > 20
    assert pa.Table.from_batches(batches).equals(table)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_messages_are_read_by_arrow(tmp_path, codec):
    table = written(tmp_path / "run", [0, 1, 2, 3] * 3, 2, pa.ipc.IpcWriteOptions(compression=codec))
    agree(tmp_path / "run", table)


def test_damage_within_a_message_ends_the_reading_before_it(tmp_path):
    table = written(tmp_path / "run", [0] * 12, 3)
    path = tmp_path / "run" / "tensors.arrows"
    data = bytearray(path.read_bytes())
    at = [place for place in range(len(data)) if data.startswith(b"forward", place)]
    # The text of the seventh message is no UTF-8 any more.
    data[at[6 * 4] : at[6 * 4] + 2] = b"\xff\xff"
    path.write_bytes(data)
    read = RunFolder(tmp_path / "run")
    assert read.read("tensors").equals(table.slice(0, 24))
    assert read.truncated() == ["tensors"]


def test_nulls_are_left_to_arrow(tmp_path):
    table = written(tmp_path / "run", [0] * 6, 4)
    means = pa.array([None if place == 9 else 1.0 for place in range(table.num_rows)], pa.float64())
    table = table.set_column(table.schema.get_field_index("mean"), SCHEMA.field("mean"), means)
    with pa.ipc.new_stream(str(tmp_path / "run" / "tensors.arrows"), SCHEMA) as writer:
        writer.write_table(table.combine_chunks(), max_chunksize=4)
    assert (
        pc.sum(RunFolder(tmp_path / "run").read("tensors", columns=["mean"])["mean"].is_null()).as_py() == 1
    )
