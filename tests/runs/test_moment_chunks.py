"""Large recordings are read a chunk of whole steps at a time: the answers are those of rows in memory."""

import dataclasses
import math
import socket
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from megalens.hub.segment_file import seal_tail
from megalens.protocol import MOMENT_INDEX, MOMENT_SAME, STREAMS, MomentIndex, stream_schema
from megalens.runs import ClientError
from megalens.runs.moments import MomentQuery, MomentSource, RecordedRows, TableRows
from megalens.runs.moments.rows.packed_chunks import PackedChunks

QUERIES = [
    {"by": ["layer"]},
    {"by": ["name"], "statistic": "kurtosis", "points": 8, "series": 3},
    {"by": []},
    {"by": ["stage", "role"], "stat": "activation", "where": {"rank": "0-1"}},
    {"by": ["rank"], "stat": "activation", "mixed": True, "where": {"stage": []}},
    {"by": ["layer"], "first": 5, "last": 23},
    {"by": ["layer"], "first": 4000},
    {"by": ["layer"], "ratio": "grad_to_param", "points": 12},
    {"by": ["layer"], "stat": "activation", "ratio": "gain"},
    {"by": ["layer"], "where": {"name": "nothing"}},
    {"by": ["layer"], "where": {"name": "nothing"}, "show": "relative", "smoothing": 3},
    {"by": ["layer"], "show": "percent", "smoothing": 4, "first": 9, "points": 8, "series": 2},
    {"by": ["layer"], "stat": "dgrad"},
]


def rows_of_a_run(steps=40):
    """Grad at every step, param at every second, activations at every third; stages and ranks that differ, and one far step."""
    rng = np.random.default_rng(3)
    rows = []
    for step in [*range(1, steps), 5000]:
        for stat, every in (("grad", 1), ("param", 2), ("activation", 3)):
            if step % every:
                continue
            for layer in range(4):
                ends = [f"/{role}0" for role in ("input", "output")] if stat == "activation" else [""]
                for end in ends:
                    count = float(rng.integers(0, 5))
                    rows.append(
                        {
                            "step": step,
                            "samples": 8 * step,
                            "stat": stat,
                            "name": f"decoder.layers.{layer}.mlp.linear_fc{1 + layer % 2}{end or '.weight'}",
                            "rank": layer % 3 - 1,
                            "stage": layer // 2,
                            "count": count,
                            "mean": rng.normal(),
                            "m2": count * rng.uniform(),
                            "m3": rng.normal(),
                            "m4": count * rng.uniform(1, 2),
                            "min": -3.0,
                            "max": 3.0,
                            "nan_count": float(rng.random() < 0.05),
                            "inf_count": 0.0,
                            **STREAMS["moments"].absent,
                            "rounding": 0.0,
                            "gradient_stage": "pre_clip" if stat == "grad" else "",
                            "loss_scale": 1.0,
                        }
                    )
    return pa.Table.from_pylist(rows, schema=stream_schema("moments"))


def in_memory_rows(table):
    held = TableRows()
    held.append(table)
    return held


def in_memory(table):
    return MomentSource(in_memory_rows(table))


def packed(folder, table, rows_a_group, stream=STREAMS["moments"]):
    with (
        pa.OSFile(str(folder / "moments.arrows"), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as writer,
    ):
        for batch in table.to_batches(rows_a_group):
            writer.write_batch(batch)
    seal_tail(folder / "moments.arrows", stream)
    source = MomentSource(RecordedRows(folder))
    source.refresh()
    return source


@pytest.fixture(scope="module")
def small_groups(tmp_path_factory):
    """The run, and a packed recording of it whose row groups are smaller than a step."""
    table, folder = rows_of_a_run(), tmp_path_factory.mktemp("packed")
    declared = STREAMS["moments"]
    policy = dataclasses.replace(declared.policy, group_rows=7)
    packed(folder, table, 7, dataclasses.replace(declared, policy=policy)).close()
    return table, folder


def same(one, other):
    assert (one.keys, one.groups_total, one.steps_total) == (
        other.keys,
        other.groups_total,
        other.steps_total,
    )
    assert one.table.schema == other.table.schema
    for name in one.table.column_names:
        left, right = one.table[name].to_numpy(), other.table[name].to_numpy()
        if left.dtype == np.float64:
            np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-14, equal_nan=True, err_msg=name)
        else:
            np.testing.assert_array_equal(left, right, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("query", QUERIES, ids=str)
@pytest.mark.parametrize("lean", [False, True])
def test_steps_that_lie_in_several_row_groups_are_merged_whole(query, lean, small_groups, monkeypatch):
    table, folder = small_groups
    expected = (
        MomentQuery.of_members({"stat": "grad", **query})
        if lean
        else MomentQuery.of(**{"stat": "grad", **query})
    )
    memory = in_memory(table)
    wanted = memory.groups(expected)
    assert PackedChunks(folder / "moments.parquet").ordered
    for chunk_rows, piece in ((1, 1), (40, 30), (1_000_000, 25), (1_000_000, 3)):
        monkeypatch.setattr("megalens.runs.moments.grouping.cells._PIECE_ROWS", piece)
        monkeypatch.setattr("megalens.runs.moments.rows.packed_chunks._CHUNK_ROWS", chunk_rows)
        source = MomentSource(RecordedRows(folder))
        source.refresh()
        same(source.groups(expected), wanted)
        monkeypatch.setattr("megalens.runs.moments.rows.duck._CHUNK_ROWS", chunk_rows)
        same(memory.groups(expected), wanted)


def test_rows_that_are_not_in_the_order_of_their_steps_are_answered_the_same(tmp_path):
    table = rows_of_a_run()
    mixed = table.take(np.random.default_rng(0).permutation(table.num_rows))
    pq.write_table(mixed, tmp_path / "moments.parquet", row_group_size=16)
    source = MomentSource(RecordedRows(tmp_path))
    source.refresh()
    assert not PackedChunks(tmp_path / "moments.parquet").ordered
    query = MomentQuery.of("grad", by=["layer"])
    same(source.groups(query), in_memory(table).groups(query))


def test_rows_that_are_out_of_order_only_within_their_row_groups_are_read_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("megalens.runs.moments.rows.packed_chunks._CHUNK_ROWS", 10)
    table = rows_of_a_run()
    # Row groups of half of the rows each, of which one step has rows in both.
    order = np.concatenate(
        [np.random.default_rng(0).permutation(half) for half in np.array_split(np.arange(344), 2)]
    )
    assert table.num_rows == 344
    pq.write_table(table.take(order), tmp_path / "moments.parquet", row_group_size=172)
    source = MomentSource(RecordedRows(tmp_path))
    source.refresh()
    assert PackedChunks(tmp_path / "moments.parquet").ordered
    query = MomentQuery.of("grad", by=["layer"])
    same(source.groups(query), in_memory(table).groups(query))


@pytest.mark.parametrize("dictionary", [True, False])
def test_recordings_whose_columns_may_have_nulls_as_all_once_had_are_answered_the_same(dictionary, tmp_path):
    table = rows_of_a_run()
    index = MomentIndex()
    with pq.ParquetWriter(
        tmp_path / "moments.parquet", table.schema, compression="zstd", use_dictionary=dictionary
    ) as writer:
        for batch in table.to_batches(50):
            writer.write_batch(batch)
            index.add(batch)
        writer.add_key_value_metadata({MOMENT_INDEX: index.text()})
    source = MomentSource(RecordedRows(tmp_path))
    source.refresh()
    for members in QUERIES:
        query = MomentQuery.of(**{"stat": "grad", **members})
        same(source.groups(query), in_memory(table).groups(query))


def test_a_recording_that_goes_while_it_is_read_says_so(tmp_path):
    source = packed(tmp_path, rows_of_a_run(), 16)
    (tmp_path / "moments.parquet").unlink()
    with pytest.raises(ClientError, match="changed or went while they were read") as gone:
        source.groups(MomentQuery.of("grad"))
    assert gone.value.code == "unreadable"


def test_a_question_on_a_packed_recording_can_be_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("megalens.runs.moments.rows.packed_chunks._CHUNK_ROWS", 10)
    source = packed(tmp_path, rows_of_a_run(), 16)
    read, places = [], source._rows.chunks

    def chunks(*arguments):
        for chunk in places(*arguments):
            read.append(len(chunk["step"]))
            if len(read) == 3:
                source.interrupt()
            yield chunk

    monkeypatch.setattr(source._rows, "chunks", chunks)
    with pytest.raises(ClientError, match="given up") as stopped:
        source.groups(MomentQuery.of("grad", by=["layer"]))
    assert stopped.value.code == "cancelled"
    assert 3 <= len(read) < 10
    monkeypatch.undo()
    # Who asks next is answered.
    assert source.groups(MomentQuery.of("grad", by=["layer"])).steps_total == 40
    source.interrupt()
    assert source.groups(MomentQuery.of("grad", by=["layer"])).steps_total == 40


def test_the_index_in_the_footer_is_what_the_rows_say(tmp_path):
    table = rows_of_a_run()
    with_index = packed(tmp_path, table, 16)
    without = tmp_path / "without"
    without.mkdir()
    pq.write_table(table, without / "moments.parquet")
    asked = MomentSource(RecordedRows(without))
    asked.refresh()
    found, wanted = with_index.index(), asked.index()
    assert pq.read_metadata(tmp_path / "moments.parquet").metadata[MOMENT_INDEX]
    assert {**found, "version": ""} == {**wanted, "version": ""}
    assert found["samples"]
    assert [(one["stat"], one["rows"], one["last"], one["steps"]) for one in found["stats"]] == [
        ("param", 80, 5000, 20),
        ("grad", 160, 5000, 40),
        ("activation", 104, 39, 13),
    ]


def test_what_is_the_same_in_all_rows_of_a_stat_is_said_in_the_footer_and_not_read(tmp_path):
    table = rows_of_a_run()
    packed(tmp_path, table, 16)
    said = pq.read_metadata(tmp_path / "moments.parquet").metadata
    scales = {"inf_count": 0.0, "rounding": 0.0, "loss_scale": 1.0}
    assert MomentIndex.read_same(said) == dict.fromkeys(("param", "grad", "activation"), scales)
    # Were it read, it would be these.
    other = tmp_path / "other"
    other.mkdir()
    changed = table.set_column(
        table.schema.get_field_index("inf_count"), "inf_count", pa.array(np.full(len(table), 7.0))
    )
    with pq.ParquetWriter(other / "moments.parquet", changed.schema) as writer:
        writer.write_table(changed.cast(table.schema))
        writer.add_key_value_metadata({MOMENT_SAME: said[MOMENT_SAME]})
    source = MomentSource(RecordedRows(other))
    source.refresh()
    for members in ({"stat": "grad", "by": ["layer"]}, {"stat": "grad", "by": [], "ratio": "grad_to_param"}):
        assert set(source.groups(MomentQuery.of(**members)).table["inf_count"].to_pylist()) == {0.0}


def test_nothing_is_taken_for_the_same_that_is_not_known_or_differs():
    table = rows_of_a_run(12).to_pylist()
    for row in table:
        row["loss_scale"] = math.nan if row["stat"] == "grad" else 2.0
        row["rounding"] = math.inf if row["stat"] == "param" else 0.0
    table[-1]["inf_count"] = 1.0
    index = MomentIndex()
    for batch in pa.Table.from_pylist(table, schema=stream_schema("moments")).to_batches(5):
        index.add(batch)
    same = MomentIndex.read_same({MOMENT_SAME: index.same_text()})
    assert table[-1]["stat"] == "param"
    assert same["param"] == {"loss_scale": 2.0}
    assert same["grad"].keys() - {"nan_count"} == {"inf_count", "rounding"}


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"7", b'{"grad": 1}', b'{"grad": {"nan_count": "x"}}', b'{"grad": null}']
)
def test_a_footer_that_says_it_wrongly_says_nothing(text):
    assert MomentIndex.read_same({MOMENT_SAME: text}) == {}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b'{"version": 2}',
        b'{"version": 1, "samples": 1, "stats": []}',
        b'{"version": 1, "samples": true, "stats": [{"stat": "weights", "rows": 1, "first": 1, "last": 1, "steps": 1, "names": []}]}',
        b'{"version": 1, "samples": true, "stats": [{"stat": "grad", "rows": "1", "first": 1, "last": 1, "steps": 1, "names": []}]}',
        b'{"version": 1, "samples": true, "stats": [{"stat": "grad", "rows": 1, "first": 1, "last": 1, "steps": 1, "names": [1]}]}',
    ],
)
def test_an_index_that_cannot_be_read_is_found_anew(text, tmp_path):
    assert MomentIndex.read({MOMENT_INDEX: text}) is None
    table = rows_of_a_run(4)
    with pq.ParquetWriter(tmp_path / "moments.parquet", table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({MOMENT_INDEX: text})
    source = MomentSource(RecordedRows(tmp_path))
    source.refresh()
    assert source.names("grad") == [
        f"decoder.layers.{at}.mlp.linear_fc{1 + at % 2}.weight" for at in range(4)
    ]


def test_of_many_rows_that_arrive_the_older_lie_in_files_until_they_are_let_go(tmp_path, monkeypatch):
    monkeypatch.setenv("MEGALENS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("megalens.runs.moments.rows.table_rows._HELD_ROWS", 50)
    spill = tmp_path / "moments" / "spill"
    spill.mkdir(parents=True)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (spill / f"{socket.gethostname()}-{gone.pid}-0.parquet").touch()
    (spill / f"elsewhere-{gone.pid}-0.parquet").touch()
    table = rows_of_a_run()
    held = TableRows()
    for start in range(0, table.num_rows, 20):
        held.append(table.slice(start, 20))
    files = sorted(path.name for path in spill.iterdir())
    assert len(files) == 6
    assert files[0].startswith("elsewhere-")
    query = MomentQuery.of("grad", by=["layer"])
    same(MomentSource(held).groups(query), in_memory(table).groups(query))
    assert [one.rows for one in held.stats()] == [one.rows for one in in_memory_rows(table).stats()]
    held.close()
    held.close()
    assert [path.name for path in spill.iterdir()] == files[:1]
